"""ReplicaEnds: tables for single events, and a machine for their orders."""

from collections import deque

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from logfleet.metadata.kinds.topics import PartitionValue
from logfleet.replication.ends import NO_RULE, UNCOUNTED_BYTES, ReplicaEnds, Role
from logfleet.replication.leader import LeaderReplicas
from logfleet.replication.partition_state import Member
from logfleet.types import BrokerEpoch, LeaderEpoch, PartitionEpoch
from logfleet.wire.errors import ErrorCode

LAG_MAX_MS = 1_000
A, B, C = ((each, BrokerEpoch(10 * each)) for each in (1, 2, 3))
STATE = PartitionValue((1, 2, 3), (A, B, C), 1, LeaderEpoch(4), PartitionEpoch(9), 2)
ALONE = PartitionValue((1,), (A,), 1, LeaderEpoch(4), PartitionEpoch(9), 1)


class Recorded:
    """The effects of a role. flushes: whether a flush that is wanted will come."""

    def __init__(self, *, flushes: bool = True) -> None:
        self.calls: list[tuple[str, int]] = []
        self.flushes = flushes

    def committed(self, size: int) -> None:
        self.calls.append(("committed", size))

    def written(self, size: int) -> None:
        self.calls.append(("written", size))

    def own_part_done(self) -> None:
        self.calls.append(("own part", 0))

    def flush(self) -> bool:
        self.calls.append(("flush", 0))
        return self.flushes

    def log_start_moved(self) -> None:
        self.calls.append(("log start", 0))

    def take(self) -> list[tuple[str, int]]:
        calls, self.calls = self.calls, []
        return calls


def lead(ends: ReplicaEnds, state: PartitionValue = STATE, **effects: bool) -> Recorded:
    recorded = Recorded(**effects)
    replicas = LeaderReplicas(1, state, 7, ends=ends, lag_max_ms=LAG_MAX_MS, now_ms=0)
    ends.lead(replicas, recorded)
    recorded.take()
    return recorded


def append(ends: ReplicaEnds, size: int = 10, *, held_up: bool = False) -> None:
    """A batch of one record."""
    end_offset = ends.log_end_offset + 1
    ends.extended(end_offset)
    if not held_up:
        ends.written(end_offset, ends.truncations)
    ends.appended(size)


def opened(end: int = 0, start: int = 0) -> ReplicaEnds:
    return ReplicaEnds(
        log_start_offset=start, log_end_offset=end, recovery_point=end, checkpointed_point=end
    )


def ends_of(ends: ReplicaEnds) -> tuple[int, int, int]:
    return ends.high_watermark, ends.own_end_offset, ends.log_end_offset


def test_a_leader_without_followers_commits_what_it_appends() -> None:
    ends = opened()
    effects = lead(ends, ALONE)
    append(ends, 70)
    assert (ends_of(ends), effects.take()) == ((1, 1, 1), [("committed", 70)])


def test_followers_are_woken_by_what_is_written_and_consumers_by_what_is_committed() -> None:
    ends = opened()
    effects = lead(ends)
    append(ends, 70)
    assert (ends_of(ends), effects.take()) == ((0, 1, 1), [("written", 70), ("own part", 0)])
    assert ends.fetched(*B, 1, 0, now_ms=0) is ErrorCode.NONE
    assert effects.take() == []
    assert ends.fetched(*C, 1, 0, now_ms=0) is ErrorCode.NONE
    assert (ends_of(ends), effects.take()) == ((1, 1, 1), [("committed", 70)])
    assert ends.fetched(3, BrokerEpoch(1), 1, 0, now_ms=0) is ErrorCode.STALE_BROKER_EPOCH


@pytest.mark.parametrize("state", [STATE.changed(isr=(A,), min_isr=1), ALONE])
def test_what_is_queued_for_the_disk_is_no_part_of_anything(state: PartitionValue) -> None:
    ends = opened()
    effects = lead(ends, state)
    append(ends, 70, held_up=True)
    append(ends, 80, held_up=True)
    assert (ends_of(ends), effects.take()) == ((0, 0, 2), [])
    ends.written(1, ends.truncations)
    assert (ends_of(ends), effects.take()) == ((1, 1, 2), [("written", 70), ("committed", 70)])
    ends.written(2, ends.truncations)
    assert (ends_of(ends), effects.take()) == ((2, 2, 2), [("written", 80), ("committed", 80)])


