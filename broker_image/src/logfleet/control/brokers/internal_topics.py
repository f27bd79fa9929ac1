"""How many replicas internal topics have: what consumer groups rest on is not to be lost with one broker.

A factor that is set is what they are created with; while there are too few brokers they are not created, rather than with fewer replicas for
ever (KIP-115). Where none is set they have as many replicas as there are brokers, REPLICAS at most. Either way the controller gives them more as
brokers come, and never takes one away. A difference to Kafka, which leaves that to kafka-reassign-partitions.
"""

from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Final

from logfleet.control.brokers.cordons import is_cordoned
from logfleet.control.placement import add_replicas
from logfleet.control.store_writes import partition_step
from logfleet.control.topic_configs import BrokerLayers
from logfleet.metadata import keys
from logfleet.metadata.image import ClusterImage, Topic
from logfleet.metadata.packing import Step
from logfleet.replication.election import reassigned_state
from logfleet.replication.reassignment_steps import target
from logfleet.wire import uuids

REPLICAS: Final = 3
"""Wanted where nothing is set: one may be away while another is lost."""
_FACTORS: Final[Mapping[str, str]] = {
    "__consumer_offsets": "offsets.topic.replication.factor",
    "__transaction_state": "transaction.state.log.replication.factor",
    "__share_group_state": "share.coordinator.state.topic.replication.factor",
}


def factor_at_creation(name: str, image: ClusterImage, layers: BrokerLayers) -> int:
    """Replicas of an internal topic that is created now; more than there are brokers only if that is set."""
    text = layers.set_value(_FACTORS[name])
    return int(text) if text is not None else max(1, min(REPLICAS, len(_active(image))))


def raising_steps(image: ClusterImage, layers: BrokerLayers) -> Iterator[Step]:
    """Give internal topics the replicas that they lack, on active brokers. What nobody leads has nothing to copy, and waits.

    It is a reassignment (`replication.reassignment_steps`): nothing waits for the new ones until they are in sync.
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
        # who is first leads one day: else the first broker of a cluster coordinated all groups for ever
        first[replicas[0]] -= 1
        preferred = min(replicas, key=first.__getitem__)
        first[preferred] += 1
        held.update(added)
        order = (preferred, *(each for each in replicas if each != preferred))
        value = reassigned_state(partition, order, image.brokers)
        path = keys.partition(uuids.to_text(topic.id), index)
        yield partition_step(image, path, value, partition.revision)


def _active(image: ClusterImage) -> dict[int, str | None]:
    """That may be given replicas."""
    return {
        broker.id: broker.rack
        for broker in image.brokers.values()
        if broker.is_active and not is_cordoned(image, broker.id)
    }
