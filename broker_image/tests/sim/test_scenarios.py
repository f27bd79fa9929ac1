"""Interleavings that lost records on paper, or in published bugs: each holds with the rule, and goes wrong without it.

In each of them broker L leads a partition, F follows, and C controls and has no replica of it.
"""

from collections.abc import Callable

import pytest
from logfleet.metadata.kinds.topics import NO_LEADER

from broker_image.tests.sim.kernel import SimulationError
from broker_image.tests.sim.mutant import broken
from broker_image.tests.sim.mutants import MUTANTS
from broker_image.tests.sim.scenario import Scenario
from broker_image.tests.sim.scenarios_of_records import (
    a_follower_keeps_what_is_above_its_high_watermark,
    a_follower_that_was_away_begins_where_its_leaders_log_starts,
    a_former_leader_that_ends_where_its_leaders_log_starts_begins_again_empty,
    a_last_leader_whose_records_were_all_deleted_leads_again,
    a_record_that_overtakes_another_is_refused,
    a_repeated_batch_is_recognised_by_the_next_leader,
    a_replica_that_was_gone_begins_with_nothing,
    a_stale_answer_of_the_old_leader_changes_nothing,
    a_topic_that_is_made_again_has_no_record_of_the_old_one,
    five_records_of_a_producer_are_recognised_when_they_come_again,
    records_are_deleted_once_no_live_replica_has_them,
)
from broker_image.tests.sim.scenarios_of_registrations import (
    a_broker_that_is_fenced_registers_again,
    a_registration_whose_answer_was_lost_is_found,
    every_registration_says_that_its_disk_may_lack_records,
)
from broker_image.tests.sim.scenarios_without_store import (
    a_change_in_flight_counts_for_a_suspended_partition,
    a_fleet_goes_on_while_the_store_is_away,
    a_leader_that_alone_is_cut_off_from_the_store_stops_once_its_follower_leads,
    a_leader_that_was_replaced_goes_on_by_no_later_silence_of_its_peers,
    leases_outlive_the_store,
)
from broker_image.tests.sim.store import NEVER
from broker_image.tests.sim.transactions.scenarios import (
    a_late_record_finds_its_transaction_over,
    a_marker_drops_the_guards_of_its_transaction,
    a_marker_that_comes_late_ends_no_later_transaction,
    a_new_coordinator_acts_on_nothing_that_may_be_lost,
    a_record_of_an_old_epoch_is_refused_by_the_log_alone,
)


def an_election_compares_the_registration() -> None:
    """KIP-903: F is elected by an image in which it still had its log; meanwhile it came back without the end of it."""
    s = Scenario()
    s.acked(5)
    s.lose_answers(
        s.controller, None, 900
    )  # L is fenced; the election of F is held by a member of the store
    s.kill(s.leader)
    s.end_lease(s.leader)
    s.after(50)
    s.power_loss(s.follower)
    s.end_lease(s.follower)
    s.follower.start()
    s.after(5_000)
    assert s.partition.leader == NO_LEADER
    s.rests()
    assert s.end_offset(s.leader) == 5


def a_read_never_settles_an_unknown_transaction() -> None:
    """L adds F, hears nothing, and F stops fetching: the proposal is committed after L has looked in vain."""
    s = Scenario(lag_max_ms=4_000)
    s.drop_follower()
    s.lose_answers(s.leader, 2_500)
    s.mend(s.follower, s.leader)
    s.until(s.is_pending, "L writes the ISR")
    s.cut(s.follower, s.leader)
    s.produce(3, is_acks_all=False)
    s.after(4_000)
    s.rests()


def a_change_without_an_answer_is_in_flight() -> None:
    """The same, for a leader that would take no answer for a refusal."""
    a_read_never_settles_an_unknown_transaction()


def a_fenced_leader_writes_nothing() -> None:
    """KIP-841: L is fenced and does not know it; it would take F out, and be the only one in sync."""
    s = Scenario(lag_max_ms=1_000)
    s.acked(3)
    s.hold_watch(s.controller)
    s.hold_watch(s.leader)
    s.fence(s.leader)
    s.cut(s.follower, s.leader)
    s.produce(1, is_acks_all=False)
    s.after(2_500)
    assert s.isr == [s.leader.id, s.follower.id]
    s.rests()


