"""A follower's log against its leader's.

The same bytes after any sequence of fetches, cuts, elections, deletions and starts.
"""

from itertools import count
from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    rule,
    run_state_machine_as_test,
)
from logfleet.log.config import LogConfig
from logfleet.log.replicated import UnexpectedAppendOffset
from logfleet.log.segments.file_slice import FileSlice
from logfleet.records.batch import assign_offsets, iterate_headers
from logfleet.records.record import ProducerStamp, Record, build_batch
from logfleet.types import LeaderEpoch

from broker_image.tests.sim.rebuild import index_faults, producer_faults
from broker_image.tests.unit.log.retaining import retain

NOW = 1_700_000_000_000
LEADERS = LogConfig(segment_bytes=2500, index_interval_bytes=250, file_delete_delay_ms=0)
FOLLOWERS = LogConfig(segment_bytes=1500, index_interval_bytes=400, file_delete_delay_ms=0)


def batches(log, start):
    """(base offset, bytes) of the batches from the one that holds `start`, as readers find them."""
    found, offset = [], start
    while isinstance(piece := log.read(offset, 700), FileSlice):
        content = piece.read()
        for position, header in iterate_headers(content):
            found.append((header.base_offset, content[position : position + header.size]))
            offset = header.next_offset
    assert offset == max(log.log_end_offset, start)
    return found


class FollowerMachine(RuleBasedStateMachine):
    def __init__(self, make_rig):
        super().__init__()
        self.rigs = make_rig(), make_rig()
        self.leader, self.follower = self.rigs[0].open(LEADERS), self.rigs[1].open(FOLLOWERS)
        self.checkpointed = 0
        self.epoch = 0

    @initialize(first=st.integers(0, 30))
    def begin(self, first):
        self.rigs[0].truncate(self.leader, first, empties=True)

    def write(self, log, sizes, gap=0):
        for size in sizes:
            base = log.log_end_offset + gap
            records = [Record(None, bytes(size), NOW + base)] * (1 + size % 3)
            batch = build_batch(records, producer=ProducerStamp(size % 2, self.epoch, base))
            assign_offsets(batch, base, LeaderEpoch(self.epoch))
            log.append_as_follower(memoryview(batch), self.epoch, NOW)

    sizes = st.lists(st.integers(0, 300), min_size=1, max_size=6)

    @rule(sizes=sizes, gap=st.sampled_from([0, 0, 5]))
    def lead(self, sizes, gap):
        self.write(self.leader, sizes, gap)

    @rule(sizes=sizes)
    def elect_another(self, sizes):
        """The follower led for a while, and nobody followed it."""
        self.epoch += 1
        self.follower.start_epoch(self.epoch)
        self.write(self.follower, sizes)
        self.epoch += 1
        self.leader.start_epoch(self.epoch)

    @rule(max_bytes=st.integers(1, 3000), cut=st.integers(0, 100))
    def fetch(self, max_bytes, cut):
        """One step of a follower.

        Truncate to where its last epoch ended, or begin anew, or append.
        """
        leader, log = self.leader, self.follower
        if log.epochs.entries:
            epoch, end = leader.epoch_end_offset(log.epochs.latest)
            if (epoch, end) < (log.epochs.latest, log.log_end_offset):
                mine, end_here = log.epoch_end_offset(epoch)
                target = min(end, end_here) if mine == epoch else min(end, log.log_start_offset)
                self.rigs[1].truncate(log, max(target, 0))
                self.checkpointed = min(self.checkpointed, log.log_end_offset)
                return
        piece = leader.read(log.log_end_offset, max_bytes)
        if not isinstance(piece, FileSlice | None):
            at = leader.log_start_offset
            if log.log_end_offset > leader.log_end_offset:
                return
            self.reset(at)
            return
        if piece is None:
            return
        data = piece.read()
        records = memoryview(data)[: max(len(data) - cut, 0)]
        try:
            log.append_as_follower(records, self.epoch, NOW)
        except UnexpectedAppendOffset as unexpected:
            end = log.log_end_offset
            has_nothing = end == log.log_start_offset or end <= leader.log_start_offset
            if not has_nothing or end > unexpected.last_offset:
                raise
            self.reset(unexpected.first_offset)
            log.append_as_follower(records, self.epoch, NOW)
        log.follow_log_start(leader.log_start_offset, log.log_end_offset)

    def reset(self, offset):
        self.rigs[1].truncate(self.follower, offset, empties=True)
        self.checkpointed = min(self.checkpointed, offset)

    @rule(pick=st.integers(0, 1000))
    def delete_records(self, pick):
        leader = self.leader
        leader.delete_records_before(
            leader.log_start_offset + pick % (leader.log_end_offset - leader.log_start_offset + 1)
        )
        retain(leader, NOW, leader.log_end_offset)

    @rule()
    def flush(self):
        self.rigs[1].flush(self.follower)
        self.checkpointed = self.follower.log_end_offset

    @rule(is_clean=st.booleans())
    def start_again(self, is_clean):
        start, end = self.follower.log_start_offset, self.follower.log_end_offset
        epochs = [each for each in self.follower.epochs.entries if each.start_offset < end]
        if is_clean:
            self.rigs[1].close(self.follower)
        self.follower = self.rigs[1].open(
            FOLLOWERS, clean=is_clean, recovery_point=self.checkpointed, log_start_offset=start
        )
        assert (self.follower.log_start_offset, self.follower.log_end_offset) == (start, end)
        if is_clean:
            self.checkpointed = end
            kept = [each for each in self.follower.epochs.entries if each.start_offset < end]
            assert kept == epochs

    @rule()
    def catch_up(self):
        """Then both hold the same, but for what the follower may still have of what is deleted."""
        for _ in range(200):
            if self.follower.log_end_offset == self.leader.log_end_offset and (
                self.follower.epochs.entries[-1:] == self.leader.epochs.entries[-1:]
                or not self.follower.epochs.entries
            ):
                break
            before = self.follower.log_end_offset
            self.fetch(3000, 0)
            if self.follower.log_end_offset == before == self.leader.log_end_offset:
                break
        start = max(self.leader.log_start_offset, self.follower.log_start_offset)
        assert batches(self.follower, start) == batches(self.leader, start)
        assert self.follower.log_end_offset == self.leader.log_end_offset

    @invariant()
    def indexes_epochs_and_producers_are_those_of_the_batches(self):
        log = self.follower
        for segment in log.segments:
            assert index_faults(segment, FOLLOWERS.index_interval_bytes) == []
        assert producer_faults(log) == []
        for _, data in batches(log, log.log_start_offset):
            for _, header in iterate_headers(data):
                if header.base_offset >= log.log_start_offset:
                    assert log.epochs.epoch_of(header.base_offset) == header.leader_epoch


def test_a_followers_log_is_its_leaders(rig, tmp_path):
    numbers = count()
    make: Any = lambda: FollowerMachine(  # noqa: E731  typed as a class
        lambda: type(rig)(str(tmp_path / str(next(numbers))))
    )
    run_state_machine_as_test(
        make, settings=settings(max_examples=50, stateful_step_count=40, deadline=None)
    )