@pytest.mark.parametrize("state", [STATE.changed(isr=(A,), min_isr=1), ALONE])
def test_what_the_topic_wants_durable_waits_for_the_flush(state: PartitionValue) -> None:
    ends = opened()
    ends.flush_messages = 2
    effects = lead(ends, state)
    append(ends)
    append(ends)
    append(ends)
    assert ends_of(ends) == (1, 1, 3)
    assert effects.take().count(("flush", 0)) == 2
    ends.flushed(2)
    assert (ends_of(ends), effects.take()) == ((2, 2, 3), [("committed", 10)])
    ends.flushed(3)
    assert ends_of(ends) == (3, 3, 3)


def test_records_count_as_they_are_if_no_flush_will_come() -> None:
    ends = opened()
    ends.flush_messages = 1
    lead(ends, ALONE, flushes=False)
    append(ends)
    assert ends_of(ends) == (1, 1, 1)


def test_a_flush_alone_makes_nothing_of_what_is_not_reported_as_written() -> None:
    ends = opened()
    lead(ends, ALONE)
    append(ends, held_up=True)
    ends.flushed(1)
    assert ends_of(ends) == (0, 0, 1)
    ends.written(1, ends.truncations)
    assert ends_of(ends) == (1, 1, 1)


def test_nobody_knows_the_size_of_what_came_before_the_role() -> None:
    ends = opened(3)
    effects = lead(ends)
    append(ends, 70)
    for offset in (2, 3, 4):
        for member in (B, C):
            ends.fetched(*member, offset, 0, now_ms=0)
    committed = [size for name, size in effects.take() if name == "committed"]
    assert committed == [UNCOUNTED_BYTES, UNCOUNTED_BYTES, 70]


def test_a_follower_commits_what_its_leader_has_and_it_has_itself() -> None:
    ends, effects = opened(), Recorded()
    ends.follow(effects)
    for size in (70, 80):
        ends.extended(ends.log_end_offset + 1)
        ends.received(size)
    ends.leader_committed(2)
    assert (ends.high_watermark, effects.take()) == (0, [])
    ends.written(1, 0)
    ends.leader_committed(2)
    assert (ends.high_watermark, effects.take()) == (1, [("committed", 70)])
    ends.leader_committed(0)
    assert (ends.high_watermark, effects.take()) == (1, [])


def test_a_truncation_takes_all_ends_back() -> None:
    ends, effects = opened(10, 2), Recorded()
    ends.hosted(8)
    ends.compacted(9)
    ends.follow(effects)
    assert ends.lowered(5)
    ends.truncated(5)
    assert (ends.log_start_offset, ends.high_watermark, ends.log_end_offset) == (2, 5, 5)
    assert (ends.recovery_point, ends.checkpointed_point, ends.first_dirty_offset) == (5, 5, 5)
    assert ends.truncations == 1
    assert not ends.lowered(7)
    ends.extended(6)
    ends.written(6, 1)
    assert ends.written_end_offset == 5, "it was appended before the last truncation"


def test_an_emptied_log_begins_where_it_ends() -> None:
    ends = opened(10, 2)
    ends.lowered(30)
    ends.truncated(30, is_emptied=True)
    assert (ends.log_start_offset, ends.high_watermark, ends.log_end_offset) == (30, 30, 30)


def test_a_log_that_moves_to_another_disk_is_as_durable_as_its_copy() -> None:
    ends, copy = opened(), opened(2)
    ends.flush_messages = 1
    effects = lead(ends, ALONE)
    append(ends, 70)
    append(ends, 80, held_up=True)
    effects.take()
    ends.moved(copy)
    assert (ends_of(ends), ends.recovery_point, ends.truncations) == ((2, 2, 2), 2, 1)
    assert sum(size for name, size in effects.take() if name == "committed") == 150
    ends.written(2, 0)


def test_the_log_start_moves_up_only_and_within_what_is_committed() -> None:
    ends, effects = opened(10), Recorded()
    ends.hosted(6)
    ends.follow(effects)
    assert [ends.deleted(each) for each in (3, 3, 2, 6)] == [True, False, False, True]
    assert effects.take() == [("log start", 0)] * 2
    with pytest.raises(AssertionError, match="committed"):
        ends.deleted(7)


@pytest.mark.parametrize("known, begins_at", [(0, 1), (1, 1), (2, 2), (3, 3), (4, 3)])
def test_the_high_watermark_begins_as_it_was_known_within_the_log(
    known: int, begins_at: int
) -> None:
    ends = opened(3, 1)
    ends.hosted(known)
    assert ends.high_watermark == begins_at


def test_an_ended_role_has_no_effects() -> None:
    ends = opened()
    effects = lead(ends)
    append(ends, held_up=True)
    ends.stop(Recorded())
    assert ends.role is Role.LEADS, "that was another's"
    frozen = ends.as_of_now()
    ends.stop(effects)
    effects.take()
    ends.written(1, 0)
    ends.flushed(1)
    later = Recorded()
    ends.follow(later)
    ends.leader_committed(1)
    assert (effects.take(), frozen.high_watermark, ends.high_watermark) == ([], 0, 1)


