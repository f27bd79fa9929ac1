from typing import Any

import pytest
from logfleet.metadata.kinds.topics import NO_LEADER, PartitionValue
from logfleet.replication.ends import NoEffects, ReplicaEnds
from logfleet.replication.leader import IsrChange, LeaderReplicas
from logfleet.replication.partition_state import Member
from logfleet.types import BrokerEpoch, LeaderEpoch, PartitionEpoch
from logfleet.wire.errors import ErrorCode

LAG_MAX_MS = 30_000
A, B, C = ((each, BrokerEpoch(10 * each)) for each in (1, 2, 3))
STATE = PartitionValue((1, 2, 3), (A, B, C), 1, LeaderEpoch(4), PartitionEpoch(9), 2)
ALONE = STATE.changed(isr=(A,), min_isr=1, partition_epoch=9)


def everybody(broker_id: int, broker_epoch: int) -> bool:
    return broker_epoch > 0


def nobody(broker_id: int, broker_epoch: int) -> bool:
    return False


class Leader:
    """The replicas of a partition as `ReplicaEnds` has its leader see them."""

    def __init__(self, ends: ReplicaEnds, state: PartitionValue) -> None:
        self.ends = ends
        self.seen = LeaderReplicas(1, state, 7, ends=ends, lag_max_ms=LAG_MAX_MS, now_ms=0)
        ends.lead(self.seen, NoEffects())
        self.isr_change, self.won = ends.isr_change, ends.isr_won
        self.lost, self.learned = ends.isr_lost, ends.learned

    def __getattr__(self, name: str) -> Any:
        return getattr(self.seen, name)

    @property
    def high_watermark(self) -> int:
        return self.ends.high_watermark

    def appended(self, end_offset: int) -> bool:
        """Whether that moved the high watermark."""
        before = self.ends.high_watermark
        self.ends.extended(end_offset)
        self.ends.written(end_offset, self.ends.truncations)
        self.ends.appended(1)
        return self.ends.high_watermark > before


def leader(
    state: PartitionValue = STATE, log_end_offset: int = 100, high_watermark: int = 50
) -> Leader:
    ends = ReplicaEnds(log_end_offset=log_end_offset)
    ends.hosted(high_watermark)
    return Leader(ends, state)


def fetch(replicas: Leader, member: Member, offset: int, now_ms: int = 0) -> bool | ErrorCode:
    """The error, or whether that moved the high watermark."""
    before = replicas.high_watermark
    error = replicas.ends.fetched(*member, offset, 0, now_ms=now_ms)
    return error or replicas.high_watermark > before


def change(replicas: Leader, now_ms: int = 0) -> IsrChange:
    made = replicas.isr_change(now_ms, everybody)
    assert made is not None
    return made


def test_a_sole_member_commits_with_its_own_append() -> None:
    replicas = leader(ALONE)
    assert replicas.high_watermark == 100
    assert replicas.appended(110)
    assert replicas.high_watermark == 110


def test_a_new_leader_commits_nothing_before_it_knows_how_far_each_member_is() -> None:
    replicas = leader()
    assert not replicas.appended(110)
    assert fetch(replicas, B, 110) is False
    assert replicas.high_watermark == 50
    assert fetch(replicas, C, 104) is True
    assert replicas.high_watermark == 104


def test_the_high_watermark_is_never_beyond_the_leaders_own_log() -> None:
    replicas = leader(high_watermark=120)
    assert replicas.high_watermark == 100
    fetch(replicas, B, 150)
    fetch(replicas, C, 150)
    assert replicas.high_watermark == 100
    assert replicas.appended(140)
    assert replicas.high_watermark == 140


def test_the_high_watermark_never_goes_back() -> None:
    replicas = leader()
    fetch(replicas, B, 90)
    fetch(replicas, C, 90)
    assert replicas.high_watermark == 90
    assert fetch(replicas, B, 60) is False
    assert fetch(replicas, C, 95) is False
    assert replicas.high_watermark == 90


def test_nothing_is_committed_while_the_isr_is_smaller_than_min_isr() -> None:
    replicas = leader(STATE.changed(isr=(A,)), 100, 50)
    assert not replicas.is_at_min_isr
    assert not replicas.appended(110)
    assert replicas.high_watermark == 50


