"""The load of every broker, as brokers report it: the input of plans."""

from collections.abc import Collection, Mapping
from typing import Final

import msgspec

from logfleet.balance.load import BrokerLoad, Load, PartitionLoad
from logfleet.client.admin import Admin
from logfleet.client.brokers.cordons import cordoned_brokers
from logfleet.client.cluster import Client
from logfleet.client.log_admin import LogDirDescription, describe_log_dirs
from logfleet.client.reassignments import Moving, list_reassignments, target_of
from logfleet.telemetry.flows import Flow

UNKNOWN: Final = -1


async def fleet_load(
    client: Client,
    *,
    leaving: Collection[int] = (),
    excluded: Collection[str] = (),
    flows: Collection[Flow] = (),
) -> Load:
    """The load of a fleet.

    leaving: brokers that are to become empty. excluded: topics that stay where they are, except on
    brokers that leave. flows: traffic, as far as it is known. Partitions that move count at their
    target. The load has the brokers that are registered and not fenced, and those that leave;
    replicas on others stay there. Raises ClientError.
    """
    admin = Admin(client)
    found = await admin.describe_cluster(include_fenced=True)
    nodes = [node for node in found.brokers if node.id not in found.fenced]
    await client.fetch_topics([])
    directories = {node.id: await describe_log_dirs(client, node.id) for node in nodes}
    moving = await list_reassignments(client)
    sizes = _sizes(directories)
    there = {node.id for node in nodes}
    closed = await cordoned_brokers(admin, sorted(there)) | set(leaving)
    brokers = [
        BrokerLoad(
            node.id,
            node.rack,
            _capacity(directories[node.id]),
            takes_new=node.id not in closed,
            leaving=node.id in leaving,
        )
        for node in nodes
    ]
    brokers += [
        BrokerLoad(each, takes_new=False, leaving=True) for each in sorted(set(leaving) - there)
    ]
    traffic = {(flow.topic, flow.partition): flow for flow in flows}
    partitions = [
        _partition_load(
            PartitionLoad(
                topic.name,
                each.index,
                target_of(moving, topic.name, each.index, each.replicas),
                max(
                    (sizes.get((broker, topic.name, each.index), 0) for broker in each.replicas),
                    default=0,
                ),
            ),
            traffic.get((topic.name, each.index)),
        )
        for topic in await admin.list_topics()
        for each in topic.partitions
        if topic.name not in excluded or not set(each.replicas).isdisjoint(leaving)
    ]
    return Load(tuple(brokers), tuple(partitions))


def _partition_load(load: PartitionLoad, flow: Flow | None) -> PartitionLoad:
    if flow is None:
        return load
    return msgspec.structs.replace(load, rate=flow.rate, writer=flow.writer, reader=flow.reader)


async def bytes_left(client: Client, moving: Moving) -> int:
    """Bytes that moves under way still have to copy, by the sizes on disk. Raises ClientError."""
    ids = {broker for each in moving.values() for broker in each.replicas}
    there = {node.id for node in (await Admin(client).describe_cluster()).brokers}
    await client.fetch_topics([])
    sizes = _sizes(
        {
            broker: await describe_log_dirs(client, broker, list(moving))
            for broker in sorted(ids & there)
        }
    )
    left = 0
    for key, each in moving.items():
        at = {broker: sizes.get((broker, key.topic, key.partition), 0) for broker in each.replicas}
        whole = max((at[broker] for broker in each.origin), default=0)
        left += sum(max(0, whole - at[broker]) for broker in each.adding)
    return left


def _sizes(
    directories: Mapping[int, list[LogDirDescription]],
) -> dict[tuple[int, str, int], int]:
    return {
        (broker, log.partition.topic, log.partition.partition): log.size
        for broker, described in directories.items()
        for each in described
        for log in each.logs
    }


def _capacity(directories: list[LogDirDescription]) -> int | None:
    """Bytes of the only directory; None for several, which may share a disk, or without a size."""
    totals = [each.total_bytes for each in directories]
    return totals[0] if len(totals) == 1 and totals[0] != UNKNOWN else None
