from logfleet.metadata.kinds.topics import NO_LEADER, PartitionValue
from logfleet.replication.partition_state import effective_min_isr, with_isr
from logfleet.types import BrokerEpoch, LeaderEpoch, PartitionEpoch

STATE = PartitionValue(
    (1, 2, 3),
    ((1, BrokerEpoch(10)), (2, BrokerEpoch(20)), (3, BrokerEpoch(30))),
    1,
    LeaderEpoch(4),
    PartitionEpoch(9),
    2,
)


def test_a_shrunk_isr_keeps_leader_and_leader_epoch() -> None:
    state = with_isr(STATE, [(2, BrokerEpoch(20)), (1, BrokerEpoch(10))])
    assert state == PartitionValue(
        (1, 2, 3),
        ((1, BrokerEpoch(10)), (2, BrokerEpoch(20))),
        1,
        LeaderEpoch(4),
        PartitionEpoch(10),
        2,
    )


def test_who_leaves_an_isr_that_becomes_too_small_stays_eligible_until_it_is_large_enough() -> None:
    small = with_isr(
        with_isr(STATE, [(1, BrokerEpoch(10)), (2, BrokerEpoch(20))]), [(1, BrokerEpoch(10))]
    )
    assert small.elr == (2,)
    assert with_isr(small, [(1, BrokerEpoch(10)), (3, BrokerEpoch(31))]).elr == ()


def test_a_broker_that_lost_records_is_not_eligible() -> None:
    small = with_isr(STATE, [(1, BrokerEpoch(10))], unclean={2})
    assert small.elr == (3,)
    assert with_isr(small, [(1, BrokerEpoch(10))], unclean={3}).elr == ()


def test_a_member_with_another_broker_epoch_is_in_sync_and_not_eligible_twice() -> None:
    back = with_isr(with_isr(STATE, [(1, BrokerEpoch(10))]), [(1, BrokerEpoch(10))])
    assert back.elr == (2, 3)
    assert with_isr(back, [(1, BrokerEpoch(10)), (2, BrokerEpoch(21))]).isr == ((1, 10), (2, 21))


def test_a_leader_that_is_out_of_sync_leads_no_longer() -> None:
    state = with_isr(STATE, [(2, BrokerEpoch(20)), (3, BrokerEpoch(30))])
    assert (state.leader, state.leader_epoch) == (NO_LEADER, 5)


def test_the_whole_isr_may_go_and_stays_eligible() -> None:
    assert with_isr(STATE, []).elr == (1, 2, 3)


def test_replicas_that_are_being_added_do_not_raise_what_the_isr_needs() -> None:
    raised = PartitionValue(
        (1, 2, 3), ((1, BrokerEpoch(10)),), 1, LeaderEpoch(4), PartitionEpoch(9), 2, adding=(2, 3)
    )
    assert effective_min_isr(raised) == 1
    assert effective_min_isr(STATE) == 2
    assert (
        effective_min_isr(PartitionValue((1,), (), NO_LEADER, LeaderEpoch(0), PartitionEpoch(0), 5))
        == 1
    )
