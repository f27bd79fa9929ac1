from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st
from logfleet.metadata.image import Broker
from logfleet.metadata.kinds.brokers import ACTIVE, DRAINING, FENCED
from logfleet.metadata.kinds.topics import NO_LEADER, PartitionValue
from logfleet.replication.election import (
    first_state,
    is_unclean,
    next_state,
    preferred_state,
)
from logfleet.replication.partition_state import effective_min_isr
from logfleet.types import BrokerEpoch, LeaderEpoch, PartitionEpoch

from broker_image.tests.unit.replication.election_rig import (
    ALL,
    LED,
    MIN_ISR,
    NEW,
    after,
    broker,
    brokers,
    gone,
)

# --- rules 1 and 2


def test_nothing_changes_while_all_are_there() -> None:
    assert next_state(LED, ALL, min_isr=MIN_ISR) is None


def test_a_leader_stays_under_its_epoch_when_a_follower_dies() -> None:
    state = after(LED, broker(1), broker(2))
    assert (state.leader, state.leader_epoch) == (1, 4), "KAFKA-15021"
    assert state.isr == ((1, 10), (2, 20))
    assert state.elr == ()


def test_the_first_in_sync_replica_by_assignment_follows_a_leader_that_died() -> None:
    state = after(LED, broker(2), broker(3))
    assert (state.leader, state.leader_epoch) == (2, 5)
    assert (state.last_leader, state.last_directory) == (2, "d2")
    assert state.isr == ((2, 20), (3, 30))


def test_who_is_preferred_leads_of_those_who_may() -> None:
    both = (broker(2), broker(3))
    assert after(LED, *both, preferences={2: 1}).leader == 3
    assert after(LED, *both, preferences={3: -1}).leader == 2, (
        "1 is gone, and no roll asks for more"
    )
    hands_over = (broker(1, state=DRAINING), *both)
    assert after(LED, *hands_over, preferences={3: -1}).leader == 3
    assert after(LED, *hands_over, preferences={2: -1, 3: -2}).leader == 3
    assert after(LED, *hands_over, preferences={2: 1}).leader == 3
    assert after(LED, *both, preferences={3: 1, 2: 2}).leader == 3
    assert after(LED, *both, preferences={2: 1, 3: 1}).leader == 2, "the first by assignment"
    assert after(LED, broker(2), preferences={2: 1}).leader == 2
    assert next_state(LED, ALL, min_isr=MIN_ISR, preferences={1: 1}) is None, (
        "it keeps what it leads"
    )


def test_a_partition_that_was_given_up_begins_with_whoever_is_there_and_is_an_ordinary_one_then() -> (
    None
):
    fresh_disks = [
        broker(each, 90 + each, directories=("new",), unclean=True) for each in (1, 2, 3)
    ]
    nobody = gone().changed(elr=())
    assert (nobody.leader, nobody.isr, nobody.last_leader) == (NO_LEADER, (), 1)
    given_up = nobody.changed(given_up=True)
    assert next_state(given_up, brokers(*fresh_disks), min_isr=MIN_ISR, offline=[1, 2, 3]) is None
    led = after(given_up, *fresh_disks, offline=[1, 3])
    assert (led.leader, led.isr, led.recovering, led.given_up) == (2, ((2, 92),), True, False)


def test_of_a_partition_that_was_given_up_who_has_it_all_the_same_leads() -> None:
    given_up = gone().changed(given_up=True)
    back = [broker(2, 92, directories=("new",), unclean=True), broker(1, 91)]
    assert after(given_up, *back).leader == 1


def test_a_replica_that_is_not_in_sync_does_not_lead_while_another_is() -> None:
    state = after(LED.changed(isr=((1, 10), (3, 30))), broker(2), broker(3))
    assert (state.leader, state.isr) == (3, ((3, 30),))
    assert state.elr == (1,), "the ISR is too small now, so it holds all that is committed"


def test_a_leader_that_restarted_is_not_in_sync_by_its_id() -> None:
    state = after(LED, broker(1, 11), broker(2), broker(3))
    assert (state.leader, state.leader_epoch) == (2, 5)
    assert state.isr == ((2, 20), (3, 30))


