import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st
from logfleet.log.aborted import AbortedEntry
from logfleet.log.producers import states as producers
from logfleet.log.producers.states import (
    BATCHES_REMEMBERED,
    EPOCH_MAX,
    CorruptSnapshot,
    ProducerStates,
    SeenBatch,
)
from logfleet.records.batch import NO_SEQUENCE, SEQUENCE_MAX, BatchHeader, parse_header
from logfleet.records.checksum import crc32c
from logfleet.records.control import Marker, marker_batch, read_marker
from logfleet.records.record import ProducerStamp, Record, build_batch
from logfleet.wire.errors import ErrorCode

PRODUCER = 7


def batch(sequence, count=3, epoch=0, producer=PRODUCER, timestamp=1000):
    records = [Record(None, None, timestamp)] * count
    return parse_header(build_batch(records, producer=ProducerStamp(producer, epoch, sequence)))


def states_after(*batches, start=100):
    states = ProducerStates()
    for header in batches:
        states.update(header, start)
        start += header.record_count
    return states


def test_an_unknown_producer_may_begin_anywhere():
    assert ProducerStates().check(batch(4711, epoch=9)) is None


def test_the_next_batch_continues_the_sequence():
    states = states_after(batch(0))
    assert states.check(batch(3)) is None
    for wrong in (1, 2, 4, 100):
        assert states.check(batch(wrong)) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


def test_a_batch_sent_again_is_answered_with_its_old_offsets():
    states = states_after(*(batch(sequence) for sequence in range(0, 30, 3)))
    for age in range(BATCHES_REMEMBERED):
        seen = states.check(batch(27 - 3 * age))
        assert isinstance(seen, SeenBatch)
        assert (seen.first_offset, seen.last_offset) == (127 - 3 * age, 129 - 3 * age)
    assert states.check(batch(27 - 15)) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


def test_a_batch_is_the_same_only_if_both_its_ends_are():
    states = states_after(batch(0, count=3))
    assert states.check(batch(0, count=2)) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert states.check(batch(0, count=4)) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


def test_of_a_batch_without_a_sequence_only_the_epoch_is_checked():
    states = states_after(batch(NO_SEQUENCE, epoch=2), batch(NO_SEQUENCE, epoch=2))
    for epoch in (2, 3):
        assert states.check(batch(NO_SEQUENCE, epoch=epoch)) is None
    assert states.check(batch(NO_SEQUENCE, epoch=1)) is ErrorCode.INVALID_PRODUCER_EPOCH
    assert states_after(batch(5)).check(batch(NO_SEQUENCE)) is None


def test_sequences_wrap_to_zero():
    states = states_after(batch(SEQUENCE_MAX - 1, count=2))
    assert states.check(batch(0)) is None
    assert states.check(batch(1)) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    wrapped = states_after(batch(SEQUENCE_MAX, count=2))
    assert isinstance(wrapped.check(batch(SEQUENCE_MAX, count=2)), SeenBatch)
    assert wrapped.check(batch(1)) is None


def test_an_older_epoch_is_fenced_and_a_newer_one_begins_at_zero():
    states = states_after(batch(0, epoch=5), batch(3, epoch=5))
    assert states.check(batch(6, epoch=4)) is ErrorCode.INVALID_PRODUCER_EPOCH
    assert states.check(batch(0, epoch=4)) is ErrorCode.INVALID_PRODUCER_EPOCH
    assert states.check(batch(6, epoch=6)) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert states.check(batch(0, epoch=6)) is None
    states.update(batch(0, epoch=6), 200)
    assert isinstance(states.check(batch(0, epoch=6)), SeenBatch)
    assert states.check(batch(3, epoch=6)) is None


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 2), st.integers(1, 4)), max_size=30))
def test_what_is_accepted_continues_and_what_is_seen_is_one_of_the_last_five(attempts):
    next_sequence: dict[int, tuple[int, int]] = {}
    recent: dict[int, list[tuple[BatchHeader, int]]] = {}
    states, offset = ProducerStates(), 0
    for producer, epoch, count in attempts:
        known_epoch, expected = next_sequence.get(producer, (epoch, 0))
        sequence = expected if epoch == known_epoch else 0
        header = batch(sequence, count, epoch, producer)
        verdict = states.check(header)
        if epoch < known_epoch:
            assert verdict is ErrorCode.INVALID_PRODUCER_EPOCH
            continue
        assert verdict is None
        states.update(header, offset)
        seen = [] if epoch > known_epoch else recent.get(producer, [])
        recent[producer] = [*seen, (header, offset)][-BATCHES_REMEMBERED:]
        next_sequence[producer] = (epoch, sequence + count)
        offset += count
        for again, at in recent[producer]:
            found = states.check(again)
            assert isinstance(found, SeenBatch)
            assert found.first_offset == at


