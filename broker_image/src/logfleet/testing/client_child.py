"""The client of the tests, as a child of the prepared process: it asks brokers by Kafka's protocol.

So it serves tests on any Kafka alike. Every order names the brokers to begin with (`bootstrap`) and
how long it may take (`limit_s`), and has connections of its own: what it answers is not from a
cache of the time before a broker was killed.
"""

import asyncio
import gc
import socket
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final, TypeVar

import msgspec

from logfleet.client.admin import Admin, NewTopic
from logfleet.client.cluster import Client
from logfleet.client.errors import ClientError
from logfleet.client.fetcher import Fetcher
from logfleet.client.groups import GroupDescription, Groups
from logfleet.client.metadata import NO_LEADER, PartitionInfo, Topic
from logfleet.client.offsets import IsolationLevel, OffsetSpec, TopicPartition, list_offsets
from logfleet.client.reassignments import alter_reassignments, elect_preferred_leaders
from logfleet.io.logging import start_logging
from logfleet.records.errors import RecordsError
from logfleet.records.record import Header
from logfleet.testing.child import Control, Order
from logfleet.testing.errors import OrderFailed

T = TypeVar("T")

POLL_MS: Final = 20
"""Between two tries of what only time changes: a leader, records, a broker's picture."""
SENTENCE_S: Final = 2.0
"""For an order that has a better sentence about its time that is up."""
BROKER_S_MAX: Final = 2.0
"""For one broker that may be stopped."""


def run(channel: socket.socket, settings: Mapping[str, Any]) -> int:
    """Serve until the channel closes; the exit code."""
    del settings
    gc.enable()
    listener = start_logging("info", json=False)
    try:
        asyncio.run(_serve(channel))
    finally:
        listener.stop()
    return 0


async def _serve(channel: socket.socket) -> None:
    control = await Control.over(channel)
    control.started(None)
    await control.serve(None, ORDERS)


def asked(work: Callable[[Client, Mapping[str, Any]], Awaitable[object]]) -> Order[None]:
    """The order that gives `work` a client, and fails with a sentence when its time is up."""

    async def order(_: None, given: Mapping[str, Any]) -> object:
        limit_s = given["limit_s"]
        try:
            async with (
                asyncio.timeout(limit_s + SENTENCE_S),
                Client(
                    given["bootstrap"],
                    client_id="logfleet-testing",
                    request_timeout_ms=int(min(limit_s, BROKER_S_MAX) * 1_000),
                    timeout_ms=int(limit_s * 1_000),
                ) as client,
            ):
                return await work(client, given)
        except (ClientError, RecordsError) as error:
            raise OrderFailed(str(error)) from error
        except TimeoutError:
            raise OrderFailed(f"{given['do']}: not done within {limit_s:g} s") from None

    return order


async def until(ask: Callable[[], Awaitable[T]], is_it: Callable[[T], bool]) -> T:
    """What `ask` returns once `is_it` accepts it."""
    while not is_it(found := await ask()):  # noqa: ASYNC110  only the brokers know when
        await asyncio.sleep(POLL_MS / 1_000)
    return found


async def create_topic(client: Client, order: Mapping[str, Any]) -> None:
    """Create a topic; every broker that answers knows its leaders then."""
    name = order["topic"]
    new = NewTopic(name, order["partitions"], order["replicas"], order["config"])
    await Admin(client).create_topic(new)
    # a broker of Apache Kafka answers for a moment longer that there is no such topic
    await until(lambda: Admin(client).find_topic(name), _is_led)
    await client.fetch_topics([name])
    nodes = client.metadata.nodes.values()
    await asyncio.gather(*(_until_known(node.address, name) for node in nodes))


async def _until_known(address: str, name: str) -> None:
    """Wait until the broker's picture has the topic, for BROKER_S_MAX at most."""
    try:
        async with asyncio.timeout(BROKER_S_MAX), Client(address) as client:
            await until(lambda: Admin(client).find_topic(name), _is_led)
    except (ClientError, TimeoutError):
        return  # it is stopped, or ends: a test may create topics then


def _is_led(topic: Topic | None) -> bool:
    return topic is not None and all(each.leader != NO_LEADER for each in topic.partitions)


async def brokers(_: Client, order: Mapping[str, Any]) -> None:
    """Wait until each of the brokers to begin with knows of `count` brokers."""
    count = order["count"]

    async def until_all_known(address: str) -> None:
        async with Client(address) as own:
            await until(Admin(own).describe_cluster, lambda found: len(found.brokers) >= count)

    await asyncio.gather(*map(until_all_known, order["bootstrap"].split(",")))


async def delete_topic(client: Client, order: Mapping[str, Any]) -> None:
    """Delete a topic; the broker that was asked lists it no more."""
    admin = Admin(client)
    await admin.delete_topic(order["topic"])
    await until(lambda: admin.find_topic(order["topic"]), lambda found: found is None)


async def leader(client: Client, order: Mapping[str, Any]) -> int:
    """The id of the partition's leader, once it has one that is none of `but`."""
    name, index = order["topic"], order["partition"]

    async def ask() -> int:
        (topic,) = await client.fetch_topics([name])
        partition = topic.partition(index)
        if partition is None:
            raise OrderFailed(f"{name} has no partition {index}")
        return partition.leader

    return await until(ask, lambda found: found not in {NO_LEADER, *order["but"]})


