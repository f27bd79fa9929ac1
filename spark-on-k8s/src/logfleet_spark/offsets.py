"""Offsets of a query: their JSON form, limits per micro-batch, and the ranges that tasks read.

The form is that of Spark's Kafka source, {"topic": {"0": 23}}, where an offset is the next one to
read. The id of each topic is a further entry without partitions, {"topic@AAECAwQFBgcICQoLDA0ODw":
{}}, which Spark's source ignores. No topic's name contains an `@`
(org.apache.kafka.common.internals.Topic); an id is written as Kafka's tools write it (KIP-516).
"""

import itertools
import math
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from logfleet.client.offsets import OffsetSpec, TopicPartition

Offsets = dict[TopicPartition, int]
TopicIds = Mapping[str, bytes]
"""16 bytes by a topic's name; topics of brokers without ids are missing."""
ID_MARK = "@"


@dataclass(frozen=True, slots=True)
class OffsetRange:
    """Records of one partition from `start` up to but not including `end`."""

    where: TopicPartition
    start: int
    end: int

    @property
    def size(self) -> int:
        return self.end - self.start


class Loss(NamedTuple):
    """Records that were to be read and no longer exist. offsets: their number, 0 if unknown."""

    text: str
    offsets: int = 0


class DataLossError(Exception):
    """Records that were to be read no longer exist; the text names their offsets."""


def to_json(
    offsets: Mapping[TopicPartition, int], ids: TopicIds | None = None
) -> dict[str, dict[str, int]]:
    """Return the checkpoint's form, in a stable order.

    ids: written for the topics of the offsets, ignored for others.
    """
    shaped: dict[str, dict[str, int]] = {}
    for tp in sorted(offsets):
        shaped.setdefault(tp.topic, {})[str(tp.partition)] = offsets[tp]
    named = sorted(shaped.keys() & (ids or {}).keys())
    return shaped | {f"{topic}{ID_MARK}{id_text((ids or {})[topic])}": {} for topic in named}


def from_json(shaped: Mapping[str, Mapping[str, int]]) -> Offsets:
    """Inverse of to_json."""
    return {
        TopicPartition(topic, int(partition)): offset
        for topic, offsets in shaped.items()
        for partition, offset in offsets.items()
    }


def ids_from_json(shaped: Mapping[str, Mapping[str, int]]) -> dict[str, bytes]:
    """Return the ids of topics in the checkpoint's form; empty if another source wrote it."""
    marked = (name.partition(ID_MARK) for name in shaped)
    return {topic: urlsafe_b64decode(text + "==") for topic, mark, text in marked if mark}


def id_text(topic_id: bytes) -> str:
    """Return the id as Kafka's tools write it (org.apache.kafka.common.Uuid)."""
    return urlsafe_b64encode(topic_id).decode().rstrip("=")


def recreated(before: TopicIds, now: TopicIds) -> list[str]:
    """Return the names of topics that were deleted and created again.

    Their ids differ (KIP-516).
    """
    return sorted(name for name in before.keys() & now.keys() if before[name] != now[name])


def recreated_losses(before: TopicIds, now: TopicIds) -> list[Loss]:
    """Return a loss for each topic that was deleted and created again."""
    return [
        Loss(
            f"topic {name} (deleted and created again: its id was {id_text(before[name])} "
            f"and is {id_text(now[name])})"
        )
        for name in recreated(before, now)
    ]


def without_topics(offsets: Mapping[TopicPartition, int], names: Iterable[str]) -> Offsets:
    """Return the offsets without those of the topics of these names."""
    left_out = set(names)
    return {tp: offset for tp, offset in offsets.items() if tp.topic not in left_out}


def without_latest(start: Offsets, end: Offsets) -> Offsets:
    """Return the start of a micro-batch: LATEST is replaced with the end of the batch."""
    return {tp: end.get(tp, at) if at == OffsetSpec.LATEST else at for tp, at in start.items()}


def clamped(start: Offsets, end: Offsets) -> Offsets:
    """As `without_latest`, if the end was determined before the start.

    No partition starts after its end, and partitions that have no end are left out.
    """
    return {tp: min(at, end[tp]) for tp, at in without_latest(start, end).items() if tp in end}