@pytest.mark.parametrize("state", [NEW, FENCED, "a state of a later version"])
def test_who_is_fenced_neither_leads_nor_is_in_sync(state) -> None:
    elected = after(LED, broker(1, state=state), broker(2), broker(3))
    assert (elected.leader, elected.isr) == (2, ((2, 20), (3, 30)))


def test_a_replica_in_a_failed_directory_neither_leads_nor_is_in_sync() -> None:
    state = after(LED, *ALL.values(), offline=[1])
    assert (state.leader, state.leader_epoch, state.isr) == (2, 5, ((2, 20), (3, 30)))


# --- rule 3


def test_of_an_isr_that_died_whole_everybody_is_eligible() -> None:
    state = gone()
    assert (state.leader, state.leader_epoch) == (NO_LEADER, 5)
    assert (state.isr, state.elr) == ((), (1, 2, 3))
    assert (state.last_leader, state.last_directory) == (1, "d1")


def test_the_first_eligible_replica_that_returns_leads_alone_and_cleanly() -> None:
    state = after(gone(), broker(3, 31))
    assert (state.leader, state.leader_epoch, state.isr) == (3, 6, ((3, 31),))
    assert state.elr == (1, 2), "they hold what was committed still"
    assert not is_unclean(LED, state)


def test_a_replica_that_was_not_eligible_waits() -> None:
    dead = gone(LED.changed(isr=((1, 10), (2, 20))))
    assert dead.elr == (1, 2)
    assert next_state(dead, brokers(broker(3)), min_isr=MIN_ISR) is None


def test_the_leader_that_comes_back_without_its_disk_is_not_eligible() -> None:
    dead = gone()
    assert next_state(dead, brokers(broker(1, 11, directories=("new",))), min_isr=MIN_ISR) is None
    assert after(dead, broker(1, 11)).leader == 1


def test_a_broker_that_may_have_lost_records_is_not_eligible_before_it_is_let_in() -> None:
    unclean = broker(2, 21, NEW, unclean=True)
    assert after(gone(), unclean).elr == (1, 3)
    state = after(LED, broker(1), unclean)
    assert (state.isr, state.elr) == (((1, 10),), (3,)), "nor if it was in sync a moment ago"


@pytest.mark.parametrize(
    "previous, last, is_eligible",
    [(20, 20, True), (19, 20, False), (-1, 20, False), (21, 20, False), (None, 20, True), (19, None, True)],
)  # fmt: skip
def test_a_disk_that_the_last_life_of_its_broker_did_not_write_is_not_believed(
    *, previous: int | None, last: BrokerEpoch | None, is_eligible: bool
) -> None:
    """KIP-966. Brokers of older versions, and those that were never active, are."""
    back = broker(2, 22, NEW, previous_epoch=previous, last_epoch=last)
    state = after(LED, broker(1), back)
    assert state.isr == ((1, 10),)
    assert (
        after(gone(), broker(2, 22, previous_epoch=previous, last_epoch=BrokerEpoch(22))).leader
        == 2
    )
    elr = (next_state(gone(), brokers(back), min_isr=MIN_ISR) or gone()).elr
    assert elr == ((1, 2, 3) if is_eligible else (1, 3))


def test_what_an_unclean_broker_earned_since_it_was_let_in_is_its_own() -> None:
    state = after(gone(), broker(2, 21, unclean=True))
    assert (state.leader, state.isr) == (2, ((2, 21),))
    fenced = after(state, broker(2, 21, FENCED, unclean=True))
    assert 2 in fenced.elr, "what nobody reaches for a while has lost nothing"


# --- rules 4 and 5


def test_the_last_leader_leads_uncleanly_when_nobody_is_eligible() -> None:
    alone = PartitionValue(
        (1,),
        ((1, BrokerEpoch(10)),),
        1,
        LeaderEpoch(0),
        PartitionEpoch(0),
        1,
        last_leader=1,
        last_directory="d1",
    )
    lost = after(alone, broker(1, 11, NEW, unclean=True))
    assert (lost.leader, lost.isr, lost.elr) == (NO_LEADER, (), ())
    state = after(lost, broker(1, 11, unclean=True))
    assert (state.leader, state.leader_epoch, state.isr) == (1, 2, ((1, 11),))
    assert state.recovering
    assert is_unclean(lost, state)


def test_the_last_leader_does_not_lead_from_another_disk() -> None:
    lost = gone().changed(elr=())
    there = brokers(broker(1, 11, directories=("new",)))
    assert next_state(lost, there, min_isr=MIN_ISR) is None


