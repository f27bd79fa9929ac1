import pytest
from hypothesis import given
from hypothesis import strategies as st
from logfleet.log.compaction.batch_cleaning import (
    CleaningRules,
    clean_aborted,
    clean_batch,
    clean_marker,
)
from logfleet.records.batch import crc_matches, parse_header, set_log_append_time
from logfleet.records.compression import Codec
from logfleet.records.control import marker_batch, read_marker
from logfleet.records.errors import CorruptRecords, DecompressedTooLarge
from logfleet.records.record import ProducerStamp, Record, build_batch, read_records
from logfleet.types import LeaderEpoch

NOW = 1_700_000_000_000
RETENTION = 1000
STAMP = ProducerStamp(9, 2, 40)
KEPT = ["base_offset", "last_offset", "leader_epoch", "producer_id", "producer_epoch"]
KEPT += ["base_sequence", "last_sequence", "timestamp_type"]


def rules(newest=None, **changed):
    values = {
        "newest_offset": lambda key: (newest or {}).get(key, -1),
        "mapped_end": 1000,
        "upper_bound": 1000,
        "producers": {},
        "markers": {},
        "now_ms": NOW,
        "delete_retention_ms": RETENTION,
        "decompressed_bytes_max": 1 << 20,
        **changed,
    }
    return CleaningRules(**values)


def batch_of(*records, base_offset=100, codec=Codec.NONE, stamp=STAMP):
    """records: (key, value) at successive times."""
    made = [Record(key, value, NOW + n * 10) for n, (key, value) in enumerate(records)]
    return bytes(
        build_batch(
            made, base_offset=base_offset, codec=codec, leader_epoch=LeaderEpoch(3), producer=stamp
        )
    )


def clean(batch, *args, **kwargs):
    kept = clean_batch(batch, parse_header(batch), rules(*args, **kwargs))
    if kept.buffer is not None:
        header = parse_header(kept.buffer)
        assert crc_matches(kept.buffer, header)
        assert header.size == len(kept.buffer)
        assert header.record_count == kept.records
        before = parse_header(batch)
        for field in KEPT:
            assert getattr(header, field) == getattr(before, field), field
    return kept


def content(buffer):
    return [(r.offset, r.key, r.value, r.timestamp) for r in read_records(buffer)]


@pytest.mark.parametrize("codec", list(Codec))
def test_records_that_newer_ones_replace_go_and_the_others_keep_their_offsets(codec):
    batch = batch_of((b"a", b"1"), (b"b", b"2"), (b"c", b"3"), (b"b", b"4"), codec=codec)
    kept = clean(batch, {b"a": 200, b"b": 103, b"c": 102})
    assert content(kept.buffer) == [(102, b"c", b"3", NOW + 20), (103, b"b", b"4", NOW + 30)]
    header = parse_header(kept.buffer)
    assert header.codec_bits == codec
    assert header.max_timestamp == NOW + 30


def test_the_largest_timestamp_is_that_of_what_stays():
    batch = batch_of((b"a", b"1"), (b"b", b"2"))
    assert parse_header(clean(batch, {b"b": 500}).buffer).max_timestamp == NOW


def test_with_the_brokers_time_it_stays_as_it_is():
    batch = bytearray(batch_of((b"a", b"1"), (b"b", b"2")))
    set_log_append_time(batch, NOW + 77)
    kept = clean(bytes(batch), {b"b": 500})
    assert content(kept.buffer) == [(100, b"a", b"1", NOW + 77)]


def test_a_batch_that_loses_nothing_is_the_same_bytes():
    batch = batch_of((b"a", b"1"), codec=Codec.LZ4)
    assert clean(batch).buffer is batch


def test_a_batch_that_loses_everything_goes():
    assert clean(batch_of((b"a", b"1")), {b"a": 500}).buffer is None


