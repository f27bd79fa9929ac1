"""Offsets of a query: their JSON shape, limits per micro-batch, and the ranges that tasks read.

The shape is that of Spark's own Kafka source, {"topic": {"0": 23}}, where an offset is the next one
to read. Beside each topic stands its id as an entry without partitions,
{"topic@AAECAwQFBgcICQoLDA0ODw": {}}, which Spark's source passes over. No topic's name holds an `@`
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
"""16 bytes by a topic's name; topics of brokers without ids are left out."""
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
    """What was to be read and is gone. offsets: how many, 0 where nobody knows."""

    text: str
    offsets: int = 0


class DataLossError(Exception):
    """Offsets that were to be read are gone; the text names them."""


def to_json(
    offsets: Mapping[TopicPartition, int], ids: TopicIds | None = None
) -> dict[str, dict[str, int]]:
    """The checkpoint's form, in a stable order. ids: those of other topics are left out."""
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
    """The ids of topics in the checkpoint's form: of none that another source has written."""
    marked = (name.partition(ID_MARK) for name in shaped)
    return {topic: urlsafe_b64decode(text + "==") for topic, mark, text in marked if mark}


def id_text(topic_id: bytes) -> str:
    """As Kafka's tools write it (org.apache.kafka.common.Uuid)."""
    return urlsafe_b64encode(topic_id).decode().rstrip("=")


def recreated(before: TopicIds, now: TopicIds) -> list[str]:
    """Topics of which the name stands for another topic now (KIP-516)."""
    return sorted(name for name in before.keys() & now.keys() if before[name] != now[name])


def recreated_losses(before: TopicIds, now: TopicIds) -> list[Loss]:
    """A loss for each of these topics, for an error or a warning."""
    return [
        Loss(
            f"topic {name} (deleted and created again: its id was {id_text(before[name])} "
            f"and is {id_text(now[name])})"
        )
        for name in recreated(before, now)
    ]


def of_other_topics(offsets: Mapping[TopicPartition, int], names: Iterable[str]) -> Offsets:
    """The offsets without those of the topics of these names."""
    left_out = set(names)
    return {tp: offset for tp, offset in offsets.items() if tp.topic not in left_out}


def without_latest(start: Offsets, end: Offsets) -> Offsets:
    """The start of a micro-batch, where LATEST stands for the batch's own end."""
    return {tp: end.get(tp, at) if at == OffsetSpec.LATEST else at for tp, at in start.items()}


def clamped(start: Offsets, end: Offsets) -> Offsets:
    """As `without_latest`, for an end that was taken before the start.

    Nothing starts after that end, and partitions that it lacks are left out.
    """
    return {tp: min(at, end[tp]) for tp, at in without_latest(start, end).items() if tp in end}


def limited(start: Offsets, end: Offsets, limit: int) -> Offsets:
    """The end of a micro-batch of about `limit` offsets, shared out by how much each partition has.

    Every partition with data moves by at least one, so none starves (as Spark's
    KafkaMicroBatchStream does).
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
    """Non-empty ranges of at most `max_records` offsets: about `min_partitions` of equal size.

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
    """The ranges of each task; small ones share a task of at most `records_max` offsets.

    A task costs Spark about 40 ms of processor time, whatever it reads, and each a fetch of its
    own.
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
    """What of `begin` can no longer be read on from, given where partitions end now."""
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
    """The ranges that a micro-batch reads, and what of them is gone.

    It reads from `begin`, or from the first offset that is kept if that is higher, up to `until`.

    A partition that `begin` lacks has appeared since, so it is read from offset 0. earliest: of the
    partitions that are there. Source: KafkaOffsetReader.getOffsetRangesFromResolvedOffsets of
    Spark's Kafka source.
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