def a_replica_whose_registration_has_ended_does_not_join() -> None:
    """KIP-841, KAFKA-14140: L would add F by an old image, after F was taken out of everything."""
    s = Scenario()
    s.drop_follower()
    s.hold_watch(s.leader)
    s.hold_watch(s.follower)
    s.end_lease(s.follower)
    s.mend(s.follower, s.leader)
    s.after(400)
    assert s.isr == [s.leader.id]
    s.rests()


def a_change_in_flight_counts_for_the_high_watermark() -> None:
    """KIP-497, AsyncIsr.tla: F is in the ISR, L has not heard that its change was made, and F lags."""
    s = Scenario(lag_max_ms=4_000)
    s.drop_follower()
    s.lose_answers(s.leader, 1, 1, 1)
    s.hold_watch(s.leader)
    s.mend(s.follower, s.leader)
    s.until(lambda: s.isr == [s.leader.id, s.follower.id], "the change is made")
    s.cut(s.follower, s.leader)
    s.produce(3, is_acks_all=False)
    s.after(300)
    assert s.high_watermark(s.leader) == 1
    s.rests()


def the_high_watermark_stands_still_below_min_isr() -> None:
    """KIP-966: F is eligible after it left the ISR, so nothing may be committed without it."""
    s = Scenario(min_isr=2)
    s.acked(2)
    s.drop_follower()
    assert s.partition.elr == (s.follower.id,)
    s.produce(2, is_acks_all=False)
    s.after(1_000)
    assert (s.high_watermark(s.leader), s.end_offset(s.leader)) == (2, 5)
    s.kill(s.leader)
    s.until(lambda: s.partition.leader == s.follower.id, "the eligible leader is elected")
    s.rests()


def a_broker_is_let_in_after_it_was_taken_out_everywhere() -> None:
    """KIP-903, KIP-966: F loses its log's end and is back at once, while nobody controls; L dies."""
    s = Scenario(min_isr=2)
    s.acked(5)
    s.cut_store(s.controller, "in")
    s.power_loss(s.follower)
    s.end_lease(s.follower)
    s.follower.start()
    s.until(lambda: s.follower.id in s.fleet.store.image.brokers, "F has registered again")
    s.kill(s.leader)
    s.end_lease(s.leader)
    s.mend_store(s.controller, "in")
    s.after(5_000)
    assert s.partition.leader == NO_LEADER
    s.rests()
    assert s.end_offset(s.leader) == 5


def a_broker_that_stopped_uncleanly_is_not_eligible() -> None:
    """KIP-966: F is an eligible leader, loses power and comes back."""
    s = Scenario(min_isr=2)
    s.acked(5)
    s.power_loss(s.follower)
    s.until(lambda: s.partition.elr == (s.follower.id,), "F is an eligible leader")
    s.follower.start()
    s.cut(s.follower, s.leader)
    s.until(lambda: s.partition.elr == (), "F is eligible no more")
    s.kill(s.leader)
    s.after(5_000)
    assert s.partition.leader == NO_LEADER
    s.rests()
    assert s.end_offset(s.leader) == 5


def an_older_copy_of_a_disk_is_not_eligible() -> None:
    """KIP-966: F's disk is copied after a stop in order; the copy takes its place when F alone is in sync."""
    s = Scenario(min_isr=2)
    s.acked(3)
    s.faults.old_disk(s.follower, 9_001)
    s.until(lambda: s.follower.host.life > 1 and s.follower.id in s.isr, "F is back in the ISR")
    s.acked(2)
    s.kill(s.leader)
    s.until(lambda: s.isr == [s.follower.id], "F is the only one in sync")
    s.after(9_000)
    assert s.end_offset(s.follower) == 3
    assert (s.partition.leader, s.partition.elr) == (NO_LEADER, (s.leader.id,))
    s.rests()
    assert s.end_offset(s.leader) == 5


def a_controller_that_was_replaced_writes_nothing() -> None:
    """C's election is held back; another controller elects meanwhile, and F dies again."""
    s = Scenario(factor=3, min_isr=2)
    s.acked(3)
    s.cut_store(s.controller, "out")
    s.kill(s.leader)
    s.end_lease(s.leader)
    s.until(lambda: s.fleet.store.image.controller is None, "C's key has ended")
    s.until(lambda: s.partition.leader not in (NO_LEADER, s.leader.id), "another one has elected")
    state = s.partition
    s.mend_store(s.controller, "out")
    s.after(2_000)
    assert s.partition.leader_epoch == state.leader_epoch
    s.rests()