def test_a_last_leader_with_several_disks_says_itself_what_is_missing() -> None:
    two = LED.changed(last_directory="", isr=(), elr=(), leader=NO_LEADER)
    there = broker(1, 11, directories=("d1", "d4"))
    assert after(two, there).leader == 1
    assert next_state(two, brokers(there), min_isr=MIN_ISR, offline=[1]) is None


@pytest.mark.parametrize("leader", [1, NO_LEADER])
def test_a_state_of_a_version_that_kept_no_last_leader_has_one_all_the_same(leader) -> None:
    old = PartitionValue(
        (1,), ((1, BrokerEpoch(10)),), leader, LeaderEpoch(3), PartitionEpoch(3), 1
    )
    lost = after(old, broker(1, 11, NEW, unclean=True))
    assert lost.last_leader == 1
    assert after(lost, broker(1, 11, unclean=True)).leader == 1


def test_any_active_replica_leads_where_that_is_allowed_and_nobody_else_can() -> None:
    dead = gone(LED.changed(isr=((1, 10),)))
    assert next_state(dead, brokers(broker(3)), min_isr=MIN_ISR) is None
    state = after(dead, broker(2, state=DRAINING), broker(3), unclean=True)
    assert (state.leader, state.isr, state.elr) == (3, ((3, 30),), ())
    assert state.recovering
    assert is_unclean(dead, state)


def test_a_clean_leader_is_preferred_where_an_unclean_one_is_allowed() -> None:
    state = after(gone(LED.changed(isr=((3, 30),))), broker(1), broker(3), unclean=True)
    assert (state.leader, state.recovering) == (3, False)


def test_the_leader_after_an_unclean_one_came_cleanly() -> None:
    unclean = LED.changed(leader=1, recovering=True)
    assert not is_unclean(unclean, after(unclean, broker(1), broker(2)))
    assert not after(unclean, broker(2), broker(3)).recovering
    assert not is_unclean(unclean, after(unclean)), "nobody is elected"


# --- draining


def test_a_draining_leader_hands_over_and_leaves_the_isr() -> None:
    state = after(LED, broker(1, state=DRAINING), broker(2), broker(3))
    assert (state.leader, state.leader_epoch, state.isr) == (2, 5, ((2, 20), (3, 30)))


def test_a_draining_broker_stays_in_sync_where_the_rest_would_be_too_few() -> None:
    state = after(LED, broker(1, state=DRAINING), broker(2))
    assert (state.leader, state.isr) == (2, ((1, 10), (2, 20)))


def test_a_draining_broker_leads_on_where_nobody_else_is_in_sync() -> None:
    alone = LED.changed(isr=((1, 10),))
    there = brokers(broker(1, state=DRAINING), broker(2))
    assert next_state(alone, there, min_isr=MIN_ISR) is None
    both = after(LED, broker(2, state=DRAINING), broker(3, state=DRAINING))
    assert (both.leader, both.isr) == (2, ((2, 20), (3, 30))), "rather than nobody"


# --- min.insync.replicas


def test_a_changed_min_insync_replicas_is_written_and_elects_nobody() -> None:
    state = after(LED, *ALL.values(), min_isr=3)
    assert (state.min_isr, state.leader, state.leader_epoch) == (3, 1, 4)


def test_nobody_is_eligible_any_more_once_min_insync_replicas_is_as_small_as_the_isr() -> None:
    """From then on the high watermark moves without them."""
    small = LED.changed(isr=((1, 10),), elr=(2,))
    assert after(small, broker(1), min_isr=1).elr == ()


def test_while_nobody_leads_min_insync_replicas_takes_no_chance_away() -> None:
    assert after(gone(), min_isr=1).elr == (1, 2, 3)


# --- first and preferred


def test_a_new_partition_is_led_by_the_first_active_replica() -> None:
    there = brokers(broker(2), broker(3, state=DRAINING), broker(4))
    state = first_state((1, 2, 3, 4), there, 2)
    assert state == PartitionValue(
        (1, 2, 3, 4),
        ((2, BrokerEpoch(20)), (4, BrokerEpoch(40))),
        2,
        LeaderEpoch(0),
        PartitionEpoch(0),
        2,
        last_leader=2,
        last_directory="d2",
    )
    assert first_state((1, 3), there, 2) is None


