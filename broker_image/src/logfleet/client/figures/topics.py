"""How large topics are, from requests that Apache Kafka serves as well."""

import asyncio
from collections.abc import Awaitable, Collection, Mapping, Sequence
from typing import Final, TypeVar

import msgspec

from logfleet.client.cluster import Client
from logfleet.client.errors import ClientError
from logfleet.client.log_admin import describe_log_dirs
from logfleet.client.metadata import NO_LEADER, Topic
from logfleet.client.offsets import OffsetSpec, TopicPartition, list_offsets

T = TypeVar("T")

ANSWER_S_MAX: Final = 5.0
"""What a broker does not report within this time is unknown."""


class TopicFigures(msgspec.Struct, frozen=True):
    """bytes: on disk, of one replica of each partition. records: offsets from begin to end.

    Both are None if a partition's are unknown.
    """

    bytes: int | None
    records: int | None


async def topic_figures(client: Client, topics: Sequence[Topic]) -> dict[str, TopicFigures]:
    """The figures by name. A broker that does not answer leaves those of its partitions unknown."""
    brokers = sorted({each for topic in topics for row in topic.partitions for each in row.isr})
    sizes, begins, ends = await asyncio.gather(
        _sizes(client, brokers),
        offsets_by_leader(client, topics, OffsetSpec.EARLIEST),
        offsets_by_leader(client, topics, OffsetSpec.LATEST),
    )
    records = {key: max(0, ends[key] - begins[key]) for key in ends.keys() & begins.keys()}
    return {
        topic.name: TopicFigures(_total(topic, sizes), _total(topic, records)) for topic in topics
    }


async def record_rates(
    client: Client, topics: Sequence[Topic], seconds: float
) -> dict[str, float | None]:
    """Records per second by topic: how far the ends move within `seconds`; None if unknown."""
    loop = asyncio.get_running_loop()
    begin_s = loop.time()
    before = await offsets_by_leader(client, topics, OffsetSpec.LATEST)
    await asyncio.sleep(seconds)
    end_s = loop.time()
    after = await offsets_by_leader(client, topics, OffsetSpec.LATEST)
    moved = {key: max(0, after[key] - before[key]) for key in after.keys() & before.keys()}
    totals = {topic.name: _total(topic, moved) for topic in topics}
    return {
        name: None if total is None else total / (end_s - begin_s) for name, total in totals.items()
    }


def _total(topic: Topic, values: Mapping[TopicPartition, int]) -> int | None:
    keys = [TopicPartition(topic.name, each.index) for each in topic.partitions]
    if any(key not in values for key in keys):
        return None
    return sum(values[key] for key in keys)


async def _sizes(client: Client, brokers: Collection[int]) -> dict[TopicPartition, int]:
    """The largest replica of each partition: one that lags is smaller than a whole one."""

    async def of(broker: int) -> dict[TopicPartition, int]:
        found = await _known(describe_log_dirs(client, broker), [])
        return {log.partition: log.size for each in found for log in each.logs}

    largest: dict[TopicPartition, int] = {}
    for found in await asyncio.gather(*map(of, brokers)):
        for key, size in found.items():
            largest[key] = max(size, largest.get(key, 0))
    return largest


async def offsets_by_leader(
    client: Client, topics: Sequence[Topic], spec: OffsetSpec
) -> dict[TopicPartition, int]:
    """The offset of each partition, without those whose leader does not answer."""
    by_leader: dict[int, list[TopicPartition]] = {}
    for topic in topics:
        for each in topic.partitions:
            if each.leader != NO_LEADER:
                key = TopicPartition(topic.name, each.index)
                by_leader.setdefault(each.leader, []).append(key)

    async def of(keys: list[TopicPartition]) -> dict[TopicPartition, int]:
        found = await _known(list_offsets(client, dict.fromkeys(keys, spec)), {})
        return {key: at.offset for key, at in found.items()}

    answers = await asyncio.gather(*map(of, by_leader.values()))
    return {key: offset for found in answers for key, offset in found.items()}


async def _known(answer: Awaitable[T], unknown: T) -> T:
    """The answer, or `unknown` if there is none in time."""
    try:
        async with asyncio.timeout(ANSWER_S_MAX):
            return await answer
    except (ClientError, TimeoutError):
        return unknown