def test_a_snapshot_holds_the_last_batch_of_each_producer():
    states = states_after(batch(0), batch(3), batch(0, producer=8, epoch=2))
    restored = ProducerStates.from_snapshot(states.snapshot())
    assert len(restored) == 2
    assert isinstance(restored.check(batch(3)), SeenBatch)
    assert restored.check(batch(6)) is None
    assert restored.check(batch(0)) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert restored.check(batch(3, producer=8, epoch=2)) is None
    assert restored.snapshot() == states.snapshot()


class Counting:
    """Counts how often an entry is formatted."""

    def __init__(self, entry):
        self._entry, self.size = entry, entry.size
        self.count = 0

    def pack(self, *fields):
        self.count += 1
        return self._entry.pack(*fields)

    def pack_into(self, *arguments):
        self.count += 1
        self._entry.pack_into(*arguments)


def test_a_snapshot_formats_no_entry_so_that_many_producers_do_not_block_the_loop(monkeypatch):
    states = states_after(*(batch(0, producer=number) for number in range(100)))
    expected = states.snapshot()
    counting = Counting(producers._ENTRY)
    monkeypatch.setattr(producers, "_ENTRY", counting)
    assert states.snapshot() == expected
    assert counting.count == 0
    states.update(batch(3), 500)
    assert counting.count == 1


@given(st.lists(st.tuples(st.sampled_from(["update", "expire", "restore"]), st.integers(0, 9))))
def test_a_snapshot_holds_the_present_state_whatever_went_before(steps):
    states, last = ProducerStates(), {}
    for number, (step, producer) in enumerate(steps):
        if step == "update":
            header = batch(number, producer=producer, epoch=number, timestamp=1000 + producer)
            states.update(header, number)
            last[producer] = SeenBatch.of(header, number)
        elif step == "expire":
            states.expire([producer], 1000 + producer, 0)
            last.pop(producer, None)
        else:
            states = ProducerStates.from_snapshot(states.snapshot())
    found = ProducerStates.from_snapshot(states.snapshot())
    assert set(found.ids()) == set(last)
    for producer, seen in last.items():
        told, known = found.get(producer), states.get(producer)
        assert told is not None
        assert known is not None
        assert (told.batches, told.epoch) == ([seen], known.epoch)


def test_a_snapshot_is_kafkas_file():
    data = states_after(batch(5, count=3, epoch=1, timestamp=1234)).snapshot()
    version, crc, count = struct.unpack_from(">hIi", data)
    assert (version, count) == (1, 1)
    assert crc != 0
    fields = struct.unpack_from(">qhiqiqiq", data, 10)
    assert fields == (PRODUCER, 1, 7, 102, 2, 1234, -1, -1)


def test_a_wrapped_batch_survives_a_snapshot():
    states = states_after(batch(SEQUENCE_MAX, count=2))
    restored = ProducerStates.from_snapshot(states.snapshot())
    assert isinstance(restored.check(batch(SEQUENCE_MAX, count=2)), SeenBatch)


@given(st.binary(max_size=100))
def test_garbage_is_no_snapshot(data):
    with pytest.raises(CorruptSnapshot):
        ProducerStates.from_snapshot(data)


SNAPSHOT = states_after(batch(0), batch(0, producer=8)).snapshot()


@pytest.mark.parametrize("position", range(len(SNAPSHOT)))
def test_a_snapshot_with_one_wrong_bit_is_refused(position):
    damaged = bytearray(SNAPSHOT)
    damaged[position] ^= 1
    with pytest.raises(CorruptSnapshot):
        ProducerStates.from_snapshot(bytes(damaged))


