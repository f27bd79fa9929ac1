"""The log against a list in memory.

Any sequence of appends, reads, cuts, deletions, restarts and crashes.
"""

from itertools import count
from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)
from logfleet.io.files import remove_if_there
from logfleet.log.config import LogConfig
from logfleet.log.names import INDEX, TIME_INDEX, offset_file
from logfleet.log.producers.states import BATCHES_REMEMBERED
from logfleet.log.segments.file_slice import FileSlice
from logfleet.records.batch import iterate_headers
from logfleet.records.record import ProducerStamp, Record, build_batch, read_records

from broker_image.tests.sim.rebuild import index_faults
from broker_image.tests.unit.log.retaining import retain
from broker_image.tests.unit.log.searching import by_time

NOW = 1_700_000_000_000
CONFIG = LogConfig(
    segment_bytes=1500, index_interval_bytes=250, file_delete_delay_ms=0, segment_ms=5000
)


class Batch:
    """What the model remembers of one appended batch."""

    def __init__(self, base, times, epoch, stamp):
        self.base, self.times, self.epoch, self.stamp = base, times, epoch, stamp
        self.end = base + len(times)

    def encoded(self):
        records = [
            Record(None, b"%d;" % (self.base + n) * 20, time) for n, time in enumerate(self.times)
        ]
        return build_batch(records, producer=self.stamp)