def test_a_lower_min_isr_lets_the_high_watermark_move_again() -> None:
    state = STATE.changed(isr=(A,))
    replicas = leader(state)
    assert replicas.learned(state.changed(min_isr=1), 8)
    assert replicas.is_at_min_isr
    assert replicas.high_watermark == 100


def test_an_older_broker_epoch_moves_nothing() -> None:
    replicas = leader()
    assert fetch(replicas, (2, BrokerEpoch(19)), 100) is ErrorCode.STALE_BROKER_EPOCH
    assert replicas.followers[2].log_end_offset == -1


def test_a_broker_that_is_no_replica_moves_nothing() -> None:
    assert fetch(leader(), (4, BrokerEpoch(40)), 100) is ErrorCode.UNKNOWN_LEADER_EPOCH


def test_a_member_that_came_back_does_not_count_as_what_it_was() -> None:
    replicas = leader()
    fetch(replicas, C, 100)
    assert fetch(replicas, (2, BrokerEpoch(21)), 100) is False
    assert replicas.high_watermark == 50


def test_a_member_that_came_back_takes_the_place_of_what_it_was_once_it_may_join() -> None:
    replicas = leader()
    fetch(replicas, C, 100)
    fetch(replicas, (2, BrokerEpoch(21)), 100)
    made = change(replicas)
    assert made.state.isr == (A, (2, 21), C)
    assert made.added == ((2, 21),)
    assert replicas.high_watermark == 50  # what it was may still be in sync
    replicas.won(8)
    assert replicas.high_watermark == 100


def test_a_member_that_came_back_and_may_not_join_leaves() -> None:
    replicas = leader()
    fetch(replicas, C, 100)
    fetch(replicas, (2, BrokerEpoch(21)), 100)
    made = replicas.isr_change(0, nobody)
    assert made is not None
    assert made.state.isr == (A, C)


def test_who_lacks_what_came_before_this_leader_does_not_join() -> None:
    replicas = leader(STATE.changed(isr=(A, B)))
    fetch(replicas, B, 50)
    fetch(replicas, C, 99)
    assert replicas.isr_change(0, everybody) is None
    fetch(replicas, C, 100)
    assert change(replicas).added == (C,)


def test_who_lacks_committed_records_does_not_join() -> None:
    replicas = leader(ALONE)
    replicas.appended(200)
    fetch(replicas, C, 150)
    assert replicas.isr_change(0, everybody) is None


def test_who_is_not_eligible_does_not_join() -> None:
    replicas = leader(STATE.changed(isr=(A, B)))
    fetch(replicas, C, 100)
    assert replicas.isr_change(0, nobody) is None


def test_a_member_counts_from_the_moment_its_joining_is_in_flight() -> None:
    replicas = leader(ALONE)
    fetch(replicas, B, 100)
    made = change(replicas)
    assert (made.state.isr, made.revision, made.added) == ((A, B), 7, (B,))
    assert not replicas.appended(110)
    assert fetch(replicas, B, 105) is True
    assert replicas.high_watermark == 105
    replicas.won(8)
    assert (replicas.state, replicas.revision) == (made.state, 8)
    assert replicas.high_watermark == 105


def test_a_joining_that_is_refused_counts_no_more() -> None:
    replicas = leader(ALONE)
    fetch(replicas, B, 100)
    change(replicas)
    replicas.appended(110)
    assert replicas.lost(replicas.state, 7)
    assert replicas.high_watermark == 110


def test_a_member_that_leaves_counts_until_that_is_written() -> None:
    replicas = leader()
    fetch(replicas, B, 100, LAG_MAX_MS)
    replicas.appended(110)
    fetch(replicas, B, 110, LAG_MAX_MS + 1)
    made = change(replicas, LAG_MAX_MS + 1)
    assert made.state.isr == (A, B)
    assert not replicas.appended(120)
    assert replicas.high_watermark == 50
    replicas.won(8)
    assert replicas.high_watermark == 110


def test_one_change_at_most_is_in_flight() -> None:
    replicas = leader(ALONE)
    fetch(replicas, B, 100)
    made = change(replicas)
    fetch(replicas, C, 100)
    assert replicas.isr_change(0, everybody) is None
    assert replicas.pending is made
    replicas.won(8)
    assert replicas.isr_change_due
    assert change(replicas).state.isr == (A, B, C)


