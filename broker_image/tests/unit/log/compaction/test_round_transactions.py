"""Rounds over logs with transactions that end in other segments, groups and rounds than they began."""

import msgspec
import pytest
from logfleet.log.aborted import AbortedEntry
from logfleet.log.config import LogConfig
from logfleet.log.producers.history import ProducerHistory
from logfleet.records.control import Marker
from logfleet.records.record import ProducerStamp, Record, build_batch
from logfleet.types import LeaderEpoch

from broker_image.tests.unit.log.compaction.compaction_rig import (
    SETTINGS,
    batches,
    compact,
    flushed,
    latest,
)

NOW = 1_700_000_000_000
RETENTION_MS = 1000
EPOCH = LeaderEpoch(1)
TINY = LogConfig(
    segment_bytes=150,  # a batch or a marker each
    index_interval_bytes=100,
    file_delete_delay_ms=0,
    delete_retention_ms=RETENTION_MS,
    cleanup_policy=frozenset({"compact"}),
)
OTHER = 99


class Log:
    """A log in which each batch has a segment of its own."""

    def __init__(self, rig):
        self.rig = rig
        self.log = rig.open(TINY)
        self.now = NOW
        self.sequences: dict[int, int] = {}

    def write(self, key, producer=None):
        """One record; returns its offset."""
        stamp = None
        if producer is not None:
            sequence = self.sequences.get(producer, 0)
            self.sequences[producer] = sequence + 1
            stamp = ProducerStamp(producer, 0, sequence, transactional=True)
        record = Record(key, bytes(60), self.now)
        return self.log.append_as_leader(
            build_batch([record], producer=stamp), EPOCH, self.now
        ).base_offset

    def end(self, producer, *, commit):
        self.now += 1
        marker = Marker(producer, 0, is_commit=commit, coordinator_epoch=0)
        (result,) = self.log.append_markers([(marker, 1)], EPOCH, self.now)
        return result.base_offset

    def compact(self, pass_ms=0, settings=SETTINGS):
        self.now += pass_ms
        log = flushed(self.log, self.rig.files)
        stable = log.last_stable_offset(log.log_end_offset)
        return compact(log, self.rig.files, self.now, stable, settings)

    def expire_producers(self):
        states = self.log.producers.states
        states.expire(list(states.ids()), self.now, 0)

    @property
    def kept(self):
        """(offset, number of records) of the batches."""
        return [(header.base_offset, len(records)) for header, records in batches(self.log)]

    @property
    def offsets(self):
        return [offset for offset, _ in self.kept]


@pytest.fixture
def log(rig):
    return Log(rig)


def later_round(log):
    """A round after everything's horizon, with something dirty."""
    log.write(b"filler")
    log.write(b"filler")
    log.compact(pass_ms=RETENTION_MS)


@pytest.mark.parametrize("commit", [True, False])
def test_a_marker_in_a_later_group_than_its_records_stays_while_they_are_there(log, commit):
    """KAFKA-8351."""
    first = log.write(b"key", 1)
    marker = log.end(1, commit=commit)
    log.write(b"other")
    log.expire_producers()
    log.compact()
    assert log.offsets[: 2 if commit else 1] == ([first, marker] if commit else [marker])
    later_round(log)
    later_round(log)
    assert (marker in log.offsets) == commit


def test_a_marker_goes_a_round_and_the_retention_after_its_last_record(log):
    log.write(b"key", 1)
    marker = log.end(1, commit=True)
    log.expire_producers()
    log.write(b"key")
    log.write(b"other")
    log.compact(pass_ms=RETENTION_MS)  # its record goes
    assert log.offsets[0] == marker
    log.write(b"other")
    log.compact(pass_ms=RETENTION_MS)  # its horizon is set
    assert log.offsets[0] == marker
    log.write(b"other")
    log.compact(pass_ms=RETENTION_MS - 1)
    assert log.offsets[0] == marker
    log.write(b"other")
    log.compact(pass_ms=1)
    assert marker not in log.offsets