@pytest.mark.parametrize(
    "changed", [{"upper_bound": 102}, {"producers": {9: 101}}], ids=["last of round", "producer"]
)
@pytest.mark.parametrize("codec", [Codec.NONE, Codec.ZSTD])
def test_some_batches_stay_without_records(changed, codec):
    batch = batch_of((b"a", b"1"), (b"b", None), codec=codec)
    kept = clean(batch, {b"a": 500, b"b": 500}, **changed)
    header = parse_header(kept.buffer)
    assert list(read_records(kept.buffer)) == []
    assert header.codec_bits == Codec.NONE
    assert header.max_timestamp == NOW + 10
    assert header.base_timestamp == -1
    assert not header.has_delete_horizon
    again = clean(bytes(kept.buffer), **changed)
    assert again.buffer == kept.buffer
    assert clean(bytes(kept.buffer)).buffer is None


@pytest.mark.parametrize("last, stays", [(101, False), (100, True), (-1, True)])
def test_only_batches_up_to_a_producers_last_may_go(last, stays):
    kept = clean(batch_of((b"a", b"1")), {b"a": 500}, producers={8: 0, 9: last})
    assert (kept.buffer is not None) == stays


def test_unmapped_records_stay():
    batch = batch_of((b"a", b"1"), (b"a", b"2"), (None, b"3"))
    kept = clean(batch, {b"a": 500}, mapped_end=101)
    assert [offset for offset, *_ in content(kept.buffer)] == [101, 102]


def test_records_without_a_key_go_and_are_counted():
    kept = clean(batch_of((None, b"1"), (b"b", b"2"), (None, None)))
    assert content(kept.buffer) == [(101, b"b", b"2", NOW + 10)]
    assert kept.keyless == 2
    assert clean(batch_of((None, b"1"))).keyless == 1


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.SNAPPY])
def test_a_tombstone_gets_its_time_at_the_first_cleaning_and_goes_when_that_is_over(codec):
    batch = batch_of((b"a", b"1"), (b"b", None), (b"c", b"3"), codec=codec)
    first = clean(batch, {b"a": 500})
    header = parse_header(first.buffer)
    assert header.has_delete_horizon
    assert header.base_timestamp == NOW + RETENTION
    left = [(101, b"b", None, NOW + 10), (102, b"c", b"3", NOW + 20)]
    assert content(first.buffer) == left
    assert header.max_timestamp == NOW + 20

    once = bytes(first.buffer)
    assert clean(once, now_ms=NOW + RETENTION - 1).buffer is once
    later = clean(once, now_ms=NOW + RETENTION)
    assert content(later.buffer) == left[1:]
    assert parse_header(later.buffer).base_timestamp == NOW + RETENTION


def test_a_tombstone_that_is_replaced_goes_at_once():
    assert clean(batch_of((b"b", None)), {b"b": 500}).buffer is None


def test_a_batch_that_contradicts_its_header_is_corrupt():
    batch = bytearray(batch_of((b"a", b"1")))
    batch[60] = 2
    with pytest.raises(CorruptRecords, match="1 records, but the header counts 2"):
        clean(bytes(batch))


def test_a_bomb_stops_at_the_budget():
    batch = batch_of((b"a", bytes(100_000)), codec=Codec.GZIP)
    with pytest.raises(DecompressedTooLarge):
        clean(batch, decompressed_bytes_max=1000)


@given(
    st.lists(
        st.tuples(
            st.none() | st.sampled_from([b"a", b"b", b"c", b"d"]),
            st.none() | st.binary(max_size=99),
        ),
        min_size=1,
        max_size=80,
    ),
    st.dictionaries(st.sampled_from([b"a", b"b", b"c", b"d"]), st.integers(90, 190)),
    st.integers(100, 181),
    st.sampled_from([Codec.NONE, Codec.LZ4]),
)
def test_the_rules_decide_record_by_record_what_stays(pairs, newest, mapped_end, codec):
    batch = batch_of(*pairs, codec=codec)
    kept = clean(batch, newest, mapped_end=mapped_end)
    expected = [
        (100 + n, key, value, NOW + n * 10)
        for n, (key, value) in enumerate(pairs)
        if 100 + n >= mapped_end or (key is not None and 100 + n >= newest.get(key, -1))
    ]
    assert (content(kept.buffer) if kept.buffer else []) == expected
    has_tombstone = any(value is None for _, _, value, _ in expected)
    assert not kept.buffer or parse_header(kept.buffer).has_delete_horizon == has_tombstone


