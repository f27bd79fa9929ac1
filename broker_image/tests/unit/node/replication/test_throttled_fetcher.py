"""A follower that copies no faster than follower.replication.throttled.rate says (KIP-73)."""

import msgspec
import pytest
from logfleet.config.throttle_keys import Side
from logfleet.metadata.image import ClusterImage
from logfleet.metadata.image_builder import ImageBuilder
from logfleet.metadata.kinds import topics
from logfleet.metadata.kinds.topics import (
    PARTITION,
    READY,
    PartitionValue,
    ReadyValue,
    TopicValue,
)
from logfleet.metadata.store import KeyValue
from logfleet.quotas.replication_quotas import ANSWER, SLICE, UNLIMITED
from logfleet.quotas.replication_throttle import ReplicationThrottle
from logfleet.replication.fetcher import THROTTLED_MS_MAX
from logfleet.types import BrokerEpoch, LeaderEpoch, PartitionEpoch
from logfleet.wire import uuids

from broker_image.tests.unit.node.replication.test_replica_fetcher import (
    TOPIC,
    batch,
    fetching,
    forgotten,
    leader,  # noqa: F401  a fixture
    me,  # noqa: F401  a fixture
    named,
    row,
)

pytestmark = pytest.mark.asyncio


def throttled(replicas: str = "", *, adding: tuple[int, ...] = ()) -> ClusterImage:
    """Of these replicas of `topic`, as a follower; those of `adding` are new."""
    uuid = uuids.to_text(TOPIC)
    configs = {"follower.replication.throttled.replicas": replicas} if replicas else {}
    partition = PartitionValue(
        (1, 2), ((1, BrokerEpoch(10)),), 1, LeaderEpoch(5), PartitionEpoch(0), 1
    )
    builder = ImageBuilder(ClusterImage())
    for key, value in (
        (topics.TOPIC.key("topic"), TopicValue(uuid, configs)),
        (PARTITION.key((uuids.from_text(uuid), 0)), partition.changed(adding=adding)),
        (PARTITION.key((uuids.from_text(uuid), 1)), partition),
        (READY.key(uuids.from_text(uuid)), ReadyValue(2)),
    ):
        builder.add(KeyValue(key, msgspec.json.encode(value), 1, 1, 1))
    return builder.build(1)[0]


async def asked_without_the_first(leader):  # noqa: F811
    """Both partitions are behind after an answer; what is asked for next is the second only."""
    await leader.asked()
    leader.answer(
        row(records=batch(0, b"x"), high_watermark=9),
        row(1, records=batch(0, b"x"), high_watermark=9),
    )
    asked = await leader.asked()
    assert (named(asked), forgotten(asked)) == ([(1, 1)], [0])
    return asked


async def test_a_partition_that_is_behind_waits_while_others_are_fetched(me, leader):  # noqa: F811
    """Until the rate allows it again, or another rate is set."""
    one, other = me.follow(0), me.follow(1)
    me.throttle = ReplicationThrottle(me.config, lambda: throttled(f"0:{me.config.node_id}"))
    me.throttle.quotas[Side.FOLLOWER].rate = 1
    async with fetching(me, leader, one, other):
        asked = await asked_without_the_first(leader)
        assert asked.max_wait_ms <= THROTTLED_MS_MAX + 1
        me.throttle.quotas[Side.FOLLOWER].rate = UNLIMITED
        leader.answer()
        await leader.asked_about(0)


async def test_a_replica_that_is_added_waits_without_being_listed(me, leader):  # noqa: F811
    one, other = me.follow(0), me.follow(1)
    me.throttle = ReplicationThrottle(me.config, lambda: throttled(adding=(me.config.node_id,)))
    me.throttle.quotas[Side.ADDED].rate = 1
    async with fetching(me, leader, one, other):
        await asked_without_the_first(leader)


async def test_what_is_written_meanwhile_does_not_count_for_a_replica_that_is_added(
    me,  # noqa: F811
    leader,  # noqa: F811
):
    """It gets in sync however much that is."""
    one = me.follow(0)
    me.throttle = ReplicationThrottle(me.config, lambda: throttled(adding=(me.config.node_id,)))
    quota = me.throttle.quotas[Side.ADDED]
    quota.rate = 1 << 30
    async with fetching(me, leader, one):
        await leader.asked()
        leader.answer(row(records=batch(0, b"x"), high_watermark=9))
        await leader.asked()
        first = quota.bytes
        assert first == len(batch(0, b"x"))
        leader.answer(row(records=batch(1, b"x", b"y"), high_watermark=11))
        await leader.asked()
        assert quota.bytes == first, "it is as far behind as before"
        leader.answer(row(records=batch(3, b"x", b"y"), high_watermark=12))
        await leader.asked()
        assert quota.bytes == first + len(batch(3, b"x", b"y")) // 2


async def test_what_may_be_behind_is_asked_for_in_slices_from_the_first_on(me, leader):  # noqa: F811
    one = me.follow(0)
    me.throttle = ReplicationThrottle(me.config, lambda: throttled(adding=(me.config.node_id,)))
    me.throttle.quotas[Side.ADDED].rate = 1 << 30
    async with fetching(me, leader, one):
        asked = await leader.asked()
        ((partition,),) = [topic.partitions for topic in asked.topics]
        assert (partition.partition_max_bytes, asked.max_bytes) == (SLICE, ANSWER)


async def test_a_list_holds_before_the_rate_of_added_replicas(me, leader):  # noqa: F811
    one = me.follow(0)
    image = throttled(f"0:{me.config.node_id}", adding=(me.config.node_id,))
    me.throttle = ReplicationThrottle(me.config, lambda: image)
    me.throttle.quotas[Side.FOLLOWER].rate = 1 << 30
    me.throttle.quotas[Side.ADDED].rate = 1
    async with fetching(me, leader, one):
        await leader.asked()
        leader.answer(row(records=batch(0, b"x"), high_watermark=9))
        assert named(await leader.asked()) == [(0, 1)]


async def test_who_has_all_that_is_committed_is_never_held_back(me, leader):  # noqa: F811
    one = me.follow(0)
    me.throttle = ReplicationThrottle(me.config, lambda: throttled("*"))
    me.throttle.quotas[Side.FOLLOWER].rate = 1
    async with fetching(me, leader, one):
        await leader.asked()
        leader.answer(row(records=batch(0, b"x"), high_watermark=1))
        assert named(await leader.asked()) == [(0, 1)]
