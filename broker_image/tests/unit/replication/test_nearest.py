import pytest
from logfleet.metadata.kinds.topics import PartitionValue
from logfleet.replication.ends import ReplicaEnds
from logfleet.replication.leader import LeaderReplicas
from logfleet.replication.nearest import nearest_replica
from logfleet.replication.partition_state import Member
from logfleet.types import BrokerEpoch, LeaderEpoch, PartitionEpoch

RACKS = {1: "a", 2: "b", 3: "b", 4: "b"}


ISR = tuple((each, BrokerEpoch(10 * each)) for each in (1, 2, 3))


def leader(isr: tuple[Member, ...] = ISR) -> LeaderReplicas:
    replicas = LeaderReplicas(
        1,
        PartitionValue((1, 2, 3, 4), isr, 1, LeaderEpoch(4), PartitionEpoch(9), 1),
        7,
        ends=ReplicaEnds(log_end_offset=100),
        lag_max_ms=30_000,
        now_ms=0,
    )
    replicas.fetched(2, BrokerEpoch(20), 90, 10, now_ms=1)
    replicas.fetched(3, BrokerEpoch(30), 80, 20, now_ms=1)
    replicas.fetched(4, BrokerEpoch(40), 100, 0, now_ms=1)
    return replicas


@pytest.mark.parametrize(
    "offset, rack, nearest",
    [
        (50, "b", 2),  # the one that has more
        (15, "b", 2),
        (85, "b", 2),
        (9, "b", None),  # none that is in sync has it any more
        (95, "b", None),  # nor yet
        (50, "a", None),  # the leader itself
        (50, "c", None),
        (50, "", None),
    ],
)
def test_a_consumer_reads_in_its_rack_from_who_is_in_sync_and_has_the_offset(
    offset, rack, nearest
) -> None:
    assert nearest_replica(leader(), offset, rack, RACKS.get) == nearest


def test_of_two_that_are_as_far_the_one_that_was_so_later_is_read() -> None:
    replicas = leader()
    replicas.fetched(2, BrokerEpoch(20), 100, 10, now_ms=5)
    replicas.fetched(3, BrokerEpoch(30), 100, 10, now_ms=6)
    assert nearest_replica(replicas, 50, "b", RACKS.get) == 3


def test_who_cannot_be_reached_or_is_another_registration_is_not_read() -> None:
    assert nearest_replica(leader(), 50, "b", {3: "b"}.get) == 3
    replicas = leader()
    replicas.fetched(2, BrokerEpoch(21), 90, 10, now_ms=1)
    assert nearest_replica(replicas, 50, "b", RACKS.get) == 3


def test_who_has_not_fetched_yet_is_not_read() -> None:
    replicas = LeaderReplicas(
        1,
        PartitionValue(
            (1, 2),
            ((1, BrokerEpoch(10)), (2, BrokerEpoch(20))),
            1,
            LeaderEpoch(4),
            PartitionEpoch(9),
            1,
        ),
        7,
        ends=ReplicaEnds(),
        lag_max_ms=30_000,
        now_ms=0,
    )
    assert nearest_replica(replicas, 0, "b", RACKS.get) is None