class LogMachine(RuleBasedStateMachine):
    def __init__(self, make_rig):
        super().__init__()
        self.rig = make_rig()
        self.log = self.rig.open(CONFIG)
        self.batches = []  # all that were appended and not cut off, deleted ones too
        self.start = 0
        self.epoch = 0
        self.checkpointed = 0  # the recovery point that survives a crash
        self.sequences = {}  # producer -> next sequence

    @property
    def end(self):
        return max(self.batches[-1].end if self.batches else 0, self.start)

    @initialize(ahead=st.integers(0, 3))
    def begin(self, ahead):
        self.epoch = ahead

    @rule(
        times=st.lists(st.integers(NOW - 3000, NOW + 3000), min_size=1, max_size=3),
        producer=st.none() | st.integers(1, 2),
    )
    def append(self, times, producer):
        stamp = None
        if producer is not None:
            stamp = ProducerStamp(producer, 0, self.sequences.get(producer, 0))
            self.sequences[producer] = stamp.base_sequence + len(times)
        batch = Batch(self.end, times, self.epoch, stamp)
        result = self.log.append_as_leader(batch.encoded(), self.epoch, NOW)
        assert (result.base_offset, result.last_offset) == (batch.base, batch.end - 1)
        assert not result.duplicate
        self.batches.append(batch)

    @rule(back=st.integers(1, BATCHES_REMEMBERED), producer=st.integers(1, 2))
    def send_again(self, back, producer):
        sent = [b for b in self.batches if b.stamp and b.stamp.producer_id == producer]
        if len(sent) >= back and sent[-back].base >= self.log.segments[0].base_offset:
            batch = sent[-back]
            result = self.log.append_as_leader(batch.encoded(), self.epoch, NOW)
            assert result.duplicate
            assert (result.base_offset, result.last_offset) == (batch.base, batch.end - 1)

    @rule(offset=st.integers(-2, 200), max_bytes=st.integers(1, 4000), end=st.integers(0, 200))
    def read(self, offset, max_bytes, end):
        piece = self.log.read(offset, max_bytes, end)
        visible = [b for b in self.batches if b.end > offset and b.end <= min(end, self.end)]
        if not self.start <= offset <= self.end:
            assert isinstance(piece, int)
        elif isinstance(piece, FileSlice):
            found = [
                (h.base_offset, h.next_offset, h.leader_epoch)
                for _, h in iterate_headers(piece.read())
            ]
            assert found == [(b.base, b.end, b.epoch) for b in visible[: len(found)]]
            assert found
            assert len(piece) <= max_bytes or len(found) == 1
        else:
            assert not visible

    @rule()
    def lead_again(self):
        self.epoch += 1
        self.log.start_epoch(self.epoch)

    @rule(pick=st.integers(0, 1000))
    def truncate(self, pick):
        ends = [self.start, *(b.end for b in self.batches if b.end > self.start)]
        target = ends[pick % len(ends)]
        self.rig.truncate(self.log, target)
        self.forget_from(target)

    def forget_from(self, target):
        for batch in self.batches:
            if batch.end > target and batch.stamp:
                first = self.sequences[batch.stamp.producer_id]
                self.sequences[batch.stamp.producer_id] = min(first, batch.stamp.base_sequence)
        self.batches = [batch for batch in self.batches if batch.end <= target]
        self.checkpointed = min(self.checkpointed, target)

    @rule(pick=st.integers(0, 1000))
    def delete_records(self, pick):
        self.start += pick % (self.end - self.start + 1)
        self.log.delete_records_before(self.start)

    @rule()
    def retain(self):
        retain(self.log, NOW, self.end)
        assert self.log.log_start_offset == self.start
        assert self.log.segments[0].base_offset <= self.start or len(self.log.segments) == 1

    @rule()
    def flush(self):
        self.rig.flush(self.log)
        assert self.log.recovery_point == self.end
        assert not self.log.unflushed
        self.checkpointed = self.end

    @rule()
    def stop_and_start(self):
        self.rig.close(self.log)
        self.log = self.rig.open(CONFIG, log_start_offset=self.start)
        assert self.log.recovered_bytes == 0
        self.checkpointed = self.end

    @rule(pick=st.integers(0, 1000), suffix=st.sampled_from([INDEX, TIME_INDEX]))
    def start_without_an_index(self, pick, suffix):
        self.rig.close(self.log)
        victim = self.log.segments[pick % len(self.log.segments)].base_offset
        remove_if_there(self.rig.files, f"{self.rig.directory}/{offset_file(victim, suffix)}")
        self.log = self.rig.open(CONFIG, log_start_offset=self.start)
        assert self.log.notes == []
        self.checkpointed = self.end

    @rule()
    def crash_and_start(self):
        self.log = self.rig.open(
            CONFIG, clean=False, recovery_point=self.checkpointed, log_start_offset=self.start
        )

    @precondition(lambda self: self.log.segments[-1].size)
    @rule(data=st.data())
    def crash_in_the_middle_of_a_write(self, data):
        """The tail of the active segment, as far as it is not durable, is torn anywhere."""
        active = self.log.segments[-1]
        kept = max(self.checkpointed, self.start)  # only what is durable can have been deleted
        kept = next((batch.end for batch in self.batches if batch.end >= kept), kept)
        durable = active.position_of(max(kept, active.base_offset))
        cut = data.draw(st.integers(durable, active.size))
        active.file.truncate(cut)
        active.file.pwrite(data.draw(st.binary(max_size=70)), cut)
        self.log = self.rig.open(
            CONFIG, clean=False, recovery_point=self.checkpointed, log_start_offset=self.start
        )
        assert self.log.log_end_offset >= max(self.checkpointed, self.start)
        self.forget_from(self.log.log_end_offset)

    @invariant()
    def the_log_is_that_of_the_model(self):
        assert self.log.log_start_offset == self.start
        assert self.log.log_end_offset == max(self.end, self.start)
        offset = self.start
        expected = [b for b in self.batches if b.end > self.start]
        for batch in expected:
            piece = self.log.read(offset, 1)
            assert isinstance(piece, FileSlice)
            found = list(read_records(piece.read()))
            assert [record.offset for record in found] == list(range(batch.base, batch.end))
            assert [record.timestamp for record in found] == batch.times
            offset = batch.end

    @invariant()
    def times_are_found_as_by_a_linear_search(self):
        records = [
            (batch.base + n, time)
            for batch in self.batches
            for n, time in enumerate(batch.times)
            if batch.base + n >= self.start
        ]
        for wanted in (NOW - 3001, NOW, NOW + 2500):
            expected = next((record for record in records if record[1] >= wanted), None)
            found = by_time(self.log, wanted)
            assert (found and (found.offset, found.timestamp)) == expected

    @invariant()
    def epochs_are_those_of_the_batches(self):
        for batch in self.batches:
            if batch.base >= self.start:
                assert self.log.epochs.epoch_of(batch.base) == batch.epoch

    @invariant()
    def indexes_are_those_of_a_rebuild(self):
        for segment in self.log.segments:
            assert index_faults(segment, CONFIG.index_interval_bytes) == []


def test_the_log_behaves_as_a_list(rig, tmp_path):
    numbers = count()
    make: Any = lambda: LogMachine(lambda: type(rig)(str(tmp_path / str(next(numbers)))))  # noqa: E731  typed as a class
    run_state_machine_as_test(
        make,
        settings=settings(max_examples=80, stateful_step_count=40, deadline=None),
    )
