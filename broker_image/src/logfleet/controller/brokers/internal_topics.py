"""How many replicas internal topics have, so that the loss of one broker loses no group state.

A topic is created with the factor that is set; while there are too few brokers it is not created,
so that it never starts with fewer (KIP-115). If no factor is set, it gets as many replicas as there
are brokers, at most REPLICAS. In both cases the controller adds replicas as brokers come, and never
removes one. Kafka leaves that to kafka-reassign-partitions.
"""

from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Final

from logfleet.config.topic import BrokerLayers
from logfleet.controller.brokers.cordons import is_cordoned
from logfleet.controller.changes.placement import add_replicas
from logfleet.controller.changes.store_writes import partition_step
from logfleet.metadata.image import ClusterImage, Topic
from logfleet.metadata.kinds.topics import PARTITION
from logfleet.metadata.packing import Step
from logfleet.replication.election import reassigned_state
from logfleet.replication.reassignment_steps import target

REPLICAS: Final = 3
"""Replicas if no factor is set: one may be down while another is lost."""
_FACTORS: Final[Mapping[str, str]] = {
    "__consumer_offsets": "offsets.topic.replication.factor",
    "__transaction_state": "transaction.state.log.replication.factor",
    "__share_group_state": "share.coordinator.state.topic.replication.factor",
}


def factor_at_creation(name: str, image: ClusterImage, layers: BrokerLayers) -> int:
    """Replicas of an internal topic created now; more than brokers only if configured."""
    text = layers.set_value(_FACTORS[name])
    return int(text) if text is not None else max(1, min(REPLICAS, len(_active(image))))


def raising_steps(image: ClusterImage, layers: BrokerLayers) -> Iterator[Step]:
    """Add missing replicas of internal topics on active brokers, by reassignment.

    `replication.reassignment_steps`: nothing waits for the new replicas until they are in sync. A
    partition without a leader has nothing to copy, and waits.
    """
    for name, key in _FACTORS.items():
        topic = image.topic(name)
        if topic is not None:
            wanted = int(layers.set_value(key) or REPLICAS)
            yield from _raised(image, topic, wanted)


def _raised(image: ClusterImage, topic: Topic, wanted: int) -> Iterator[Step]:
    racks = _active(image)
    held = Counter(each for partition in topic.partitions for each in partition.replicas)
    first = Counter(partition.replicas[0] for partition in topic.partitions)
    for index, partition in enumerate(topic.partitions):
        there = target(partition)
        lacking = min(wanted, len(racks)) - len(there)
        if lacking <= 0 or not partition.has_leader:
            continue
        known = {each: racks.get(each) for each in there} | racks
        added = add_replicas(known, there, lacking, held, index)
        replicas = (*there, *added)
        # the first replica leads eventually: otherwise a cluster's first broker would always
        # coordinate all groups
        first[replicas[0]] -= 1
        preferred = min(replicas, key=first.__getitem__)
        first[preferred] += 1
        held.update(added)
        order = (preferred, *(each for each in replicas if each != preferred))
        value = reassigned_state(partition, order, image.brokers)
        path = PARTITION.key((topic.id, index))
        yield partition_step(image, path, value, partition.revision)


def _active(image: ClusterImage) -> dict[int, str | None]:
    """Brokers that may get replicas, with their racks."""
    return {
        broker.id: broker.rack
        for broker in image.brokers.values()
        if broker.is_active and not is_cordoned(image, broker.id)
    }