def the_last_leader_leads_again_only_with_its_disk() -> None:
    """KIP-858: the only replica's broker comes back with an empty disk."""
    s = Scenario()
    s.drop_follower()
    s.acked(3)
    s.kill(s.follower)
    s.faults.new_disk(s.leader, 100)
    s.after(20_000)
    assert s.partition.leader == NO_LEADER


def an_eligible_leader_is_elected_before_the_last_one() -> None:
    """KIP-966: both are gone, F cleanly; it holds all that is committed, and L lost it."""
    s = Scenario(min_isr=2)
    s.acked(5)
    s.follower.leave(600_000)
    s.until(lambda: not s.follower.host.is_up, "F has stopped cleanly")
    s.power_loss(s.leader)
    s.until(lambda: not s.partition.has_leader, "nobody leads")
    s.leader.start()
    s.after(5_000)
    assert s.partition.leader == NO_LEADER
    s.follower.start()
    s.until(lambda: s.partition.leader == s.follower.id, "F is elected")
    s.rests()
    assert s.end_offset(s.leader) == 5


def a_broker_leaves_after_it_has_handed_over() -> None:
    """KIP-841: while it drains it joins nothing; nothing is without a leader for as long as a lease lives."""
    s = Scenario(factor=3, min_isr=2)
    s.acked(2)
    s.leader.leave(600_000)
    s.until(lambda: not s.leader.host.is_up, "L has stopped")
    assert s.partition.leader == s.follower.id
    assert s.leader.id not in s.isr
    s.acked(1)
    s.rests()


def an_election_that_its_winner_did_not_hear_of_is_used() -> None:
    """KAFKA-13407: who won the controller's key by a write without an answer must control."""
    s = Scenario()
    for broker in s.brokers.values():
        s.lose_answers(broker, 1)
    s.faults.depose(s.controller, 0)
    s.until(lambda: s.fleet.store.image.controller is not None, "somebody has won")
    s.kill(s.leader)
    s.until(lambda: s.partition.leader == s.follower.id, "F is elected")
    s.rests()


def a_leader_that_heard_of_its_end_does_not_begin_again_by_an_old_image() -> None:
    """L learns by a lost change of the ISR that F leads, before its image shows anything of that."""
    s = Scenario(lag_max_ms=1_000)
    s.acked(2)
    s.cut(s.follower, s.leader)
    s.produce(1, is_acks_all=False)
    s.after(10)
    s.hold_watch(s.leader)
    s.fence(s.leader)
    s.until(lambda: s.partition.leader == s.follower.id, "F is elected")
    s.until(lambda: not s.leader.leading.replicas[s.index].leading, "L has heard of it")
    s.leader.apply()
    assert s.leader.leading.replicas[s.index].leading is None
    s.rests()


def the_longest_log_leads_after_a_power_cut_of_all() -> None:
    """F has flushed what L, which led last, and the third replica have not."""
    s = Scenario(factor=3, min_isr=2)
    s.acked(5)
    s.follower.flush()
    for broker in s.brokers.values():
        s.power_loss(broker)
    assert s.end_offset(s.leader) < s.end_offset(s.follower) == 5
    for broker in s.brokers.values():
        broker.start()
    s.until(lambda: not s.partition.has_leader, "nobody leads")
    s.until(lambda: s.partition.has_leader, "somebody leads")
    assert s.partition.leader == s.follower.id
    s.rests()
    assert s.end_offset(s.leader) == 5


def brokers_that_lost_all_leases_at_once_are_elected_once() -> None:
    """All registrations end, and each broker has another one within a second."""
    s = Scenario(factor=3, min_isr=2)
    s.acked(2)
    before = s.fleet.partitions_in(s.fleet.store.image)
    for broker in s.brokers.values():
        s.faults.end_lease(broker, 0)
    s.until(lambda: not any(each.has_leader for each in s.states), "nobody leads")
    s.until(lambda: all(each.has_leader for each in s.states), "all are led")
    for was, state in zip(before, s.states, strict=True):
        assert state.leader_epoch == was.leader_epoch + 2, "it ended, and began"
        assert state.leader == state.replicas[0], "not all with who was back first"
    s.rests()
    assert s.end_offset(s.leader) == 2