def test_a_change_of_the_controller_does_not_settle_one_that_is_in_flight() -> None:
    replicas = leader(ALONE)
    fetch(replicas, B, 100)
    made = change(replicas)
    assert replicas.learned(ALONE.changed(min_isr=1), 8)
    assert replicas.pending is made
    assert made.revision == 7
    assert not replicas.appended(110)
    assert replicas.lost(replicas.state, 8)
    assert replicas.high_watermark == 110


def test_a_change_that_the_image_shows_first_is_won_once() -> None:
    replicas = leader(ALONE)
    fetch(replicas, B, 100)
    made = change(replicas)
    assert replicas.learned(made.state, 8)
    later = made.state.changed(min_isr=2)
    assert replicas.learned(later, 9)
    replicas.won(8)
    assert (replicas.state, replicas.revision) == (later, 9)


def test_a_lost_change_adopts_what_is_there() -> None:
    replicas = leader()
    fetch(replicas, C, 100)
    fetch(replicas, (2, BrokerEpoch(21)), 100)
    change(replicas)
    swept = STATE.changed(isr=(A, C))
    assert replicas.lost(swept, 8)
    assert (replicas.state, replicas.revision, replicas.pending) == (swept, 8, None)
    assert replicas.high_watermark == 100


@pytest.mark.parametrize(
    "there",
    [
        None,
        STATE.changed(leader=2, leader_epoch=5),
        STATE.changed(leader_epoch=5),
        STATE.changed(isr=(B,), leader=NO_LEADER, leader_epoch=5),
        STATE.changed(isr=(B, C)),
    ],
)
def test_a_leader_whose_epoch_ended_is_told(there: PartitionValue | None) -> None:
    replicas = leader()
    fetch(replicas, (2, BrokerEpoch(21)), 100)
    change(replicas)
    assert not replicas.lost(there, 8)
    assert replicas.high_watermark == 50


def test_an_older_state_is_no_news() -> None:
    replicas = leader()
    assert replicas.learned(STATE.changed(leader=2, partition_epoch=8), 6)
    assert replicas.state is STATE


def test_a_member_that_is_slow_for_too_long_leaves() -> None:
    replicas = leader()
    for member in (B, C):
        fetch(replicas, member, 100)
    replicas.appended(200)
    fetch(replicas, C, 200, 1)
    assert replicas.isr_change(LAG_MAX_MS, everybody) is None
    assert change(replicas, LAG_MAX_MS + 1).state.isr == (A, C)


def test_a_member_that_never_fetches_leaves() -> None:
    assert change(leader(), LAG_MAX_MS + 1).state.isr == (A,)


def test_a_member_that_left_joins_again_only_when_it_fetches() -> None:
    """The high watermark stands still while too few are in sync, and so everything committed is there where it left."""
    replicas = leader()
    for member in (B, C):
        fetch(replicas, member, 100)
    replicas.appended(200)
    change(replicas, LAG_MAX_MS + 1)
    replicas.won(8)
    assert replicas.high_watermark == 100
    assert replicas.isr_change(LAG_MAX_MS + 2, everybody) is None
    fetch(replicas, B, 110, LAG_MAX_MS + 3)
    assert change(replicas, LAG_MAX_MS + 3).state.isr == (A, B)


def test_a_member_with_all_that_there_is_stays_however_long_ago_it_fetched() -> None:
    replicas = leader()
    fetch(replicas, B, 100)
    fetch(replicas, C, 100)
    assert replicas.isr_change(10 * LAG_MAX_MS, everybody) is None


