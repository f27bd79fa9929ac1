"""How far groups are behind, in records and in time; Apache Kafka reports it as well."""

import asyncio
import contextlib
from collections.abc import Collection, Mapping, Sequence
from typing import Final

import msgspec

from logfleet.client.cluster import Client
from logfleet.client.errors import ClientError
from logfleet.client.fetcher import Fetcher
from logfleet.client.figures.topics import offsets_by_leader
from logfleet.client.groups import Groups
from logfleet.client.offsets import IsolationLevel, OffsetSpec, TopicPartition
from logfleet.groups.lag import lag

ASKED_AT_ONCE: Final = 16
POLL_MS: Final = 500


class GroupFigures(msgspec.Struct, frozen=True):
    """members: None for a group that is not described, as one of a kind that DescribeGroups lacks.

    lag: over all partitions that it has committed for, and whose end is known; None without any.
    """

    members: int | None
    lag: int | None


async def group_figures(client: Client, names: Sequence[str]) -> dict[str, GroupFigures]:
    """The figures by name; what cannot be asked is None."""
    groups, gate = Groups(client), asyncio.Semaphore(ASKED_AT_ONCE)

    async def one(name: str) -> tuple[int | None, dict[TopicPartition, int]]:
        members, committed = None, {}
        async with gate:
            with contextlib.suppress(ClientError):
                members = len((await groups.describe(name)).members)
            with contextlib.suppress(ClientError):
                found = await groups.committed(name, require_stable=False)
                committed = {key: each.offset for key, each in found.items()}
        return members, committed

    answers = dict(zip(names, await asyncio.gather(*map(one, names)), strict=True))
    topics = {key.topic for _, committed in answers.values() for key in committed}
    ends: Mapping[TopicPartition, int] = {}
    if topics:
        found = await client.retrying(lambda: client.fetch_topics(None))
        ends = await offsets_by_leader(
            client, [each for each in found if each.name in topics], OffsetSpec.LATEST
        )
    return {
        name: GroupFigures(
            members, total_lag([lag(ends.get(key), at) for key, at in committed.items()])
        )
        for name, (members, committed) in answers.items()
    }


def total_lag(lags: Collection[int | None]) -> int | None:
    """The sum of what is known; None if nothing is. A group beyond an end is not behind."""
    known = [max(0, each) for each in lags if each is not None]
    return sum(known) if known else None


async def first_timestamps(
    client: Client,
    offsets: Mapping[TopicPartition, int],
    isolation: IsolationLevel,
    within_s: float,
) -> dict[TopicPartition, int]:
    """The time of the first record at or after each offset, in milliseconds since 1970.

    A partition where none arrives in time is left out. Raises ClientError.
    """
    fetcher = Fetcher(client, partition_bytes=1, reset=OffsetSpec.EARLIEST, isolation=isolation)
    fetcher.assign(offsets)
    found: dict[TopicPartition, int] = {}
    loop = asyncio.get_running_loop()
    deadline = loop.time() + within_s
    while len(found) < len(offsets) and loop.time() < deadline:
        for fetched in await fetcher.poll(POLL_MS):
            first = next(fetched.records(), None)
            if first is not None:
                found.setdefault(fetched.partition, first.timestamp)
        fetcher.assign({key: at for key, at in fetcher.positions().items() if key not in found})
    return found