def a_write_that_was_lost_is_not_recognised_by_what_a_leader_wrote() -> None:
    """G returns before the sweep, which is neither done nor answered. The leader of the last partition hears of G and takes its old
    registration out by itself, in the very words of the sweep; another leader does not hear of it."""
    s = Scenario(factor=3, lag_max_ms=20_000)
    s.acked(2)
    states = s.fleet.partitions_in(s.fleet.store.image)
    last = s.brokers[states[-1].leader]
    gone = next(
        each for each in s.brokers.values() if each is not s.controller and each is not last
    )
    for other in [each for each in s.brokers.values() if each is not gone]:
        s.cut(gone, other)
    s.hold_watch(s.controller)
    s.power_loss(gone)
    s.end_lease(gone)
    gone.start()
    s.until(lambda: gone.id in s.fleet.store.image.brokers, "G is back")
    s.lose_answers(s.controller, NEVER)
    s.fleet.store.hold_watch(s.controller.host, is_held=False)
    s.until(lambda: not s.fleet.store.scripted[s.controller.host.name], "the sweep is lost")
    s.mend(gone, last)
    s.until(lambda: s.fleet.store.image.brokers[gone.id].is_active, "G is let in")
    s.rests()


def a_registration_that_is_gone_holds_the_high_watermark() -> None:
    """KIP-903: F stops cleanly, registers again and fetches, while the ISR has its old registration.

    L dies, and F is elected: it stopped cleanly, so it is an eligible leader.
    """
    s = Scenario(min_isr=2)
    s.acked(2)
    s.cut_store(s.controller, "in")
    s.stop_cleanly(s.follower)
    s.follower.start()
    s.until(lambda: s.known(s.follower).broker_epoch == s.follower.epoch, "F fetches again")
    s.cut(s.follower, s.leader)
    s.produce(1)
    s.after(500)
    assert s.high_watermark(s.leader) == 2
    s.kill(s.leader)
    s.end_lease(s.leader)
    s.mend_store(s.controller, "in")
    s.until(lambda: s.partition.leader == s.follower.id, "the eligible leader is elected")
    s.rests()


def one_isr_change_is_in_flight_at_a_time() -> None:
    """KIP-497: F is in the ISR, L has not heard of it, and would let the other one join instead."""
    s = Scenario(factor=3, lag_max_ms=1_000)
    s.cut(s.other, s.leader)
    s.drop_follower()
    s.until(lambda: s.isr == [s.leader.id], "L is alone in the ISR")
    s.until(lambda: not s.is_pending(), "L hears of it")
    s.lose_answers(s.leader, 1, 1, 1, 1)
    s.hold_watch(s.leader)
    s.mend(s.follower, s.leader)
    s.until(lambda: s.follower.id in s.isr, "the change is made")
    s.cut(s.follower, s.leader)
    s.produce(1, is_acks_all=False)  # the fetch that waits at L brings it to F
    s.after(50)
    s.produce(1, is_acks_all=False)
    s.after(1_500)
    s.mend(s.other, s.leader)
    s.until(lambda: s.end_offset(s.other) == s.end_offset(s.leader), "the other one has all")
    s.after(300)
    assert s.high_watermark(s.leader) <= s.end_offset(s.follower)
    s.rests()


