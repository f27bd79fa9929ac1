"""Offsets of a query: their JSON shape, limits per micro-batch, and the ranges that tasks read.

The shape is that of Spark's own Kafka source, {"topic": {"0": 23}}, where an offset is the next one to read.
"""

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from logfleet_spark.options import TopicPartition

Offsets = dict[TopicPartition, int]


@dataclass(frozen=True, slots=True)
class OffsetRange:
    """Records of one partition from `start` up to but not including `end`."""

    topic: str
    partition: int
    start: int
    end: int

    @property
    def size(self) -> int:
        return self.end - self.start


class DataLossError(Exception):
    """Offsets that were to be read are gone; the text names them."""


def to_json(offsets: Mapping[TopicPartition, int]) -> dict[str, dict[str, int]]:
    """The checkpoint's form, in a stable order."""
    shaped: dict[str, dict[str, int]] = {}
    for (topic, partition), offset in sorted(offsets.items()):
        shaped.setdefault(topic, {})[str(partition)] = offset
    return shaped


def from_json(shaped: Mapping[str, Mapping[str, int]]) -> Offsets:
    """Inverse of to_json."""
    return {(t, int(p)): offset for t, parts in shaped.items() for p, offset in parts.items()}


def limited(start: Offsets, end: Offsets, limit: int) -> Offsets:
    """The end of a micro-batch of about `limit` offsets, shared out by how much each partition has.

    Every partition with data moves by at least one, so none starves (as Spark's KafkaMicroBatchStream does).
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


def split(ranges: Sequence[OffsetRange], min_partitions: int | None) -> list[OffsetRange]:
    """Non-empty ranges, cut so that there are about `min_partitions` of nearly equal size."""
    full = [r for r in ranges if r.size > 0]
    if not min_partitions or len(full) >= min_partitions:
        return full
    total = sum(r.size for r in full)
    pieces: list[OffsetRange] = []
    for r in full:
        count = min(r.size, max(1, round(min_partitions * r.size / total)))
        bounds = [r.start + r.size * i // count for i in range(count + 1)]
        pieces += [
            OffsetRange(r.topic, r.partition, low, high) for low, high in itertools.pairwise(bounds)
        ]
    return pieces


def reachable(wanted: Offsets, earliest: Offsets, *, fail_on_data_loss: bool) -> Offsets:
    """Where reading can really start: `wanted`, or the earliest offset kept if that is higher.

    Raises DataLossError if records are gone and the query asked to fail then.
    """
    lost = {tp: at for tp, at in wanted.items() if earliest.get(tp, at) > at}
    gone = [tp for tp in wanted if tp not in earliest]
    if fail_on_data_loss and (lost or gone):
        named = [f"{t}-{p} from {at} (first kept: {earliest[t, p]})" for (t, p), at in lost.items()]
        named += [f"{t}-{p} (partition gone)" for t, p in gone]
        raise DataLossError(
            "records were deleted before they were read: "
            + ", ".join(sorted(named))
            + "; set failOnDataLossError=false to go on without them"
        )
    return {tp: max(at, earliest[tp]) for tp, at in wanted.items() if tp in earliest}
