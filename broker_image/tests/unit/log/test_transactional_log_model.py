"""Transactions in a log against a list of batches in memory (I31-I33).

Any sequence of plain and transactional batches, markers, cuts, deletions, restarts and crashes.
"""

import dataclasses
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
from logfleet.io.files import read_file, remove_if_there
from logfleet.log.aborted import AbortedEntry
from logfleet.log.config import LogConfig
from logfleet.log.producers.history import ProducerHistory
from logfleet.log.producers.states import CorruptSnapshot, ProducerStates
from logfleet.records.batch import assign_offsets
from logfleet.records.control import Marker, marker_batch
from logfleet.records.record import ProducerStamp, Record, build_batch
from logfleet.types import LeaderEpoch

from broker_image.tests.sim.disk import SimDisk
from broker_image.tests.unit.log.log_rig import LogRig
from broker_image.tests.unit.log.retaining import retain

NOW = 1_700_000_000_000
CONFIG = LogConfig(segment_bytes=900, index_interval_bytes=200, file_delete_delay_ms=0)
EPOCH = LeaderEpoch(3)
PRODUCERS = st.integers(1, 3)


@dataclasses.dataclass(frozen=True)
class Batch:
    """One batch of the history. marker: whether it commits, for a marker."""

    base: int
    end: int
    producer: int | None
    epoch: int = 0
    transactional: bool = False
    marker: bool | None = None
    coordinator: int = -1


@dataclasses.dataclass(frozen=True)
class Ended:
    entry: AbortedEntry
    is_commit: bool


class History:
    """What follows from a list of batches, by brute force."""

    def __init__(self, batches):
        self.open: dict[int, int] = {}
        self.ended: list[Ended] = []
        self.epochs: dict[int, tuple[int, int]] = {}
        self.sequences: dict[int, int] = {}
        for batch in batches:
            if batch.producer is not None:
                self._add(batch)

    def _add(self, batch):
        producer = batch.producer
        epoch, coordinator = self.epochs.get(producer, (batch.epoch, -1))
        if batch.epoch != epoch:
            self.sequences[producer] = 0
        self.epochs[producer] = (batch.epoch, coordinator)
        if batch.marker is None:
            self.sequences[producer] = self.sequences.get(producer, 0) + batch.end - batch.base
            if batch.transactional:
                self.open.setdefault(producer, batch.base)
            return
        self.epochs[producer] = (batch.epoch, batch.coordinator)
        first = self.open.pop(producer, None)
        if first is not None:
            stable = min(self.open.values(), default=batch.base + 1)
            entry = AbortedEntry(producer, first, batch.base, stable)
            self.ended.append(Ended(entry, batch.marker))

    @property
    def aborted(self):
        return [ended.entry for ended in self.ended if not ended.is_commit]