def test_an_aborted_record_takes_no_committed_one_of_its_key_away(log):
    committed = log.write(b"key")
    log.write(b"key", 1)
    log.end(1, commit=False)
    log.write(b"other")
    log.compact()
    assert log.kept[0] == (committed, 1)
    assert b"key" in latest(log.log)


def test_aborted_records_go_though_their_marker_lies_behind_what_is_cleaned(log):
    kept = log.write(b"first")
    aborted = log.write(b"key", 1)
    blocking = log.write(b"open", 2)
    log.end(1, commit=False)
    log.write(b"other")
    log.expire_producers()
    assert log.compact().end_offset == blocking
    # the last batch of what is cleaned holds its end, and that of its producer the sequence
    assert log.kept[:3] == [(kept, 1), (aborted, 0), (blocking, 1)]


def test_a_full_map_ends_the_round_before_the_marker_of_an_aborted_transaction(log):
    """KAFKA-13727: where the map is full its transaction is known to be aborted all the same."""
    aborted = [log.write(b"key", 1)]
    plain = [log.write(b"%d" % number) for number in range(3)]
    aborted.append(log.write(b"0", 1))
    log.end(1, commit=False)
    log.write(b"other")
    tiny = msgspec.structs.replace(SETTINGS, map_bytes=24 * 3)  # two keys
    done = log.compact(settings=tiny)
    assert done.end_offset == plain[2]
    assert log.offsets[:3] == plain
    log.compact(settings=tiny)
    assert log.offsets[:3] == plain
    assert (aborted[1], 0) in log.kept  # it has the last sequence of its producer


def test_the_entry_of_an_aborted_transaction_goes_with_its_last_batch(log):
    first = log.write(b"key", 1)
    log.log.config = msgspec.structs.replace(TINY, segment_bytes=300)
    marker = log.end(1, commit=False)
    log.write(b"other")
    log.write(b"other")
    entry = AbortedEntry(1, first, marker, marker + 1)
    assert log.log.aborted(0, 1) == [entry]
    log.compact()
    assert log.kept[:2] == [(first, 0), (marker, 1)]  # the producer is active
    assert log.log.aborted(0, 1) == [entry]
    log.expire_producers()
    later_round(log)
    assert log.log.aborted(0, 1) == [entry]  # a reader may still have what this round removed
    later_round(log)
    assert log.log.aborted(0, log.log.log_end_offset) == []
    assert log.offsets[0] == marker
    assert not log.rig.names(".txnindex")


def test_no_snapshot_stays_that_holds_a_transaction_open_without_its_marker(log):
    log.write(b"key", 1)
    between = log.write(b"stays")  # so the segment stays, and would keep the snapshot at its base
    marker = log.end(1, commit=True)
    log.write(b"key")
    log.expire_producers()
    assert between in log.log.producers.offsets
    for _ in range(3):
        assert log.log.producers.offsets
        later_round(log)
    assert marker not in log.offsets
    for offset in log.log.producers.offsets:
        history = ProducerHistory(log.rig.files, log.log.directory, [offset])
        history.restore(log.log.segments, log.log.log_end_offset)
        assert not list(history.states.open_transactions())
    names = {int(name[:20]) for name in log.rig.names(".snapshot")}
    assert names == set(log.log.producers.offsets)
    assert min(names) > marker


def test_an_active_producer_is_found_again_by_its_last_marker(log):
    """Its transaction had no records here."""
    log.end(OTHER, commit=True)
    marker = log.end(OTHER, commit=True)
    log.write(b"key")
    for _ in range(3):
        later_round(log)
    assert log.offsets[0] == marker
    history = ProducerHistory(log.rig.files, log.log.directory, [])
    history.restore(log.log.segments, log.log.log_end_offset)
    found, expected = history.states.get(OTHER), log.log.producers.states.get(OTHER)
    assert found is not None
    assert (found.epoch, found.coordinator_epoch) == (expected.epoch, expected.coordinator_epoch)
    log.expire_producers()
    later_round(log)
    assert marker not in log.offsets
