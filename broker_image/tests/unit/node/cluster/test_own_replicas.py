import pytest
from logfleet.metadata.image import Broker, ClusterImage, Partition, Topic
from logfleet.metadata.image_builder import Changes
from logfleet.metadata.kinds.brokers import BrokerValue
from logfleet.metadata.shards import ShardedMap
from logfleet.node.cluster.own_replicas import OwnReplicas
from logfleet.types import BrokerEpoch, LeaderEpoch, PartitionEpoch

pytestmark = pytest.mark.asyncio

ONE, TWO = b"1" * 16, b"2" * 16


def image(revision: int, **isr_of: list[int]) -> ClusterImage:
    """Topics by name with one partition of brokers 1 and 2, led by 2. isr_of: who is in sync."""
    topics = {
        {"one": ONE, "two": TWO}[name]: Topic(
            {"one": ONE, "two": TWO}[name],
            name,
            partitions=(
                Partition(
                    (1, 2),
                    tuple((each, BrokerEpoch(5)) for each in isr),
                    2,
                    LeaderEpoch(0),
                    PartitionEpoch(0),
                    1,
                ),
            ),
            ready=1,
            revision=1,
            ready_revision=1,
        )
        for name, isr in isr_of.items()
    }
    brokers = {1: Broker(1, BrokerEpoch(5), BrokerValue("i", ()))}
    entries: ShardedMap[bytes, Topic] = ShardedMap()
    return ClusterImage(revision, brokers=brokers, entries=entries.updated(topics))


async def test_only_what_changed_is_checked_again() -> None:
    own = OwnReplicas(1)
    await own.update(image(1, one=[2], two=[2]), Changes(everything=True))
    assert own.missing == 2
    await own.update(image(2, one=[1, 2], two=[1, 2]), Changes(topics={ONE}))
    assert own.missing == 1
    assert own.image.revision == 2


async def test_a_topic_that_was_deleted_is_not_missed() -> None:
    own = OwnReplicas(1)
    await own.update(image(1, one=[2], two=[2]), Changes(everything=True))
    await own.update(image(2, two=[2]), Changes(topics={ONE}))
    assert own.missing == 1
    await own.update(image(3), Changes(everything=True))
    assert own.missing == 0
