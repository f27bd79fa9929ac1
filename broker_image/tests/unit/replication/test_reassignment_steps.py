"""A reassignment from its begin to its end, cancelled, or with another target (I21): by the rules alone."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from logfleet.metadata.image import Broker
from logfleet.metadata.kinds.brokers import ACTIVE, BrokerValue
from logfleet.metadata.kinds.topics import NO_LEADER, PartitionValue
from logfleet.replication.election import next_state, reassigned_state
from logfleet.replication.partition_state import effective_min_isr, with_isr
from logfleet.replication.reassignment_steps import completed, is_reassigning, origin, target
from logfleet.types import BrokerEpoch, LeaderEpoch, PartitionEpoch

BROKERS = {
    each: Broker(
        each, BrokerEpoch(10 * each), BrokerValue("i", (), directories=(f"d{each}",)), ACTIVE
    )
    for each in range(1, 7)
}
LED = PartitionValue(
    (1, 2, 3),
    ((1, BrokerEpoch(10)), (2, BrokerEpoch(20)), (3, BrokerEpoch(30))),
    1,
    LeaderEpoch(4),
    PartitionEpoch(9),
    2,
    last_leader=1,
)


def moved(state: PartitionValue, *wanted: int) -> PartitionValue:
    return reassigned_state(state, wanted, BROKERS)


def joined(state: PartitionValue, *added: int) -> PartitionValue:
    """What the leader writes once these have caught up, and what the controller makes of it."""
    isr = [*state.isr, *((each, BrokerEpoch(10 * each)) for each in added)]
    return settled(with_isr(state, isr))


def settled(state: PartitionValue) -> PartitionValue:
    return next_state(state, BROKERS, min_isr=state.min_isr) or state


def ids(state: PartitionValue) -> list[int]:
    return [each for each, _ in state.isr]


def test_new_replicas_come_first_and_the_old_ones_stay_until_all_are_in_sync() -> None:
    state = moved(LED, 4, 5, 3)
    assert (state.replicas, state.adding, state.removing) == ((4, 5, 3, 1, 2), (4, 5), (1, 2))
    assert (state.leader, state.leader_epoch, ids(state)) == (1, 4, [3, 1, 2])
    assert (origin(state), target(state)) == ((3, 1, 2), (4, 5, 3))
    half = joined(state, 4)
    assert (half.replicas, ids(half)) == (state.replicas, [4, 3, 1, 2])
    done = joined(half, 5)
    assert (done.replicas, ids(done)) == ((4, 5, 3), [4, 5, 3])
    assert not is_reassigning(done)
    assert (done.leader, done.leader_epoch) == (4, 5), "the old leader has gone"


def test_a_leader_that_stays_gets_a_new_epoch_when_others_go() -> None:
    done = joined(moved(LED, 1, 2, 4), 4)
    assert (done.leader, done.leader_epoch) == (1, 5), "who has gone cannot fetch in it"


def test_another_order_is_there_at_once() -> None:
    state = moved(LED, 3, 1, 2)
    assert (state.replicas, state.leader, state.leader_epoch) == ((3, 1, 2), 1, 4)
    assert not is_reassigning(state)


@pytest.mark.parametrize("wanted", [(1,), (3, 2)])
def test_fewer_replicas_are_there_at_once_if_they_are_in_sync(wanted) -> None:
    state = moved(LED, *wanted)
    assert (state.replicas, tuple(ids(state))) == (wanted, wanted)


def test_fewer_replicas_wait_for_those_that_stay() -> None:
    state = moved(with_isr(LED, [(1, BrokerEpoch(10)), (2, BrokerEpoch(20))]), 3, 2)
    assert (state.replicas, state.removing, ids(state)) == ((3, 2, 1), (1,), [2, 1])
    assert target(joined(state, 3)) == (3, 2)


def test_more_replicas_ask_for_more_in_sync_once_they_are_there() -> None:
    one = PartitionValue((1,), ((1, BrokerEpoch(10)),), 1, LeaderEpoch(0), PartitionEpoch(0), 2)
    state = moved(one, 1, 2, 3)
    assert effective_min_isr(state) == 1
    assert effective_min_isr(joined(state, 2)) == 1
    assert effective_min_isr(joined(state, 2, 3)) == 2


def test_who_joined_and_left_again_is_waited_for() -> None:
    half = joined(moved(LED, 4, 5, 3), 4)
    fell = settled(with_isr(half, [each for each in half.isr if each[0] != 4]))
    assert fell.adding == (4, 5)
    assert is_reassigning(joined(fell, 5))


def test_a_cancelled_one_is_where_it_was() -> None:
    half = joined(moved(LED, 4, 5, 3), 4)
    state = moved(half, *origin(half))
    assert (set(state.replicas), set(ids(state))) == ({1, 2, 3}, {1, 2, 3})
    assert (state.leader, state.leader_epoch) == (1, 5)
    assert not is_reassigning(state)


def test_another_target_goes_out_from_the_origin() -> None:
    half = joined(moved(LED, 4, 5, 3), 4)
    state = moved(half, 4, 6, 3)
    assert (state.replicas, state.adding, state.removing) == ((4, 6, 3, 1, 2), (4, 6), (1, 2))
    assert ids(state) == [4, 3, 1, 2], "5 had not joined; 4 had and is still wanted"


def test_who_leads_and_is_wanted_no_more_hands_over() -> None:
    state = moved(LED, 4, 5, 3)
    led_by_4 = joined(state, 4).changed(leader=4, leader_epoch=5)
    back = moved(led_by_4, 1, 2, 3)
    assert (back.leader, back.leader_epoch, ids(back)) == (1, 6, [1, 2, 3])


def test_without_a_leader_nothing_is_lost_of_who_was_eligible() -> None:
    nobody = next_state(LED, {}, min_isr=2)
    assert nobody is not None
    assert nobody.leader == NO_LEADER
    state = reassigned_state(nobody, (4, 5, 6), {})
    assert state.elr == (1, 2, 3)
    assert completed(state) == state


Ids = st.lists(st.integers(1, 6), unique=True, min_size=1, max_size=4)


@given(Ids, st.lists(st.tuples(st.sampled_from(["join", "fall", "target", "cancel"]), Ids)))
def test_whatever_happens_who_goes_goes_last(
    begin: list[int], acts: list[tuple[str, list[int]]]
) -> None:
    """Every state on the way: one in sync at least, old ones stay until all new ones are in sync, the origin stays the origin."""
    isr = tuple((each, BrokerEpoch(10 * each)) for each in begin)
    state = PartitionValue(
        tuple(begin), isr, begin[0], LeaderEpoch(0), PartitionEpoch(0), 2, last_leader=begin[0]
    )
    for act, wanted in acts:
        before = state
        if act == "join":
            state = joined(state, *(set(wanted) & set(state.replicas) - set(ids(state))))
        elif act == "fall":
            kept = [each for each in state.isr if each[0] == state.leader or each[0] not in wanted]
            state = settled(with_isr(state, kept))
        else:
            state = moved(state, *(wanted if act == "target" else origin(state)))
        assert settled(state) == state
        gone = set(before.replicas) - set(state.replicas)
        if act in {"join", "fall"} and gone:
            assert set(state.replicas) == set(target(before)) == set(ids(state))
        elif gone:
            assert gone <= set(before.adding) or set(ids(state)) == set(state.replicas)
        if is_reassigning(before) and is_reassigning(state):
            assert set(origin(state)) == set(origin(before))
        if set(ids(before)) - gone:
            assert state.leader in ids(state)
        assert state.leader_epoch - before.leader_epoch == (
            bool(gone) or state.leader != before.leader
        )