@pytest.mark.parametrize("length", range(len(SNAPSHOT)))
def test_a_snapshot_that_was_cut_off_is_refused(length):
    with pytest.raises(CorruptSnapshot):
        ProducerStates.from_snapshot(SNAPSHOT[:length])


def test_a_snapshot_that_names_a_producer_twice_is_damaged():
    body = struct.pack(">i", 2) + 2 * struct.pack(">qhiqiqiq", PRODUCER, 0, 0, 0, 0, 50, -1, -1)
    with pytest.raises(CorruptSnapshot, match="1 producers in 2 entries"):
        ProducerStates.from_snapshot(struct.pack(">hI", 1, crc32c(body)) + body)


def test_a_snapshot_of_a_mere_marker_has_no_batch():
    entry = struct.pack(">qhiqiqiq", PRODUCER, 3, -1, -1, 0, 50, 2, -1)
    good = ProducerStates()
    data = bytearray(good.snapshot()[:6]) + struct.pack(">i", 1) + entry
    struct.pack_into(">I", data, 2, crc32c(bytes(data[6:])))
    restored = ProducerStates.from_snapshot(bytes(data))
    assert restored.check(batch(0, epoch=3)) is None
    assert restored.check(batch(1, epoch=3)) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert restored.check(batch(0, epoch=2)) is ErrorCode.INVALID_PRODUCER_EPOCH


def test_batches_found_in_the_log_again_complete_a_restored_producer():
    headers = [batch(sequence) for sequence in range(0, 21, 3)]
    full = states_after(*headers)
    restored = ProducerStates.from_snapshot(full.snapshot())
    restored.recall(PRODUCER, [SeenBatch.of(h, 100 + 3 * n) for n, h in enumerate(headers[:-1])])
    for again in headers[-BATCHES_REMEMBERED:]:
        assert restored.check(again) == full.check(again)
    assert restored.check(headers[0]) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


def test_idle_producers_are_forgotten():
    states = states_after(batch(0, timestamp=1000), batch(0, producer=8, timestamp=5000))
    states.expire([PRODUCER, 8, 9], now_ms=5999, expiration_ms=5000)
    assert len(states) == 2
    states.expire([8], now_ms=6000, expiration_ms=5000)
    assert len(states) == 2
    states.expire([PRODUCER, 8, 9], now_ms=6000, expiration_ms=5000)
    assert states.get(PRODUCER) is None
    assert states.get(8) is not None


def transactional(sequence, epoch=0, producer=PRODUCER, timestamp=1000):
    stamp = ProducerStamp(producer, epoch, sequence, transactional=True)
    return parse_header(build_batch([Record(None, None, timestamp)], producer=stamp))


def test_a_batch_outside_of_its_producers_open_transaction_is_refused():
    states = ProducerStates()
    states.update_transactional(transactional(0), 5)
    assert states.check(transactional(1)) is None
    assert states.check(batch(1, count=1)) is ErrorCode.INVALID_TXN_STATE
    assert states.check(batch(0, count=1, epoch=1)) is ErrorCode.INVALID_TXN_STATE
    assert states.check(batch(2, count=1)) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    ended(states, 6)
    assert states.check(batch(1, count=1)) is None


def ended(states, offset, *, epoch=0, commit=False, coordinator=0, producer=PRODUCER, now=1000):
    batch_bytes = marker_batch(
        producer, epoch, commit=commit, coordinator_epoch=coordinator, now_ms=now
    )
    marker = read_marker(batch_bytes)
    assert marker is not None
    return states.end(marker, parse_header(batch_bytes), offset)


def with_open_transaction(epoch=0):
    states = ProducerStates()
    states.update_transactional(transactional(0, epoch), 100)
    states.update_transactional(transactional(1, epoch), 101)
    return states


def test_a_transaction_is_open_from_its_first_batch_to_its_marker():
    states = with_open_transaction(epoch=3)
    assert states.is_open(PRODUCER, 3)
    assert not states.is_open(PRODUCER, 2)
    assert not states.is_open(8, 3)
    opened = [(id_, entry.transaction_first_offset) for id_, entry in states.open_transactions()]
    assert opened == [(PRODUCER, 100)]
    assert states.unstable.first(1000) == 100
    assert ended(states, 102, epoch=3, commit=True) is None
    assert not states.is_open(PRODUCER, 3)
    assert list(states.open_transactions()) == []
    assert states.unstable.first(1000) is None