async def in_sync(client: Client, order: Mapping[str, Any]) -> list[int]:
    """The partition's ISR, once it has `count` brokers."""
    name, index, count = order["topic"], order["partition"], order["count"]
    found = await until(
        lambda: _partition(client, name, index), lambda found: count in {None, len(found.isr)}
    )
    return sorted(found.isr)


async def _partition(client: Client, name: str, index: int) -> PartitionInfo:
    (topic,) = await client.fetch_topics([name])
    partition = topic.partition(index)
    if partition is None:
        raise OrderFailed(f"{name} has no partition {index}")
    return partition


async def move_leader(client: Client, order: Mapping[str, Any]) -> None:
    """Make the broker the preferred leader and elect it.

    Every broker that answers knows it then.
    """
    name, index, to = order["topic"], order["partition"], order["to"]
    key = TopicPartition(name, index)

    async def ask() -> PartitionInfo:
        return await _partition(client, name, index)

    partition = await ask()
    if to not in partition.replicas:
        raise OrderFailed(f"broker {to} has no replica of {key}: {list(partition.replicas)}")
    others = [each for each in partition.replicas if each != to]
    refused = await alter_reassignments(client, {key: [to, *others]})
    if refused:
        raise OrderFailed(f"{key}: {refused[key]}")
    await until(ask, lambda found: found.replicas[0] == to)
    while (await ask()).leader != to:
        await elect_preferred_leaders(client, key)
        await asyncio.sleep(POLL_MS / 1_000)
    nodes = client.metadata.nodes.values()
    await asyncio.gather(*(_until_led_by(node.address, key, to) for node in nodes))


async def _until_led_by(address: str, key: TopicPartition, leader_id: int) -> None:
    """Wait until the broker's picture has the leader, for BROKER_S_MAX at most."""

    def is_led(topic: Topic | None) -> bool:
        partition = None if topic is None else topic.partition(key.partition)
        return partition is not None and partition.leader == leader_id

    try:
        async with asyncio.timeout(BROKER_S_MAX), Client(address) as client:
            await until(lambda: Admin(client).find_topic(key.topic), is_led)
    except (ClientError, TimeoutError):
        return


async def group(client: Client, order: Mapping[str, Any]) -> dict[str, Any]:
    """A consumer group, once it is in that state with so many members; fields of `GroupState`."""
    name, state, count = order["group"], order["state"], order["members"]

    async def ask() -> GroupDescription | None:
        try:
            return await Groups(client).describe(name)
        except ClientError:
            return None  # it has no coordinator yet

    def is_it(found: GroupDescription | None) -> bool:
        return (
            found is not None
            and state in {None, found.state}
            and count in {None, len(found.members)}
        )

    found = await until(ask, is_it)
    assert found is not None
    members = [msgspec.structs.asdict(each) for each in found.members]
    return {"state": found.state, "members": members}


async def committed(client: Client, order: Mapping[str, Any]) -> int | None:
    """The offset that the group has committed for the partition."""
    key = TopicPartition(order["topic"], order["partition"])
    found = (await Groups(client).committed(order["group"], [key])).get(key)
    return None if found is None else found.offset


async def end(client: Client, order: Mapping[str, Any]) -> int:
    """The offset behind the partition's last record that consumers may see."""
    key = TopicPartition(order["topic"], order["partition"])
    found = await list_offsets(client, {key: OffsetSpec.LATEST})
    return found[key].offset


async def records(client: Client, order: Mapping[str, Any]) -> list[tuple[object, ...]]:
    """All records from the first to the last, once there are `count`; fields of `kafka.Record`."""
    name, count = order["topic"], order["count"] or 0
    isolation = IsolationLevel[order["isolation"].upper()]
    keys = await _partitions(client, name, order["partition"])
    starts = await list_offsets(client, dict.fromkeys(keys, OffsetSpec.EARLIEST))
    fetcher = Fetcher(client, max_wait_ms=POLL_MS, isolation=isolation)
    fetcher.assign({key: at.offset for key, at in starts.items()})
    found: list[tuple[int, int, int, bytes | None, bytes | None, list[Header]]] = []

    async def read() -> None:
        for batch in await fetcher.poll(POLL_MS * 5):
            partition = batch.partition.partition
            for each in batch.records():
                fields = (each.offset, each.timestamp, each.key, each.value, list(each.headers))
                found.append((partition, *fields))

    loop = asyncio.get_running_loop()
    deadline = loop.time() + order["limit_s"] - POLL_MS * 5 / 1_000
    while True:
        ends = await list_offsets(
            client, dict.fromkeys(keys, OffsetSpec.LATEST), isolation=isolation
        )
        while any(at < ends[key].offset for key, at in fetcher.positions().items()):
            await read()
        if len(found) >= count:
            return sorted(found, key=lambda each: each[:2])
        if loop.time() > deadline:
            raise OrderFailed(
                f"{name} has {len(found)} of {count} records after {order['limit_s']:g} s"
            )
        await read()


async def _partitions(client: Client, name: str, only: int | None) -> list[TopicPartition]:
    """Of the topic, once it is there: the code under test may be about to create it."""
    topic = await until(lambda: Admin(client).find_topic(name), bool)
    assert topic is not None
    indexes = [each.index for each in topic.partitions]
    if only is not None and only not in indexes:
        raise OrderFailed(f"{name} has no partition {only}")
    return [TopicPartition(name, index) for index in indexes if only in (None, index)]


ORDERS: Final[dict[str, Order[None]]] = {
    each.__name__: asked(each)
    for each in (
        brokers,
        create_topic,
        delete_topic,
        leader,
        in_sync,
        move_leader,
        group,
        committed,
        end,
        records,
    )
}
