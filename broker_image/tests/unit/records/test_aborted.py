import struct

import pytest
from logfleet.records.aborted import AbortedTransaction, visible_batches
from logfleet.records.batch import HEADER_SIZE, assign_offsets, replace_payload, write_crc
from logfleet.records.compression import Codec
from logfleet.records.control import marker_batch
from logfleet.records.errors import CorruptRecords
from logfleet.records.record import ProducerStamp, Record, build_batch
from logfleet.types import LeaderEpoch

COMMIT, ABORT = 1, 0
A, B = 7, 8


def data(offset: int, producer_id: int | None, count: int = 1) -> bytearray:
    """A batch of a transaction of this producer, or (None) one without a producer."""
    records = [Record(None, b"v", 0)] * count
    stamp = ProducerStamp() if producer_id is None else ProducerStamp(producer_id, 0, 0, True)
    return build_batch(records, base_offset=offset, producer=stamp)


def marker(offset: int, producer_id: int, kind: int) -> bytearray:
    batch = marker_batch(producer_id, 0, commit=kind == COMMIT, coordinator_epoch=0, now_ms=0)
    assign_offsets(batch, offset, LeaderEpoch(0))
    return batch


def seen(*batches: bytearray, aborted: list[tuple[int, int]]) -> list[int]:
    """The base offsets of the visible batches."""
    rows = [AbortedTransaction(*row) for row in aborted]
    found = visible_batches(b"".join(batches), rows)
    return [header.base_offset for _, header in found]


def test_without_aborted_transactions_all_but_the_markers_are_visible() -> None:
    log = [data(0, A), data(1, None), marker(2, A, COMMIT), data(3, B)]
    assert seen(*log, aborted=[]) == [0, 1, 3]


def test_batches_of_an_aborted_transaction_are_left_out_among_those_of_others() -> None:
    log = [data(0, None), data(1, A), data(2, B), data(3, A), marker(4, A, ABORT), data(5, B)]
    assert seen(*log, aborted=[(A, 1)]) == [0, 2, 5]


def test_a_producer_without_a_transaction_is_visible_even_if_its_id_is_aborted() -> None:
    plain = build_batch([Record(None, b"v", 0)], base_offset=1, producer=ProducerStamp(A, 0, 0))
    assert seen(data(0, A), plain, marker(2, A, ABORT), aborted=[(A, 0)]) == [1]


def test_what_a_producer_writes_before_and_after_its_aborted_transaction_is_visible() -> None:
    log = [
        data(0, A), marker(1, A, COMMIT),
        data(2, A), marker(3, A, ABORT),
        data(4, A), marker(5, A, COMMIT),
        data(6, A), marker(7, A, ABORT),
    ]  # fmt: skip
    assert seen(*log, aborted=[(A, 2), (A, 6)]) == [0, 4]


def test_the_order_of_the_list_does_not_matter() -> None:
    log = [data(0, A), data(1, B), marker(2, B, ABORT), data(3, B), marker(4, A, ABORT)]
    assert seen(*log, aborted=[(B, 1), (A, 0)]) == [3]


def test_a_transaction_that_began_before_the_first_batch_is_left_out() -> None:
    assert seen(data(50, A), marker(51, A, ABORT), data(52, A), aborted=[(A, 10)]) == [52]


def test_entries_behind_the_last_batch_and_of_other_producers_change_nothing() -> None:
    log = [data(0, A), marker(1, A, COMMIT)]
    assert seen(*log, aborted=[(A, 2), (B, 0)]) == [0]


def test_an_abort_marker_without_its_entry_ends_nothing_else() -> None:
    log = [data(0, A), marker(1, B, ABORT), data(2, A), marker(3, A, ABORT)]
    assert seen(*log, aborted=[(A, 0)]) == []


def test_a_transaction_that_begins_within_a_batch_hides_that_batch() -> None:
    # as the first offset is that of the producer's batch, only a list that is wrong names another;
    # hiding too much is what Kafka's consumer does then
    assert seen(data(0, A, count=5), marker(5, A, ABORT), aborted=[(A, 3)]) == []


def test_a_marker_that_compaction_emptied_ends_nothing() -> None:
    emptied = replace_payload(marker(1, A, ABORT), Codec.NONE, b"")
    struct.pack_into(">i", emptied, HEADER_SIZE - 4, 0)
    write_crc(emptied)
    log = [data(0, A), emptied, data(2, A), marker(3, A, ABORT), data(4, A)]
    assert seen(*log, aborted=[(A, 0)]) == [4]


def test_a_commit_marker_of_the_same_producer_does_not_end_an_aborted_transaction() -> None:
    log = [data(0, A), marker(1, A, COMMIT), data(2, A), marker(3, A, ABORT)]
    assert seen(*log, aborted=[(A, 0)]) == []


def test_a_marker_with_a_wrong_checksum_is_corrupt() -> None:
    broken = marker(1, A, ABORT)
    broken[-1] ^= 1
    with pytest.raises(CorruptRecords, match="checksum at offset 1"):
        seen(data(0, A), broken, aborted=[(A, 0)])
