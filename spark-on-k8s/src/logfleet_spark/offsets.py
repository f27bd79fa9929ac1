"""Offsets of a query: their JSON shape, limits per micro-batch, and the ranges that tasks read.

The shape is that of Spark's own Kafka source, {"topic": {"0": 23}}, where an offset is the next one to read.
"""

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from logfleet.client.offsets import TopicPartition

Offsets = dict[TopicPartition, int]


@dataclass(frozen=True, slots=True)
class OffsetRange:
    """Records of one partition from `start` up to but not including `end`."""

    where: TopicPartition
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
    for tp in sorted(offsets):
        shaped.setdefault(tp.topic, {})[str(tp.partition)] = offsets[tp]
    return shaped


def from_json(shaped: Mapping[str, Mapping[str, int]]) -> Offsets:
    """Inverse of to_json."""
    return {
        TopicPartition(topic, int(partition)): offset
        for topic, offsets in shaped.items()
        for partition, offset in offsets.items()
    }


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
        pieces += [OffsetRange(r.where, low, high) for low, high in itertools.pairwise(bounds)]
    return pieces


def reachable(wanted: Offsets, earliest: Offsets, *, fail_on_data_loss: bool) -> Offsets:
    """Where reading can really start: `wanted`, or the earliest offset kept if that is higher.

    Raises DataLossError if records are gone and the query asked to fail then.
    """
    lost = {tp: at for tp, at in wanted.items() if earliest.get(tp, at) > at}
    gone = [tp for tp in wanted if tp not in earliest]
    if fail_on_data_loss and (lost or gone):
        named = [f"{tp} from {at} (first kept: {earliest[tp]})" for tp, at in lost.items()]
        named += [f"{tp} (partition gone)" for tp in gone]
        raise DataLossError(
            "records were deleted before they were read: "
            + ", ".join(sorted(named))
            + "; set failOnDataLossError=false to go on without them"
        )
    return {tp: max(at, earliest[tp]) for tp, at in wanted.items() if tp in earliest}