def test_a_follower_of_a_busy_partition_is_caught_up_though_it_never_reaches_the_end() -> None:
    replicas = leader(STATE.changed(isr=(A, B)))
    for step in range(1, 10):
        replicas.appended(100 + 10 * step)
        fetch(replicas, B, 90 + 10 * step, step * LAG_MAX_MS // 2)
        assert replicas.isr_change(step * LAG_MAX_MS // 2, everybody) is None


def test_the_high_watermark_waits_for_a_follower_that_is_about_to_join() -> None:
    replicas = leader(ALONE)
    fetch(replicas, B, 95)
    replicas.appended(200)
    fetch(replicas, B, 100, 1)  # all that there was at its last fetch, but not what is committed
    assert replicas.high_watermark == 200
    assert replicas.isr_change_due
    assert replicas.isr_change(1, everybody) is None
    assert not replicas.appended(300)
    fetch(replicas, B, 200, 2)
    assert change(replicas, 2).state.isr == (A, B)


def test_a_follower_that_was_about_to_join_and_stopped_is_not_waited_for() -> None:
    replicas = leader(ALONE)
    fetch(replicas, B, 95)
    replicas.appended(200)
    fetch(replicas, B, 100, 1)
    replicas.isr_change(1, everybody)
    replicas.appended(300)
    assert replicas.isr_change(2 + LAG_MAX_MS, everybody) is None
    assert replicas.high_watermark == 300


def test_a_follower_that_came_back_without_its_log_is_not_waited_for() -> None:
    replicas = leader(ALONE)
    fetch(replicas, B, 100)
    replicas.appended(200)
    fetch(replicas, (2, BrokerEpoch(21)), 0, 1)
    assert replicas.isr_change(1, everybody) is None
    assert replicas.appended(300)


def test_a_fetch_of_a_member_asks_for_no_change() -> None:
    replicas = leader()
    fetch(replicas, B, 100)
    replicas.isr_change(0, everybody)
    fetch(replicas, B, 100)
    assert not replicas.isr_change_due


def test_a_leader_of_an_unclean_election_has_recovered_with_its_first_change() -> None:
    replicas = leader(ALONE.changed(recovering=True))
    fetch(replicas, B, 100)
    assert not change(replicas).state.recovering


def test_a_replica_that_is_added_is_followed_at_once() -> None:
    replicas = leader()
    assert replicas.learned(STATE.changed(replicas=(1, 2, 3, 4), adding=(4,)), 8)
    fetch(replicas, (4, BrokerEpoch(40)), 100)
    assert change(replicas).state.isr == (A, B, C, (4, 40))


def test_a_joining_replica_that_was_taken_off_counts_until_the_answer() -> None:
    replicas = leader(ALONE)
    fetch(replicas, B, 100)
    change(replicas)
    assert replicas.learned(ALONE.changed(replicas=(1, 3)), 8)
    assert not replicas.appended(110)
    assert replicas.lost(replicas.state, 8)
    assert replicas.high_watermark == 110
    assert 2 not in replicas.followers


def test_the_low_watermark_is_that_of_the_replicas_that_live() -> None:
    replicas = leader()
    assert replicas.low_watermark(40, lambda _: True) == -1
    replicas.fetched(*B, 100, 30, now_ms=0)
    replicas.fetched(*C, 100, 20, now_ms=0)
    assert replicas.low_watermark(40, lambda _: True) == 20
    assert replicas.low_watermark(40, lambda broker_id: broker_id != 3) == 30
    assert replicas.low_watermark(25, lambda broker_id: broker_id != 3) == 25


def test_a_follower_of_an_idle_partition_is_given_its_time_when_something_comes() -> None:
    """Its fetches say nothing of a partition in which nothing moved (KIP-227), so that its last one may be long ago."""
    replicas = leader()
    fetch(replicas, B, 100)
    fetch(replicas, C, 100)
    for now_ms in range(0, 10 * LAG_MAX_MS, LAG_MAX_MS // 2):
        assert replicas.isr_change(now_ms, everybody) is None
    replicas.appended(101)
    assert replicas.isr_change(now_ms, everybody) is None
    assert replicas.isr_change(now_ms + LAG_MAX_MS, everybody) is None
    assert change(replicas, now_ms + LAG_MAX_MS + 1).state.isr == (A,)


def test_what_a_follower_lacks_is_its_lag() -> None:
    replicas = leader()
    assert replicas.lag(2) == 100
    fetch(replicas, B, 97)
    assert replicas.lag(2) == 3
    fetch(replicas, B, 120)
    assert replicas.lag(2) == 0


def test_replicas_that_are_being_added_do_not_make_it_under_replicated() -> None:
    state = STATE.changed(isr=(A, B), replicas=(1, 2, 3, 4), adding=(4,))
    assert leader(state).out_of_sync == (3,)