def test_a_role_that_begins_ends_the_one_before() -> None:
    ends, follower = opened(), Recorded()
    leader = lead(ends)
    append(ends, held_up=True)
    ends.follow(follower)
    ends.stop(leader)
    ends.written(1, 0)
    assert (ends.role, ends.leading, leader.take()) == (Role.FOLLOWS, None, [])
    ends.leader_committed(1)
    assert follower.take() == [("committed", UNCOUNTED_BYTES)]


ROLES = st.sampled_from([Role.LEADS, Role.LEADS, Role.FOLLOWS, Role.NONE])
ISRS = st.sampled_from([(A,), (A, B), (A, B, C)])


class Ends(RuleBasedStateMachine):
    """One replica in changing roles, two others that fetch from it, and a disk that may be slow.

    others: the log ends that the others have, of which the leader learns by their fetches.
    waits: batches whose end offset a producer waits for. least: the high watermark may not fall
    below it.
    """

    def __init__(self) -> None:
        super().__init__()
        self.ends = ReplicaEnds()
        self.effects = Recorded()
        self.others = {2: 0, 3: 0}
        self.queued: deque[tuple[int, int]] = deque()
        self.state = STATE
        self.revision = 7
        self.now_ms = 0
        self.least = 0
        self.began_at = 0
        self.has_begun_small = False

    @initialize(
        flush_messages=st.sampled_from([1, 3, NO_RULE]),
        end=st.integers(0, 3),
        role=ROLES,
        isr=ISRS,
        min_isr=st.integers(1, 2),
    )
    def begin(
        self, flush_messages: int, end: int, role: Role, isr: tuple[Member, ...], min_isr: int
    ) -> None:
        self.ends = opened(end)
        self.ends.flush_messages = flush_messages
        self.others = {2: end, 3: end}
        self.take_role(role, isr, min_isr)

    @property
    def is_leader(self) -> bool:
        return self.ends.role is Role.LEADS

    # The log

    @rule(count=st.integers(1, 3), held_up=st.booleans())
    def append(self, *, count: int, held_up: bool) -> None:
        if self.ends.role is Role.NONE:
            return
        end_offset = self.ends.log_end_offset + count
        self.ends.extended(end_offset)
        if held_up or self.queued:
            self.queued.append((end_offset, self.ends.truncations))
        else:
            self.ends.written(end_offset, self.ends.truncations)
        if self.is_leader:
            self.ends.appended(10 * count)
        else:
            self.ends.received(10 * count)

    @rule()
    def write(self) -> None:
        if self.queued:
            self.ends.written(*self.queued.popleft())

    @rule(back=st.integers(0, 3))
    def flush(self, back: int) -> None:
        """A flush that began a while ago ends; it is of what is in the files."""
        point = self.ends.written_end_offset - back
        if point > self.ends.recovery_point:
            self.ends.flushed(point)

    @rule()
    def checkpoint(self) -> None:
        self.ends.checkpointed(self.ends.recovery_point)

    @rule(share=st.floats(0, 1))
    def delete(self, share: float) -> None:
        start, committed = self.ends.log_start_offset, self.ends.high_watermark
        self.ends.deleted(start + int((committed - start) * share))

    @precondition(lambda self: self.ends.role is Role.FOLLOWS)
    @rule(back=st.integers(0, 4), is_emptied=st.booleans())
    def truncate(self, *, back: int, is_emptied: bool) -> None:
        end_offset = max(0, self.ends.log_end_offset - back)
        if is_emptied:
            end_offset = max(end_offset, self.ends.log_start_offset)
        self.ends.lowered(end_offset)
        self.ends.truncated(end_offset, is_emptied=is_emptied)
        self.least = self.ends.high_watermark

    # Roles

    @rule(role=ROLES, is_rare=st.integers(0, 2), isr=ISRS, min_isr=st.integers(1, 2))
    def change_role(self, role: Role, is_rare: int, isr: tuple[Member, ...], min_isr: int) -> None:
        if self.ends.role is Role.NONE or not is_rare:
            self.stop()
            self.take_role(role, isr, min_isr)

    def take_role(self, role: Role, isr: tuple[Member, ...], min_isr: int) -> None:
        if role is Role.LEADS:
            self.lead(isr, min_isr)
        elif role is Role.FOLLOWS:
            self.effects = Recorded()
            self.ends.follow(self.effects)

    def lead(self, isr: tuple[Member, ...], min_isr: int) -> None:
        """A clean election: the members of the ISR have what this replica holds for committed."""
        ends = self.ends
        self.state = STATE.changed(
            isr=isr,
            min_isr=min_isr,
            leader_epoch=self.state.leader_epoch + 1,
            partition_epoch=self.state.partition_epoch + 1,
        )
        for other in self.others:
            is_member = other in dict(isr)
            least = ends.high_watermark if is_member else 0
            self.others[other] = max(least, min(self.others[other], ends.log_end_offset))
        self.effects = Recorded()
        ends.lead(
            LeaderReplicas(
                1, self.state, self.revision, ends=ends, lag_max_ms=LAG_MAX_MS, now_ms=self.now_ms
            ),
            self.effects,
        )
        self.began_at = ends.own_end_offset

    def stop(self) -> None:
        self.ends.stop(self.effects)
        self.effects.take()
        self.ends.written(10**6, -1)
        assert self.effects.take() == [], "an ended role has no effects"

    # A follower

    @precondition(lambda self: self.ends.role is Role.FOLLOWS)
    @rule(high_watermark=st.integers(0, 20))
    def learn_high_watermark(self, high_watermark: int) -> None:
        self.ends.leader_committed(high_watermark)

    # A leader

    @precondition(lambda self: self.is_leader)
    @rule(other=st.sampled_from([B, C]), count=st.integers(0, 4), ms=st.integers(0, LAG_MAX_MS))
    def fetch(self, other: Member, count: int, ms: int) -> None:
        """A follower has taken what the leader has in its files, and asks for more."""
        self.now_ms += ms
        has = min(self.others[other[0]] + count, self.ends.written_end_offset)
        self.others[other[0]] = max(has, self.others[other[0]])
        assert (
            self.ends.fetched(*other, self.others[other[0]], 0, now_ms=self.now_ms)
            is ErrorCode.NONE
        )

    @precondition(lambda self: self.is_leader)
    @rule()
    def propose(self) -> None:
        leading = self.ends.leading
        assert leading is not None
        before = leading.pending
        change = self.ends.isr_change(self.now_ms, lambda *_: True)
        assert before is None or change is None, "one change at a time"

    @precondition(lambda self: self.is_leader)
    @rule(is_won=st.booleans())
    def settle(self, *, is_won: bool) -> None:
        leading = self.ends.leading
        assert leading is not None
        if leading.pending is None:
            return
        self.revision += 1
        if is_won:
            self.state = leading.pending.state
            self.ends.isr_won(self.revision)
        else:
            assert self.ends.isr_lost(self.state, self.revision)

    @precondition(lambda self: self.is_leader)
    @rule(min_isr=st.integers(1, 2))
    def configure(self, min_isr: int) -> None:
        self.revision += 1
        leading = self.ends.leading
        assert leading is not None
        if leading.pending is None:
            self.state = self.state.changed(
                min_isr=min_isr, partition_epoch=self.state.partition_epoch + 1
            )
            assert self.ends.learned(self.state, self.revision)

    # What always holds

    @invariant()
    def the_ends_are_in_order(self) -> None:
        ends = self.ends
        assert ends.log_start_offset <= ends.high_watermark <= ends.log_end_offset
        assert ends.high_watermark <= ends.written_end_offset <= ends.log_end_offset
        assert ends.checkpointed_point <= ends.recovery_point <= ends.log_end_offset
        if self.is_leader:
            assert ends.high_watermark <= ends.own_end_offset <= ends.written_end_offset

    @invariant()
    def the_high_watermark_falls_only_with_a_truncation(self) -> None:
        assert self.ends.high_watermark >= self.least
        self.least = self.ends.high_watermark

    @invariant()
    def every_member_has_what_is_committed(self) -> None:
        leading = self.ends.leading
        if leading is not None:
            for other, _ in leading.others_in_sync():
                assert self.others[other] >= self.ends.high_watermark

    @invariant()
    def own_part_is_durable_if_the_topic_wants_that(self) -> None:
        ends = self.ends
        if self.is_leader and ends.own_end_offset > self.began_at:
            assert ends.own_end_offset - ends.recovery_point < max(ends.flush_messages, 1)

    @invariant()
    def a_leader_reports_all_that_it_commits(self) -> None:
        """Producers below the high watermark are acknowledged, at the latest with the next event."""
        names = [name for name, _ in self.effects.take()]
        moved = self.ends.high_watermark > self.reported
        assert not moved or "committed" in names or not self.is_leader
        self.reported = self.ends.high_watermark

    reported = 0


Ends.TestCase.settings = settings(max_examples=80, stateful_step_count=40, deadline=None)
TestEnds = Ends.TestCase
