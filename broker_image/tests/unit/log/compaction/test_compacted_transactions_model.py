"""Compaction of a log with transactions against a list of records in memory (I20, I32, I33).

Any sequence of plain and transactional batches, markers, rounds, restarts and crashes, with any
borders of segments and any size of the map. What a round leaves is known: below its end the newest
record of each key that is committed or plain, above it everything but the aborted records of the
segments that it wrote. A batch in which the map of keys fills up lies above the end, but records
below that its first keys replace may go, as in Kafka's Cleaner.
"""

from itertools import count
from typing import Any

import msgspec
import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    rule,
    run_state_machine_as_test,
)
from logfleet.io.files import remove_if_there
from logfleet.log.config import LogConfig
from logfleet.log.directories import trash
from logfleet.log.producers.history import ProducerHistory
from logfleet.log.producers.states import ProducerStates
from logfleet.log.segments.file_slice import FileSlice
from logfleet.records.aborted import AbortedTransaction, visible_batches
from logfleet.records.batch import iterate_headers
from logfleet.records.control import Marker
from logfleet.records.record import ProducerStamp, Record, build_batch, read_records
from logfleet.types import LeaderEpoch

from broker_image.tests.unit.log.compaction.compaction_rig import SETTINGS, compact, flushed

NOW = 1_700_000_000_000
DELETE_RETENTION_MS = 1000
EPOCH = LeaderEpoch(1)
PRODUCERS = st.integers(1, 3)
OPEN, COMMITTED, ABORTED = "open", "committed", "aborted"

SLOTS = st.sampled_from([3, 4, 100])
"""Of the map of keys."""
TRANSACTIONS = st.tuples(
    st.none() | PRODUCERS,
    st.lists(st.integers(0, 6), max_size=2),
    st.sampled_from([COMMITTED, ABORTED, COMMITTED, ABORTED, None]),
    st.booleans(),
)
"""(producer, keys of a batch, how it ends if it does, whether with a new epoch)"""


class Written(msgspec.Struct):
    """A record that was appended.

    batch: base offset. outcome: of its transaction; a plain one is committed.
    """

    offset: int
    batch: int
    key: bytes
    value: bytes
    producer: int | None
    outcome: str


class Producer(msgspec.Struct):
    epoch: int = 0
    sequence: int = 0
    coordinator: int = -1
    is_open: bool = False