def test_only_an_aborted_transaction_with_records_gets_an_entry():
    states = with_open_transaction()
    states.update_transactional(transactional(0, producer=8), 102)
    assert ended(states, 103, producer=9) is None
    assert ended(states, 104) == AbortedEntry(PRODUCER, 100, 104, 102)
    assert ended(states, 105) is None
    assert ended(states, 106, producer=8) == AbortedEntry(8, 102, 106, 107)


def test_sequences_go_on_behind_a_marker_of_the_same_epoch_and_begin_again_behind_a_newer_one():
    states = with_open_transaction()
    ended(states, 102)
    assert isinstance(states.check(transactional(1)), SeenBatch)
    assert states.check(transactional(2)) is None
    ended(states, 103, epoch=1)
    assert states.check(transactional(0)) is ErrorCode.INVALID_PRODUCER_EPOCH
    assert states.check(transactional(2, epoch=1)) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert states.check(transactional(0, epoch=1)) is None


@pytest.mark.parametrize(
    "version, epoch, verdict",
    [
        (0, 4, ErrorCode.INVALID_PRODUCER_EPOCH),
        (1, 5, None),
        (2, 5, ErrorCode.INVALID_PRODUCER_EPOCH),
        (2, 6, None),
    ],
)
def test_a_marker_ends_an_open_transaction_only_with_a_proper_epoch(version, epoch, verdict):
    marker = Marker(PRODUCER, epoch, is_commit=True, coordinator_epoch=0)
    assert with_open_transaction(epoch=5).check_marker(marker, version) is verdict


def test_a_marker_that_is_sent_again_is_appended_again():
    states = with_open_transaction(epoch=5)
    ended(states, 102, epoch=6)
    again = Marker(PRODUCER, 6, is_commit=False, coordinator_epoch=0)
    assert states.check_marker(again, 2) is None


def test_the_largest_epoch_may_end_a_transaction_of_its_own():
    marker = Marker(PRODUCER, EPOCH_MAX, is_commit=True, coordinator_epoch=0)
    assert with_open_transaction(epoch=EPOCH_MAX).check_marker(marker, 2) is None


def test_a_marker_of_an_older_coordinator_is_fenced_and_one_of_an_unknown_producer_is_legal():
    states = with_open_transaction()
    ended(states, 102, coordinator=7)
    for epoch in (6, 7):
        marker = Marker(PRODUCER, 0, is_commit=True, coordinator_epoch=epoch)
        expected = ErrorCode.TRANSACTION_COORDINATOR_FENCED if epoch == 6 else None
        assert states.check_marker(marker, 1) is expected
    assert states.check_marker(Marker(9, 0, is_commit=True, coordinator_epoch=0), 2) is None


def test_a_marker_counts_for_expiry_and_an_open_transaction_never_expires():
    states = with_open_transaction()
    ended(states, 102, now=5000)
    states.expire([PRODUCER], 5999, 1000)
    assert states.get(PRODUCER)
    states.update_transactional(transactional(2), 103)
    states.expire([PRODUCER], 10**12, 1000)
    assert states.is_open(PRODUCER, 0)
    ended(states, 104, now=6000)
    states.expire([PRODUCER], 7000, 1000)
    assert states.get(PRODUCER) is None


def test_a_snapshot_holds_open_transactions_and_what_markers_set():
    states = with_open_transaction()
    states.update_transactional(transactional(0, producer=8), 102)
    ended(states, 103, epoch=1, coordinator=4)
    ended(states, 104, epoch=2, coordinator=5, producer=9)
    restored = ProducerStates.from_snapshot(states.snapshot())
    assert restored.snapshot() == states.snapshot()
    assert restored.unstable.first(1000) == 102
    assert [id_ for id_, _ in restored.open_transactions()] == [8]
    for id_, epoch, coordinator in ((PRODUCER, 1, 4), (9, 2, 5)):
        entry = restored.get(id_)
        assert entry is not None
        assert (entry.epoch, entry.coordinator_epoch, entry.batches) == (epoch, coordinator, [])