RULES: dict[Callable[[], None], str | None] = {
    an_election_compares_the_registration: "an election compares no registration",
    a_read_never_settles_an_unknown_transaction: "a read settles an unknown transaction",
    a_fenced_leader_writes_nothing: "an ISR change compares no registration",
    a_replica_whose_registration_has_ended_does_not_join: "an ISR change compares no registration",
    a_change_in_flight_counts_for_the_high_watermark: "an ISR change in flight does not count",
    a_change_without_an_answer_is_in_flight: "an ISR change without an answer counts as lost",
    the_high_watermark_stands_still_below_min_isr: "the high watermark moves below min ISR",
    a_broker_is_let_in_after_it_was_taken_out_everywhere: "newcomers are let in before the sweep",
    a_broker_that_stopped_uncleanly_is_not_eligible: "an unclean start is trusted by the controller",
    an_older_copy_of_a_disk_is_not_eligible: "the previous epoch is not compared",
    a_follower_keeps_what_is_above_its_high_watermark: "a new follower truncates to its high watermark",
    a_stale_answer_of_the_old_leader_changes_nothing: "a stale answer counts",
    a_write_that_was_lost_is_not_recognised_by_what_a_leader_wrote: "a controller's own write is recognised by content",
    the_last_leader_leads_again_only_with_its_disk: "any disk will do for the last leader",
    a_repeated_batch_is_recognised_by_the_next_leader: "followers forget producers",
    a_leader_that_heard_of_its_end_does_not_begin_again_by_an_old_image: "a leader begins again in an epoch that has ended",
    the_longest_log_leads_after_a_power_cut_of_all: "the last leader leads though another log is longer",
    a_fleet_goes_on_while_the_store_is_away: "a leader stops at its lease's deadline",
    a_leader_that_alone_is_cut_off_from_the_store_stops_once_its_follower_leads: "a leader goes on though nobody vouches for it",
    a_leader_that_was_replaced_goes_on_by_no_later_silence_of_its_peers: "any silence of the peers counts",
    a_change_in_flight_counts_for_a_suspended_partition: "a suspended partition forgets a change of the ISR in flight",
    brokers_that_lost_all_leases_at_once_are_elected_once: None,
    a_controller_that_was_replaced_writes_nothing: None,
    an_eligible_leader_is_elected_before_the_last_one: "the last leader is elected beside eligible ones",
    a_registration_that_is_gone_holds_the_high_watermark: "a registration that has gone holds nothing",
    a_follower_that_was_away_begins_where_its_leaders_log_starts: "a follower that was away begins at the end",
    a_former_leader_that_ends_where_its_leaders_log_starts_begins_again_empty: "a follower is believed by an epoch that its leader forgot",
    a_last_leader_whose_records_were_all_deleted_leads_again: "an emptied log counts for the shortest",
    five_records_of_a_producer_are_recognised_when_they_come_again: "one record of a producer is remembered",
    a_topic_that_is_made_again_has_no_record_of_the_old_one: "a topic is known by its name",
    a_record_that_overtakes_another_is_refused: "a record may overtake another",
    records_are_deleted_once_no_live_replica_has_them: "the low watermark is the leader's",
    one_isr_change_is_in_flight_at_a_time: "a second ISR change is in flight",
    a_replica_that_was_gone_begins_with_nothing: "replicas go within a leader epoch",
    every_registration_says_that_its_disk_may_lack_records: "the next registration does not repeat an unclean start",
    a_broker_that_is_fenced_registers_again: "a registration outlives its end in the image",
    a_registration_whose_answer_was_lost_is_found: None,
    leases_outlive_the_store: None,
    a_broker_leaves_after_it_has_handed_over: None,
    an_election_that_its_winner_did_not_hear_of_is_used: None,
    a_late_record_finds_its_transaction_over: "a record is appended whatever its guard",
    a_marker_drops_the_guards_of_its_transaction: "a guard outlives its transaction",
    a_marker_that_comes_late_ends_no_later_transaction: "any marker is appended",
    a_record_of_an_old_epoch_is_refused_by_the_log_alone: "a marker leaves its producer the old epoch",
    a_new_coordinator_acts_on_nothing_that_may_be_lost: "a coordinator acts on what it has read, committed or not",
}
"""Scenario -> the mutant with which it goes wrong."""


def test_a_scenario_finds_each_mutant_that_no_seed_is_known_to_find() -> None:
    assert {each.name for each in MUTANTS if each.seed is None} <= {*RULES.values()}


@pytest.mark.parametrize("scenario", RULES, ids=lambda each: each.__name__)
def test_it_holds_that(scenario) -> None:
    scenario()


@pytest.mark.parametrize(
    "scenario", [each for each in RULES if RULES[each]], ids=lambda each: each.__name__
)
def test_only_by_its_rule_it_holds_that(scenario) -> None:
    (mutant,) = [each for each in MUTANTS if each.name == RULES[scenario]]
    with broken(mutant), pytest.raises((SimulationError, AssertionError)):
        scenario()