class TransactionMachine(RuleBasedStateMachine):
    def __init__(self, make_rig):
        super().__init__()
        self.make_rig = make_rig
        self.batches: list[Batch] = []  # all that were appended and not cut off, deleted ones too
        self.start = self.high_watermark = self.checkpointed = 0
        self.restored_at = 0  # what ended before may be forgotten, though not replicated
        self.coordinator = 0

    @initialize(seed=st.integers(0, 2**16))
    def begin(self, seed):
        self.rig = self.make_rig(seed)
        self.log = self.rig.open(CONFIG)

    @property
    def end(self):
        return max(self.batches[-1].end if self.batches else 0, self.start)

    @property
    def history(self):
        return History(self.batches)

    def data(self, producer, transactional, size, base):
        history = self.history
        if producer is None:
            return Batch(base, base + size, None), None
        epoch, _ = history.epochs.get(producer, (0, -1))
        transactional = transactional or producer in history.open
        stamp = ProducerStamp(
            producer, epoch, history.sequences.get(producer, 0), transactional=transactional
        )
        return Batch(base, base + size, producer, epoch, transactional), stamp

    def encoded(self, batch, stamp):
        records = [Record(None, b"%d;" % n * 20, NOW + n) for n in range(batch.base, batch.end)]
        return build_batch(records, producer=stamp)

    @rule(producer=st.none() | PRODUCERS, transactional=st.booleans(), size=st.integers(1, 2))
    def append(self, producer, transactional, size):
        batch, stamp = self.data(producer, transactional, size, self.end)
        result = self.log.append_as_leader(self.encoded(batch, stamp), EPOCH, NOW)
        assert (result.base_offset, result.last_offset) == (batch.base, batch.end - 1)
        self.batches.append(batch)

    @rule(wanted=st.lists(st.tuples(PRODUCERS, st.booleans(), st.booleans()), max_size=4))
    def end_transactions(self, wanted):
        """Also those without records, and several of one producer in one request."""
        self.coordinator += 1
        markers = []
        for producer, is_commit, is_v2 in wanted:
            epoch, _ = self.history.epochs.get(producer, (0, -1))
            marker = Marker(producer, epoch + is_v2, is_commit, self.coordinator)
            markers.append((marker, 2 if is_v2 else 1))
            self.batches.append(self.batch_of(marker, self.end))
        results = self.log.append_markers(markers, EPOCH, NOW)
        added = self.batches[len(self.batches) - len(wanted) :]
        assert [result.base_offset for result in results] == [batch.base for batch in added]

    @staticmethod
    def batch_of(marker, base):
        return Batch(
            base,
            base + 1,
            marker.producer_id,
            marker.epoch,
            transactional=True,
            marker=marker.is_commit,
            coordinator=marker.coordinator_epoch,
        )

    @rule(
        wanted=st.lists(
            st.tuples(PRODUCERS, st.none() | st.booleans(), st.booleans()), min_size=1, max_size=6
        )
    )
    def follow(self, wanted):
        """Batches and markers from a leader, in one run."""
        run = bytearray()
        for producer, is_commit, is_new_epoch in wanted:
            base = self.end
            if is_commit is None:
                batch, stamp = self.data(producer, is_new_epoch, 1, base)
                encoded = self.encoded(batch, stamp)
            else:
                epoch, coordinator = self.history.epochs.get(producer, (0, 0))
                marker = Marker(producer, epoch + is_new_epoch, is_commit, coordinator)
                batch = self.batch_of(marker, base)
                encoded = marker_batch(
                    producer,
                    marker.epoch,
                    commit=is_commit,
                    coordinator_epoch=coordinator,
                    now_ms=NOW,
                )
            assign_offsets(encoded, base, EPOCH)
            run += encoded
            self.batches.append(batch)
        assert self.log.append_as_follower(memoryview(run), EPOCH, NOW) == len(run)

    @rule(pick=st.integers(0, 1000))
    def replicate(self, pick):
        self.high_watermark += pick % (self.end - self.high_watermark + 1)

    @rule(pick=st.integers(0, 1000))
    def truncate(self, pick):
        ends = [self.start, *(b.end for b in self.batches if b.end > self.start)]
        target = ends[pick % len(ends)]
        if target < self.end:
            self.rig.truncate(self.log, target)
            self.restored(target)

    def restored(self, end):
        self.batches = [batch for batch in self.batches if batch.end <= end]
        self.high_watermark = min(self.high_watermark, self.end)
        self.high_watermark = max(self.high_watermark, self.start)
        self.checkpointed = min(self.checkpointed, end)
        self.restored_at = self.end

    @rule(pick=st.integers(0, 1000))
    def delete_records(self, pick):
        self.start += pick % (self.high_watermark - self.start + 1)
        self.log.delete_records_before(self.start)

    @rule()
    def retain(self):
        retain(self.log, NOW, self.high_watermark)

    @rule()
    def flush(self):
        self.rig.flush(self.log)
        self.checkpointed = self.end

    @rule()
    def stop_and_start(self):
        self.rig.close(self.log)
        self.log = self.rig.open(CONFIG, log_start_offset=self.start)
        assert self.log.recovered_bytes == 0
        self.checkpointed = self.restored_at = self.end

    @rule(pick=st.integers(0, 1000))
    def start_without_an_index(self, pick):
        """The segment is read again: so is what belongs into its transaction index."""
        self.rig.close(self.log)
        segment = self.log.segments[pick % len(self.log.segments)]
        for index in (segment.offset_index, segment.transaction_index):
            remove_if_there(self.rig.files, index.path)
        self.log = self.rig.open(CONFIG, log_start_offset=self.start)
        self.checkpointed = self.restored_at = self.end

    @rule()
    def crash_and_start(self):
        self.start_after_a_crash()
        assert self.log.log_end_offset == self.end
        self.restored_at = self.end

    def start_after_a_crash(self):
        self.log = self.rig.open(
            CONFIG, clean=False, recovery_point=self.checkpointed, log_start_offset=self.start
        )

    @precondition(lambda self: isinstance(self.rig.files, SimDisk))
    @rule()
    def lose_power_and_start(self):
        if self.start > self.checkpointed:  # deletions are recorded behind the recovery point
            self.flush()
        self.rig.files.lose_power()
        self.start_after_a_crash()
        assert self.log.log_end_offset >= max(self.checkpointed, self.start)
        self.restored(self.log.log_end_offset)

    @invariant()
    def open_transactions_and_epochs_are_those_of_the_history(self):
        history, states = self.history, self.log.producers.states
        found = {id_: entry.transaction_first_offset for id_, entry in states.open_transactions()}
        assert found == history.open
        for producer, (epoch, coordinator) in history.epochs.items():
            entry = states.get(producer)
            assert entry is not None
            assert (entry.epoch, entry.coordinator_epoch) == (epoch, coordinator)
            assert states.is_open(producer, epoch) == (producer in history.open)

    @invariant()
    def the_last_stable_offset_is_below_all_that_is_unstable(self):
        history, high_watermark = self.history, self.high_watermark
        late = [each.entry for each in history.ended if each.entry.last_offset >= high_watermark]
        known = [entry.first_offset for entry in late if entry.last_offset >= self.restored_at]
        found = self.log.last_stable_offset(high_watermark)
        assert found <= self.stable(high_watermark, [*history.open.values(), *known])
        forgotten = [entry.first_offset for entry in late]
        assert found >= self.stable(high_watermark, [*history.open.values(), *forgotten])

    def stable(self, high_watermark, first_offsets):
        first = min(first_offsets, default=high_watermark)
        return min(high_watermark, max(first, self.start))

    @invariant()
    def aborted_transactions_are_those_of_the_history_from_every_offset(self):
        aborted = self.history.aborted
        for start in range(self.start, self.end + 1):
            for end in range(start, self.end + 2):
                expected = [e for e in aborted if e.last_offset >= start and e.first_offset < end]
                assert self.log.aborted(start, end) == expected

    @invariant()
    def the_state_is_that_of_a_rebuild_from_any_snapshot(self):
        log, expected = self.log, entries(self.log.producers.states)
        for offset in log.producers.offsets:
            content = read_file(self.rig.files, log.producers.path(offset))
            if is_readable(content):  # else a power loss has taken some of it
                history = ProducerHistory(self.rig.files, log.directory, [offset])
                assert history.restore(log.segments, log.log_end_offset) == []
                assert entries(history.states) == expected


def is_readable(snapshot):
    try:
        ProducerStates.from_snapshot(snapshot or b"")
    except CorruptSnapshot:
        return False
    return True


def entries(states):
    """Their fields in a snapshot, in order."""
    body = states.snapshot()[10:]
    return sorted(body[at : at + 46] for at in range(0, len(body), 46))


def run(make_rig, **options):
    make: Any = lambda: TransactionMachine(make_rig)  # noqa: E731  typed as a class
    run_state_machine_as_test(make, settings=settings(deadline=None, **options))


def test_transactions_in_a_log_are_those_of_its_batches(rig, tmp_path):
    numbers = count()
    run(
        lambda _seed: type(rig)(str(tmp_path / str(next(numbers)))),
        max_examples=30,
        stateful_step_count=30,
    )


def test_transactions_in_a_log_are_those_of_its_batches_after_power_losses():
    def make_rig(seed):
        disk = SimDisk(seed)
        rig = LogRig("/data", disk)
        disk.fsync_directory("/data")
        rig.flush(rig.open(CONFIG))
        return rig

    run(make_rig, max_examples=100, stateful_step_count=30)