# Transactions

MARKER = bytes(marker_batch(9, 2, commit=True, coordinator_epoch=4, now_ms=NOW - 5))


def clean_end(batch, *args, **kwargs):
    return clean_marker(bytes(batch), parse_header(batch), rules(*args, **kwargs)).buffer


def test_a_marker_gets_a_delete_horizon_and_keeps_its_record():
    marked = clean_end(MARKER)
    header = parse_header(marked)
    assert header.has_delete_horizon
    assert header.base_timestamp == NOW + RETENTION
    assert header.max_timestamp == NOW - 5
    assert crc_matches(marked, header)
    assert read_marker(marked) == read_marker(MARKER)
    (record,) = read_records(marked)
    assert record.timestamp == NOW - 5


def test_a_marker_stays_until_its_horizon_has_passed():
    marked = bytes(clean_end(MARKER))
    assert clean_end(marked, now_ms=NOW + RETENTION - 1) is marked
    assert clean_end(marked, now_ms=NOW + RETENTION) is None


@pytest.mark.parametrize(
    "last, stays",
    [
        ((2, NOW - 5), True),
        ((2, NOW), False),  # something followed
        ((3, NOW - 5), False),  # with another epoch
    ],
)
def test_the_last_marker_of_an_active_producer_stays_whole(last, stays):
    marked = bytes(clean_end(MARKER))
    assert clean_end(MARKER, markers={9: last}) == marked
    found = clean_end(marked, markers={9: last}, now_ms=NOW + RETENTION)
    assert found is (marked if stays else None)


def test_the_last_data_of_a_producer_does_not_keep_its_marker():
    marked = bytes(clean_end(MARKER))
    assert clean_end(marked, producers={9: -1}, now_ms=NOW + RETENTION) is None


def test_the_last_batch_of_the_cleaned_part_stays_as_an_empty_control_batch():
    marked = bytes(clean_end(MARKER))
    empty = clean_end(marked, upper_bound=1, now_ms=NOW + RETENTION)
    header = parse_header(empty)
    assert (header.record_count, header.is_control, header.is_transactional) == (0, True, True)
    assert not header.has_delete_horizon
    assert read_marker(empty) is None
    again = bytes(empty)
    assert clean_end(again, upper_bound=1) is again
    assert clean_end(again, markers={9: (2, NOW - 5)}) is again
    assert clean_end(again) is None


@pytest.mark.parametrize("producers, stays", [({}, False), ({9: 101}, True), ({9: 103}, False)])
def test_the_records_of_an_aborted_transaction_go_whatever_their_keys(producers, stays):
    stamp = ProducerStamp(9, 2, 40, transactional=True)
    batch = batch_of((b"a", b"1"), (b"b", None), stamp=stamp)
    found = clean_aborted(batch, parse_header(batch), rules(producers=producers))
    assert found.records == 0
    if not stays:
        assert found.buffer is None
        return
    again = bytes(found.buffer or b"")
    header = parse_header(again)
    assert (header.record_count, header.is_transactional, header.is_control) == (0, True, False)
    assert (header.last_offset, header.last_sequence) == (101, 41)
    assert clean_aborted(again, header, rules(producers=producers)).buffer is again


def test_an_empty_batch_that_stays_is_not_written_again():
    empty = bytes(clean(batch_of((b"a", b"1")), {b"a": 500}, producers={9: 0}).buffer)
    assert clean(empty, producers={9: 0}).buffer is empty
