"""What stopping brokers would do to partitions: the one answer for a broker that leaves, a rolling restart and a zone that is given up.

All of them reduce to a set of brokers. Counted as in sync is only who is active: one that drains or is fenced may be gone any moment.
"""

from collections.abc import Iterator, Mapping
from typing import Final

import msgspec

from logfleet.metadata.image import ClusterImage, Partition, Topic
from logfleet.replication.partition_state import effective_min_isr

NO_LEADER_LEFT: Final = "no other in-sync replica could lead"
TOO_FEW_LEFT: Final = "fewer in-sync replicas would be left than min.insync.replicas asks for"


class CatchUp(msgspec.Struct, frozen=True):
    """How far a partition's slowest replica is behind, and how fast it comes nearer."""

    lag_bytes: int
    bytes_per_s: float


class Objection(msgspec.Struct, frozen=True):
    """A partition that speaks against it, and by which rule.

    can_heal: its other replicas would be enough if all of them were in sync, so that waiting may help; not for a topic of one replica.
    wait_s: how long that takes at the present rate; None if nobody knows.
    """

    topic: str
    index: int
    rule: str
    can_heal: bool
    wait_s: float | None = None

    def __str__(self) -> str:
        return f"{self.topic}-{self.index}: {self.rule}"


class Verdict(msgspec.Struct, frozen=True):
    """objection: the first; None means yes. under_replicated: topic and index of what would lack a replica."""

    objection: Objection | None
    under_replicated: tuple[tuple[str, int], ...]

    @property
    def is_yes(self) -> bool:
        return self.objection is None


def may_i(
    image: ClusterImage,
    going_down: set[int],
    catching_up: Mapping[tuple[bytes, int], CatchUp] | None = None,
) -> Verdict:
    """Whether these brokers may stop together: each partition that has a leader now keeps one and keeps its effective min ISR.

    catching_up: by topic id and index, as far as somebody measured it.
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
    """Every partition that speaks against it."""
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
