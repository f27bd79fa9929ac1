"""The log of a topic with cleanup.policy=compact,delete against a list in memory.

Any sequence of appends, compactions, cuts, deletions, retention, restarts and crashes. What a round
leaves is known exactly: below its end the newest record of each key, from there on everything, each
at the offset that it was given. Tombstones stay, as they are too young to go.
"""

from itertools import count
from typing import Any

import msgspec
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
from logfleet.log.directories import trash
from logfleet.records.record import Record, build_batch

from broker_image.tests.unit.log.compaction.compaction_rig import append, compact, flushed, records
from broker_image.tests.unit.log.retaining import retain

NOW = 1_700_000_000_000
RETENTION_MS = 1000
CONFIG = LogConfig(
    segment_bytes=500,
    index_interval_bytes=150,
    file_delete_delay_ms=0,
    retention_ms=RETENTION_MS,
    cleanup_policy=frozenset({"compact", "delete"}),
)


PAIRS = st.tuples(st.integers(0, 5), st.none() | st.integers(20, 120))
"""(number of a key, size of its value or None for a tombstone)"""


class Kept(msgspec.Struct, frozen=True):
    """A record that is in the log."""

    offset: int
    key: bytes
    value: bytes | None
    time: int


class CompactedLogMachine(RuleBasedStateMachine):
    rounds = 0
    dropped = 0

    def __init__(self, make_rig):
        super().__init__()
        self.rig = make_rig()
        self.log = self.rig.open(CONFIG)
        self.now = NOW
        self.records: list[Kept] = []
        self.ends = [0]  # of batches
        self.start = self.end = 0
        self.checkpointed = 0

    def durable(self):
        """Once flushed and checkpointed: what is not durable is not compacted."""
        flushed(self.log, self.rig.files)
        self.checkpointed = self.end

    @initialize(count=st.integers(8, 20))
    def begin(self, count):
        """With something that was compacted, so that what follows meets it."""
        self.append([[(number % 3, 100)] for number in range(count)])
        self.compact(back=0, is_flushed=True)

    @rule(batches=st.lists(st.lists(PAIRS, min_size=1, max_size=3), min_size=1, max_size=8))
    def append(self, batches):
        for pairs in batches:
            self.now += 10
            new = [
                Kept(self.end + n, b"key %d" % key, None if size is None else bytes(size), self.now)
                for n, (key, size) in enumerate(pairs)
            ]
            batch = build_batch([Record(each.key, each.value, each.time) for each in new])
            assert append(self.log, batch, self.now).base_offset == self.end
            self.records += new
            self.end += len(new)
            self.ends.append(self.end)

    @rule()
    def flush(self):
        self.durable()

    @rule(back=st.integers(0, 6), is_flushed=st.booleans())
    def compact(self, back, is_flushed):
        if is_flushed:
            self.durable()
        committed = self.ends[max(0, len(self.ends) - 1 - back)]
        done = compact(self.log, self.rig.files, self.now, committed)
        if done is None:
            return
        assert done.end_offset <= min(committed, self.checkpointed)
        newest = {each.key: each.offset for each in self.records if each.offset < done.end_offset}
        kept = [
            each
            for each in self.records
            if each.offset >= done.end_offset or newest[each.key] == each.offset
        ]
        CompactedLogMachine.rounds += 1
        CompactedLogMachine.dropped += len(self.records) - len(kept)
        self.records = kept

    @rule(pick=st.integers(0, 1000))
    def truncate(self, pick):
        ends = [self.start, *(end for end in self.ends if end > self.start)]
        target = ends[-1 - pick % min(len(ends), 12)]
        self.rig.truncate(self.log, target, now_ms=self.now)
        self.records = [each for each in self.records if each.offset < target]
        # compaction may have taken the batches that would end there
        last = self.records[-1].offset + 1 if self.records else self.start
        assert max(last, self.start) <= self.log.log_end_offset <= target
        self.end = self.log.log_end_offset
        self.ends = [end for end in self.ends if end < self.end] + [self.end]
        self.checkpointed = min(self.checkpointed, self.end)

    @rule(pick=st.integers(0, 1000))
    def delete_records(self, pick):
        self.start += pick % ((self.end - self.start) // 4 + 1)
        self.log.delete_records_before(self.start)

    @rule(pass_ms=st.sampled_from([0, 200, 500]))
    def retain(self, pass_ms):
        self.now += pass_ms
        retain(self.log, self.now, self.end)
        trash.remove(self.rig.files, self.rig.trash.take_due(self.now))
        start = self.log.log_start_offset
        gone = [each for each in self.records if self.start <= each.offset < start]
        assert all(each.time < self.now - RETENTION_MS for each in gone)
        assert start >= self.start
        self.start = start

    @rule(is_clean=st.booleans())
    def start_again(self, is_clean):
        first_dirty = self.log.first_dirty_offset
        if is_clean:
            self.rig.close(self.log)
            self.checkpointed = self.end
        self.log = self.rig.open(
            CONFIG,
            clean=is_clean,
            recovery_point=self.checkpointed,
            log_start_offset=self.start,
            first_dirty_offset=first_dirty,
            now_ms=self.now,
        )

    @invariant()
    def the_log_is_that_of_the_model(self):
        assert (self.log.log_start_offset, self.log.log_end_offset) == (self.start, self.end)
        found = [
            Kept(each.offset, each.key, each.value, each.timestamp)
            for each in records(self.log)
            if each.offset >= self.start
        ]
        assert found == [each for each in self.records if each.offset >= self.start]

    @invariant()
    def nothing_above_the_dirty_point_was_compacted(self):
        assert self.log.first_dirty_offset <= max(self.checkpointed, self.start)


def test_a_compacted_log_behaves_as_a_list(rig, tmp_path):
    numbers = count()
    make: Any = lambda: CompactedLogMachine(  # noqa: E731  typed as a class
        lambda: type(rig)(str(tmp_path / str(next(numbers))))
    )
    CompactedLogMachine.rounds = CompactedLogMachine.dropped = 0
    run_state_machine_as_test(
        make, settings=settings(max_examples=50, stateful_step_count=30, deadline=None)
    )
    assert CompactedLogMachine.rounds > 40
    assert CompactedLogMachine.dropped > 40
