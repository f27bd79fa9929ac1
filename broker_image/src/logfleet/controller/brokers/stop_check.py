"""What stopping brokers would do to partitions.

One rule serves a broker that leaves, a rolling restart and the evacuation of a zone: all are a set
of brokers. Only active brokers count as in sync: one that drains or is fenced may stop at any
moment.
"""

from collections.abc import Iterator, Mapping
from typing import Final

import msgspec

from logfleet.metadata.image import ClusterImage, Partition, Topic
from logfleet.replication.partition_state import effective_min_isr

NO_LEADER_LEFT: Final = "no other in-sync replica could lead"
TOO_FEW_LEFT: Final = "fewer in-sync replicas would be left than min.insync.replicas asks for"


class CatchUp(msgspec.Struct, frozen=True):
    """The lag of a partition's slowest replica, and how fast it shrinks."""

    lag_bytes: int
    bytes_per_s: float


class Objection(msgspec.Struct, frozen=True):
    """A partition that prevents the stop, and the rule.

    can_heal: its other replicas would be enough if all were in sync, so waiting may help; never
    true for one replica. wait_s: how long that takes at the current rate; None if unknown.
    """

    topic: str
    index: int
    rule: str
    can_heal: bool
    wait_s: float | None = None

    def __str__(self) -> str:
        return f"{self.topic}-{self.index}: {self.rule}"


class Verdict(msgspec.Struct, frozen=True):
    """The decision. objection: the first; None means yes.

    under_replicated: topic and index of partitions that would lack a replica.
    """

    objection: Objection | None
    under_replicated: tuple[tuple[str, int], ...]

    @property
    def is_yes(self) -> bool:
        return self.objection is None


def check_stop(
    image: ClusterImage,
    going_down: set[int],
    catching_up: Mapping[tuple[bytes, int], CatchUp] | None = None,
) -> Verdict:
    """Whether these brokers may stop together.

    Each partition that has a leader now must keep one and keep its effective min ISR. catching_up:
    by topic id and index, where measured.
    """
    found = next(objections(image, going_down, catching_up), None)
    touched = (
        (topic.name, index)
        for topic in image.topics()
        for index, partition in enumerate(topic.partitions)
        if not going_down.isdisjoint(partition.replicas)
    )
    return Verdict(found, tuple(touched))


def objections(
    image: ClusterImage,
    going_down: set[int],
    catching_up: Mapping[tuple[bytes, int], CatchUp] | None = None,
) -> Iterator[Objection]:
    """Every partition that prevents the stop."""
    for topic in image.topics():
        for index, partition in enumerate(topic.partitions):
            if going_down.isdisjoint(partition.replicas) or not partition.has_leader:
                continue
            left = _in_sync_without(image, topic, index, going_down)
            if left < effective_min_isr(partition):
                rate = (catching_up or {}).get((topic.id, index))
                yield Objection(
                    topic.name,
                    index,
                    TOO_FEW_LEFT if left else NO_LEADER_LEFT,
                    _others(partition, going_down) >= effective_min_isr(partition),
                    rate.lag_bytes / rate.bytes_per_s if rate and rate.bytes_per_s > 0 else None,
                )


def _in_sync_without(image: ClusterImage, topic: Topic, index: int, going_down: set[int]) -> int:
    return sum(
        broker_id not in going_down
        and (broker := image.brokers.get(broker_id)) is not None
        and broker.epoch == epoch
        and broker.is_active
        and not image.is_offline(broker_id, topic.id, index)
        for broker_id, epoch in topic.partitions[index].isr
    )


def _others(partition: Partition, going_down: set[int]) -> int:
    return sum(broker_id not in going_down for broker_id in partition.replicas)