def limited(start: Offsets, end: Offsets, limit: int) -> Offsets:
    """Return the end of a micro-batch of about `limit` offsets.

    Each partition gets a share in proportion to its backlog. Every partition with data advances by
    at least one offset, so none starves (as in Spark's KafkaMicroBatchStream).
    """
    sizes = {tp: end[tp] - start[tp] for tp in end if end[tp] > start[tp]}
    total = sum(sizes.values())
    if total <= limit:
        return end
    moved = dict(end)
    for tp, size in sizes.items():
        share = limit * size / total
        moved[tp] = min(end[tp], start[tp] + (math.ceil(share) if share < 1 else math.floor(share)))
    return moved


def split(
    ranges: Sequence[OffsetRange],
    min_partitions: int | None = None,
    max_records: int | None = None,
) -> list[OffsetRange]:
    """Cut the ranges into about `min_partitions` non-empty ones of at most `max_records` offsets.

    Source: KafkaOffsetRangeCalculator of Spark's Kafka source.
    """
    full = [r for r in ranges if r.size > 0]
    if max_records:
        full = [piece for r in full for piece in _cut(r, math.ceil(r.size / max_records))]
    if not min_partitions or len(full) >= min_partitions:
        return full
    total = sum(r.size for r in full)
    return [
        piece
        for r in full
        for piece in _cut(r, min(r.size, max(1, round(min_partitions * r.size / total))))
    ]


def _cut(whole: OffsetRange, count: int) -> list[OffsetRange]:
    bounds = [whole.start + whole.size * i // count for i in range(count + 1)]
    return [OffsetRange(whole.where, low, high) for low, high in itertools.pairwise(bounds)]


def shared(ranges: Sequence[OffsetRange], records_max: int) -> list[tuple[OffsetRange, ...]]:
    """Return the ranges of each task; small ranges share a task of at most `records_max` offsets.

    A task costs Spark about 40 ms of processor time however little it reads, and makes at least one
    fetch.
    """
    tasks: list[tuple[OffsetRange, ...]] = []
    size = 0
    for r in ranges:
        if tasks and size + r.size <= records_max:
            tasks[-1] += (r,)
            size += r.size
        else:
            tasks.append((r,))
            size = r.size
    return tasks


def gone_or_lower(begin: Offsets, until: Offsets) -> list[Loss]:
    """Return a loss for each partition that no longer exists or ends below its offset in `begin`.

    until: where partitions end now.
    """
    lost = []
    for tp, at in sorted(begin.items()):
        if tp not in until:
            lost.append(Loss(f"{tp} (partition not visible)"))
        elif until[tp] < at:
            lost.append(Loss(f"{tp} (offset {at} wanted, ends at {until[tp]} now)"))
    return lost


def planned(
    begin: Offsets, until: Offsets, earliest: Offsets
) -> tuple[list[OffsetRange], list[Loss]]:
    """Return the ranges that a micro-batch reads, and the losses among them.

    A range begins at its offset in `begin`, or at the first offset that the partition still holds
    if that is higher, and ends at `until`.

    A partition that is missing in `begin` is new, so it is read from offset 0. earliest: first
    offsets of the partitions that exist. Source:
    KafkaOffsetReader.getOffsetRangesFromResolvedOffsets of Spark's Kafka source.
    """
    lost = gone_or_lower(begin, until)
    ranges = []
    for tp in sorted(until):
        start, end = begin.get(tp, 0), until[tp]
        if end <= start:
            continue
        if tp not in earliest:
            lost.append(Loss(f"{tp} from {start} to {end} (partition gone)", end - start))
            continue
        first = min(earliest[tp], end)
        if first > start:
            lost.append(
                Loss(f"{tp} from {start} to {first} (first kept: {earliest[tp]})", first - start)
            )
        ranges.append(OffsetRange(tp, max(start, first), end))
    return [r for r in ranges if r.size > 0], lost


def data_loss(lost: Sequence[str]) -> DataLossError:
    return DataLossError(
        f"records were deleted before they were read: {', '.join(lost)}; "
        "set failOnDataLoss=false to go on without them"
    )
