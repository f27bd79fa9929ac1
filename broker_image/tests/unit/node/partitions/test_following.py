from typing import Any

import pytest
from logfleet.metadata.image import ClusterImage, Partition, Topic
from logfleet.metadata.kinds.topics import NO_LEADER
from logfleet.node.partitions.following import Following
from logfleet.node.partitions.partition_table import PartitionTable
from logfleet.node.partitions.replica import FollowerPartition, Replica
from logfleet.types import BrokerEpoch, LeaderEpoch, PartitionEpoch

pytestmark = pytest.mark.asyncio

ID, NODE, REGISTERED = bytes(range(16)), 1, 5


def topic(*leaders: tuple[int, int], replicas: tuple[int, ...] = (1, 2, 3)) -> Topic:
    """leaders: broker and leader epoch of each of its partitions."""
    states = [
        Partition(
            replicas,
            ((leader, BrokerEpoch(9)),),
            leader,
            LeaderEpoch(epoch),
            PartitionEpoch(0),
            1,
            revision=1,
        )
        for leader, epoch in leaders
    ]
    return Topic(ID, "topic", partitions=tuple(states))


class Bench:
    """told: what was begun and ended, in order, with leader and leader epoch."""

    def __init__(self, rig: Any) -> None:
        self.rig = rig
        self.table = PartitionTable(ClusterImage)
        self.following = Following(NODE, self.table)
        self.following.broker_epoch = BrokerEpoch(REGISTERED)
        self.told: list[tuple[str, int, int]] = []
        self.following.on_followed.append(lambda each: self.note("followed", each))
        self.following.on_unfollowed.append(lambda each: self.note("unfollowed", each))

    def note(self, what: str, followed: FollowerPartition) -> None:
        self.told.append((what, followed.leader, followed.leader_epoch))

    async def follow(self, wanted: Topic) -> list[int]:
        """What the image wants is begun; what that is."""
        starting = await self.following.follow(wanted)
        for index in starting:
            if self.table.replica(ID, index) is None:
                self.table.add(Replica("topic", ID, index, self.rig.open()))
            replica = self.table.replica(ID, index)
            assert replica is not None
            self.following.begin(wanted.partitions[index], replica)
        return starting


@pytest.fixture
def bench(rig: Any) -> Bench:
    return Bench(rig)


async def test_a_partition_is_followed_while_another_leads_it(bench: Bench) -> None:
    assert await bench.follow(topic((2, 0), (3, 4))) == [0, 1]
    assert await bench.follow(topic((2, 0), (3, 4))) == []
    assert bench.told == [("followed", 2, 0), ("followed", 3, 4)]


@pytest.mark.parametrize("leader", [(3, 1), (2, 1)])
async def test_another_leader_or_leader_epoch_starts_a_new_role(
    bench: Bench, leader: tuple[int, int]
) -> None:
    await bench.follow(topic((2, 0)))
    first = bench.table.replica(ID, 0)
    assert isinstance(first, FollowerPartition)
    assert await bench.follow(topic(leader)) == [0]
    assert not first.is_following
    assert bench.told[1:] == [("unfollowed", 2, 0), ("followed", *leader)]


@pytest.mark.parametrize("leader", [NO_LEADER, NODE])
async def test_nobody_is_followed_where_no_other_broker_leads(bench: Bench, leader: int) -> None:
    """The log is hosted none the less: the leader of an unlucky partition may come back."""
    await bench.follow(topic((2, 0)))
    await bench.follow(topic((leader, 1)))
    assert bench.told[1:] == [("unfollowed", 2, 0)]
    assert type(bench.table.replica(ID, 0)) is Replica


async def test_a_replica_without_a_leader_is_hosted(bench: Bench) -> None:
    assert await bench.follow(topic((NO_LEADER, 0))) == [0]
    assert await bench.follow(topic((NO_LEADER, 0))) == []
    assert (len(bench.table), bench.told) == (1, [])


async def test_what_has_no_replica_here_is_neither_followed_nor_hosted(bench: Bench) -> None:
    assert await bench.follow(topic((2, 0), replicas=(2, 3))) == []
    await bench.follow(topic((2, 0)))
    assert await bench.follow(topic((2, 0), replicas=(2, 3))) == []
    assert bench.told[1:] == [("unfollowed", 2, 0)]


async def test_nothing_is_followed_without_a_registration(bench: Bench) -> None:
    """The leader could not distinguish two registrations of this broker (KIP-903)."""
    await bench.follow(topic((2, 0)))
    bench.following.resign()
    assert bench.told[1:] == [("unfollowed", 2, 0)]
    assert await bench.follow(topic((2, 0))) == []
    bench.following.broker_epoch = BrokerEpoch(REGISTERED + 1)
    assert await bench.follow(topic((2, 0))) == [0]


async def test_what_is_offline_is_not_followed(bench: Bench) -> None:
    bench.table.offline.add([(ID, 0)])
    assert await bench.follow(topic((2, 0))) == []