class TransactionsMachine(RuleBasedStateMachine):
    def __init__(self, make_rig):
        super().__init__()
        self.rig = make_rig()
        self.now = NOW
        self.end = 0
        self.records: list[Written] = []
        self.producers = {id_: Producer() for id_ in (1, 2, 3)}
        self.newest: dict[bytes, Written] = {}  # committed, whatever rounds have removed
        self.checkpointed = 0
        self.coordinator = 0
        self.gone = self.markers_gone = self.partial = self.replaced = 0

    @initialize(
        segment_bytes=st.sampled_from([200, 420, 800, 3000]),
        history=st.lists(TRANSACTIONS, min_size=8, max_size=20),
        slots=SLOTS,
    )
    def begin(self, segment_bytes, history, slots):
        """With something that was compacted, so that what follows meets it."""
        self.config = LogConfig(
            segment_bytes=segment_bytes,
            index_interval_bytes=150,
            file_delete_delay_ms=0,
            delete_retention_ms=DELETE_RETENTION_MS,
            cleanup_policy=frozenset({"compact"}),
        )
        self.log = self.rig.open(self.config)
        self.append(history)
        self.compact(slots=slots, pass_ms=0)

    # What happens

    @rule(wanted=st.lists(TRANSACTIONS, min_size=1, max_size=6))
    def append(self, wanted):
        """Batches of plain records, and of transactions; some end there, or without records."""
        for id_, keys, ending, is_v2 in wanted:
            if keys:
                self.write(id_, keys)
            if id_ is not None and ending is not None:
                self.decide(id_, ending == COMMITTED, is_v2)

    @rule(is_commit=st.booleans())
    def end_all(self, is_commit):
        for id_, producer in self.producers.items():
            if producer.is_open:
                self.decide(id_, is_commit, is_v2=True)

    @rule(is_commit=st.booleans(), rounds=st.integers(2, 3))
    def compact_until_markers_go(self, is_commit, rounds):
        self.end_all(is_commit)
        for _ in range(rounds):
            for number in range(self.config.segment_bytes // 90 + 1):
                self.write(None, [number % 3])
            self.compact(slots=100, pass_ms=DELETE_RETENTION_MS)

    def write(self, id_, keys):
        self.now += 3
        new = [
            Written(offset, self.end, b"key %d" % key, b"%d" % offset * 9, id_, COMMITTED)
            for offset, key in enumerate(keys, self.end)
        ]
        stamp = None
        if id_ is not None:
            producer = self.producers[id_]
            stamp = ProducerStamp(id_, producer.epoch, producer.sequence, transactional=True)
            producer.sequence += len(new)
            producer.is_open = True
            for each in new:
                each.outcome = OPEN
        records = [Record(each.key, each.value, self.now) for each in new]
        batch = build_batch(records, producer=stamp)
        assert self.log.append_as_leader(batch, EPOCH, self.now).base_offset == self.end
        self.records += new
        self.end += len(new)
        self.committed(new)

    def decide(self, id_, is_commit, is_v2):
        """With a new epoch, or with the same."""
        self.now += 3
        self.coordinator += 1
        producer = self.producers[id_]
        marker = Marker(id_, producer.epoch + is_v2, is_commit, self.coordinator)
        (result,) = self.log.append_markers([(marker, 1 + is_v2)], EPOCH, self.now)
        assert result.base_offset == self.end
        self.end += 1
        if is_v2:
            producer.epoch, producer.sequence = producer.epoch + 1, 0
        producer.coordinator, producer.is_open = self.coordinator, False
        ended = [each for each in self.records if each.producer == id_ and each.outcome == OPEN]
        for each in ended:
            each.outcome = COMMITTED if is_commit else ABORTED
        self.committed(ended)

    def committed(self, records):
        for each in records:
            before = self.newest.get(each.key)
            if each.outcome == COMMITTED and (before is None or before.offset < each.offset):
                self.newest[each.key] = each

    @rule(slots=SLOTS, pass_ms=st.sampled_from([0, 1, DELETE_RETENTION_MS]))
    def compact(self, slots, pass_ms):
        self.now += pass_ms
        flushed(self.log, self.rig.files)
        self.checkpointed = self.end
        stable = self.stable
        bases = [segment.base_offset for segment in self.log.segments]
        markers = self.markers
        limits = msgspec.structs.replace(SETTINGS, map_bytes=24 * slots)
        done = compact(self.log, self.rig.files, self.now, stable, limits)
        trash.remove(self.rig.files, self.rig.trash.take_due(self.now))
        if done is None:
            return
        assert self.log.last_stable_offset(self.end) == stable
        written = min((base for base in bases if base >= done.end_offset), default=self.end)
        assert written <= stable
        kept = self.left_by(done.end_offset, written, is_map_full=done.map_utilization == 1)
        self.partial += done.end_offset not in bases
        self.gone += len(self.records) - len(kept)
        self.markers_gone += markers - self.markers
        self.records = kept

    def left_by(self, end, written, *, is_map_full):
        """The records that a round leaves which ends at `end` and wrote segments up to `written`.

        The log is asked only for those that the batch after the end replaces: a full map may hold
        the keys of all its records but the last.
        """
        newest = {}
        for each in self.records:
            if each.offset < end and each.outcome == COMMITTED:
                newest[each.key] = each.offset
        behind = [each for each in self.records if each.outcome == COMMITTED and each.offset >= end]
        batch = [each for each in behind if each.batch == behind[0].batch]
        may_be_mapped = {each.key for each in batch[:-1]} if is_map_full else set()
        in_log = {offset for offset, _, _ in self.read(0, self.end)}
        kept = []
        for each in self.records:
            if each.offset >= end:
                stays = each.offset >= written or each.outcome == COMMITTED
            else:
                stays = newest.get(each.key) == each.offset
                if stays and each.key in may_be_mapped and each.offset not in in_log:
                    self.replaced += 1
                    stays = False
            if stays:
                kept.append(each)
        return kept

    @property
    def markers(self):
        found = (marker for segment in self.log.segments for _, marker in segment.markers())
        return sum(marker is not None for marker in found)

    @rule(is_clean=st.booleans())
    def start_again(self, is_clean):
        first_dirty = self.log.first_dirty_offset
        if is_clean:
            self.rig.close(self.log)
            self.checkpointed = self.end
        self.log = self.rig.open(
            self.config,
            clean=is_clean,
            recovery_point=self.checkpointed,
            first_dirty_offset=first_dirty,
            now_ms=self.now,
        )

    @rule(pick=st.integers(0, 1000))
    def start_without_an_index(self, pick):
        """The segment is read again, and its transaction index rebuilt."""
        self.rig.close(self.log)
        segment = self.log.segments[pick % len(self.log.segments)]
        for index in (segment.offset_index, segment.transaction_index):
            remove_if_there(self.rig.files, index.path)
        self.log = self.rig.open(
            self.config, first_dirty_offset=self.log.first_dirty_offset, now_ms=self.now
        )
        self.checkpointed = self.end

    # What holds

    @property
    def stable(self):
        return min((each.offset for each in self.records if each.outcome == OPEN), default=self.end)

    @invariant()
    def the_last_stable_offset_is_that_of_the_open_transactions(self):
        assert self.log.last_stable_offset(self.end) == self.stable
        assert self.log.log_end_offset == self.end

    @invariant()
    def a_reader_of_all_records_gets_those_that_no_round_removed(self):
        assert list(self.read(0, self.end)) == [
            (each.offset, each.key, each.value) for each in self.records
        ]

    @invariant()
    def the_newest_committed_value_of_each_key_stays(self):
        """A promise by itself, whatever the model says of a round."""
        found = {offset: value for offset, _, value in self.read(0, self.end)}
        for each in self.newest.values():
            assert found.get(each.offset) == each.value

    @invariant()
    def a_reader_of_committed_records_gets_those_from_every_offset_and_in_any_pieces(self):
        stable = self.stable
        committed = [
            (each.offset, each.key, each.value)
            for each in self.records
            if each.outcome == COMMITTED and each.offset < stable
        ]
        for start, max_bytes in [(0, 1), (0, 1 << 20), (self.end // 2, 300), (self.end // 3, 1)]:
            expected = [each for each in committed if each[0] >= start]
            if start <= stable:
                assert list(self.read(start, stable, max_bytes, committed=True)) == expected

    def read(self, start, end, max_bytes=1 << 20, *, committed=False):
        offset = start
        while isinstance(piece := self.log.read(offset, max_bytes, end), FileSlice):
            content = piece.read()
            aborted = [
                AbortedTransaction(entry.producer_id, entry.first_offset)
                for entry in self.log.aborted(offset, piece.end_offset)
            ]
            chosen = visible_batches(content, aborted) if committed else iterate_headers(content)
            for position, header in chosen:
                if not header.is_control:
                    for record in read_records(content, position):
                        if record.offset >= start:
                            yield record.offset, record.key, record.value
            offset = piece.end_offset

    @invariant()
    def the_producers_are_those_that_wrote(self):
        for id_, producer in self.producers.items():
            entry = self.log.producers.states.get(id_)
            if entry is not None:
                assert entry.epoch == producer.epoch
                assert entry.coordinator_epoch == producer.coordinator
                assert self.log.producers.states.is_open(id_, producer.epoch) == producer.is_open

    @invariant()
    def the_producers_are_those_of_a_rebuild_from_all_batches_and_from_each_snapshot(self):
        expected = facts(self.log.producers.states)
        for snapshots in ([], *([offset] for offset in self.log.producers.offsets)):
            history = ProducerHistory(self.rig.files, self.log.directory, snapshots)
            assert history.restore(self.log.segments, self.end) == []
            assert facts(history.states) == expected


def facts(states: ProducerStates):
    """What compaction keeps of each producer: not the batches before its last.

    The coordinator's epoch may be forgotten while a transaction is open, see `batch_cleaning`.
    """
    found = {}
    for id_ in states.ids():
        entry = states.get(id_)
        assert entry is not None
        is_open = entry.transaction_first_offset >= 0
        last = entry.batches[-1] if entry.batches else None
        found[id_] = (
            entry.epoch,
            last and (last.first_sequence, last.last_sequence, last.last_offset),
            entry.last_timestamp,
            entry.transaction_first_offset,
            is_open or entry.coordinator_epoch,
        )
    return found


def new_machine(rig, tmp_path, numbers):
    return TransactionsMachine(lambda: type(rig)(str(tmp_path / str(next(numbers)))))


def test_a_compacted_log_with_transactions_behaves_as_a_list(rig, tmp_path):
    numbers = count()
    make: Any = lambda: new_machine(rig, tmp_path, numbers)  # noqa: E731  typed as a class
    run_state_machine_as_test(
        make,
        settings=settings(
            max_examples=40,
            stateful_step_count=12,
            deadline=None,
            suppress_health_check=[HealthCheck.too_slow],
        ),
    )


def all_holds(machine):
    machine.the_last_stable_offset_is_that_of_the_open_transactions()
    machine.a_reader_of_all_records_gets_those_that_no_round_removed()
    machine.the_newest_committed_value_of_each_key_stays()
    machine.a_reader_of_committed_records_gets_those_from_every_offset_and_in_any_pieces()
    machine.the_producers_are_those_that_wrote()
    machine.the_producers_are_those_of_a_rebuild_from_all_batches_and_from_each_snapshot()


@pytest.mark.parametrize("segment_bytes", [420, 800, 3000])
def test_rounds_end_within_segments_and_remove_records_and_markers(rig, tmp_path, segment_bytes):
    """What the drawn histories are for, in a fixed one: draws of few examples may miss it."""
    machine = new_machine(rig, tmp_path, count())
    endings = [COMMITTED, None, ABORTED]
    history = [(n % 4 or None, [n % 7, n % 5], endings[n % 3], n % 2 == 0) for n in range(40)]
    machine.begin(segment_bytes=segment_bytes, history=history, slots=4)
    all_holds(machine)
    for slots in (3, 4):
        machine.append(history)
        machine.compact(slots=slots, pass_ms=1)
        all_holds(machine)
    machine.compact_until_markers_go(is_commit=False, rounds=3)
    all_holds(machine)
    assert machine.gone > 40
    assert machine.markers_gone > 10
    assert machine.partial > 0


def test_a_key_of_the_batch_that_fills_the_map_replaces_its_record_below_the_end(rig, tmp_path):
    """As in Kafka's Cleaner: the record that replaces it stays, as it lies above the end."""
    machine = new_machine(rig, tmp_path, count())
    history = [(None, [2], None, False), (None, [0, 1], None, False), (1, [2, 0], COMMITTED, False)]
    machine.begin(segment_bytes=200, history=[*history, (None, [5], None, False)], slots=3)
    machine.compact(slots=4, pass_ms=0)
    all_holds(machine)
    assert machine.replaced == 1
    assert [each.offset for each in machine.records] == [1, 2, 3, 4, 6]