def test_the_first_replica_takes_over_once_it_is_in_sync() -> None:
    led_by_2 = LED.changed(leader=2)
    state = preferred_state(led_by_2, ALL)
    assert state is not None
    assert (state.leader, state.leader_epoch, state.isr) == (1, 5, LED.isr)


@pytest.mark.parametrize(
    "first",
    [broker(1, 11), broker(1, state=DRAINING), broker(1, state=FENCED)],
    ids=["registered again", "draining", "fenced"],
)
def test_the_first_replica_does_not_take_over_while_it_is(first) -> None:
    led_by_2 = LED.changed(leader=2)
    assert preferred_state(led_by_2, {**ALL, 1: first}) is None


def test_the_first_replica_does_not_take_over_what_it_leads_or_cannot_serve() -> None:
    assert preferred_state(LED, ALL) is None
    assert preferred_state(LED.changed(leader=2), ALL, offline=[1]) is None
    assert preferred_state(LED.changed(leader=2, isr=((2, 20),)), ALL) is None


# --- whatever happens


@st.composite
def histories(
    draw,
) -> tuple[PartitionValue, list[tuple[dict[int, Broker], bool, int, list[int], list[int] | None]]]:
    """A partition as it was created, and what the controller finds afterwards, look by look."""
    ids = range(1, draw(st.integers(1, 4)) + 1)
    step = st.tuples(
        st.fixed_dictionaries(
            {},
            optional={
                each: st.builds(
                    broker,
                    st.just(each),
                    st.sampled_from([10 * each, 10 * each + 1]),
                    st.sampled_from([ACTIVE, ACTIVE, DRAINING, FENCED, NEW]),
                    unclean=st.booleans(),
                    directories=st.sampled_from([(f"d{each}",), ("new",), ("a", "b")]),
                )
                for each in ids
            },
        ),
        st.booleans(),
        st.integers(1, 4),
        st.lists(st.sampled_from(ids), max_size=1),
        st.none() | st.lists(st.integers(-1, 3), min_size=4, max_size=4),
    )
    state = first_state(list(ids), {each: broker(each) for each in ids}, draw(st.integers(1, 4)))
    assert state is not None
    return state, draw(st.lists(step, max_size=8))


def _ids(isr: Sequence[tuple[int, int]]) -> set[int]:
    return {broker_id for broker_id, _ in isr}


@given(histories())
def test_whatever_brokers_do_only_who_is_in_sync_or_eligible_leads_cleanly(history) -> None:
    state, looks = history
    for there, unclean, min_isr, offline, logs in looks:
        log_ends = None
        if logs is not None:
            log_ends = {(each.id, each.epoch): (logs[each.id - 1],) * 2 for each in there.values()}
        options = {"unclean": unclean, "min_isr": min_isr, "offline": offline, "log_ends": log_ends}
        value = next_state(state, there, **options)
        if value is None:
            continue
        assert next_state(value, there, **options) is None, "it ends"
        assert value.partition_epoch == state.partition_epoch + 1
        assert value.leader_epoch - state.leader_epoch in {0, 1}
        if value.leader == NO_LEADER:
            assert value.isr == ()
        elif value.leader_epoch == state.leader_epoch:
            assert value.leader == state.leader
            assert dict(value.isr)[value.leader] == dict(state.isr)[value.leader]
        else:
            assert value.recovering or value.leader in {*_ids(state.isr), *state.elr}
        for broker_id, epoch in value.isr:
            assert there[broker_id].epoch == epoch, "only present registrations are in sync"
            assert not there[broker_id].is_fenced
            assert broker_id not in offline
        assert _ids(value.isr) <= {*_ids(state.isr), value.leader}, (
            "leaders add, not the controller"
        )
        assert set(value.elr) <= {*_ids(state.isr), *state.elr} - _ids(value.isr)
        assert not value.elr or len(value.isr) < effective_min_isr(value)
        if is_unclean(state, value):
            assert logs is not None
            rivals = [
                each
                for each in value.replicas
                if each in there and there[each].is_active and each not in offline
            ]
            assert logs[value.leader - 1] == max(logs[each - 1] for each in rivals)
        lost = {each for each in there if there[each].is_new and there[each].value.unclean}
        assert not lost & set(value.elr)
        state = value
