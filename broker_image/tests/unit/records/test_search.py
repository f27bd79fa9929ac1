import pytest
from hypothesis import given
from hypothesis import strategies as st
from logfleet.records.compression import Codec
from logfleet.records.errors import CorruptRecords, DecompressedTooLarge
from logfleet.records.record import Record, build_batch, read_records
from logfleet.records.search import Search
from logfleet.records.where import Where

TEXTS = st.none() | st.text(alphabet="ab", max_size=6).map(str.encode)
RECORDS = st.lists(
    st.builds(
        Record,
        TEXTS,
        TEXTS,
        st.integers(0, 300),
        st.lists(st.tuples(st.text("ab", max_size=3), TEXTS), max_size=2).map(tuple),
    ),
    min_size=1,
    max_size=30,
)


@given(RECORDS, st.sampled_from(Codec), TEXTS, TEXTS)
def test_a_search_finds_what_testing_each_record_finds(records, codec, grep, key_grep):
    batch = build_batch(records, codec=codec, base_offset=5)
    found = list(Search(grep, key_grep).matches(batch))
    assert found == [
        each
        for each in read_records(batch)
        if (grep is None or (each.value is not None and grep in each.value))
        and (key_grep is None or (each.key is not None and key_grep in each.key))
    ]


def test_a_text_over_the_border_of_two_records_is_not_found():
    batch = build_batch([Record(None, b"ab", 0), Record(None, b"cd", 0), Record(None, b"ef", 0)])
    border = bytes(batch)[-18:-8]
    assert border in bytes(batch)
    assert list(Search(grep=border).matches(batch)) == []


def test_a_text_in_headers_alone_is_not_found():
    batch = build_batch(
        [Record(b"k", b"v", 0, (("needle", b"needle"),)), Record(b"k", b"needle", 0)]
    )
    assert [each.offset for each in Search(grep=b"needle").matches(batch)] == [1]


def test_all_tests_have_to_hold_in_the_right_partition():
    batch = build_batch([Record(b"k%d" % n, b'{"n": %d}' % n, 0) for n in range(20)])
    search = Search(b'"n": 1', b"k", Where("value.n > 14 and partition == 3"))
    assert [each.offset for each in search.matches(batch, partition=3)] == [15, 16, 17, 18, 19]
    assert list(search.matches(batch, partition=2)) == []


def test_a_condition_alone_reads_all_records():
    batch = build_batch([Record(None, b"%d" % n, 0) for n in range(5)], base_offset=10)
    search = Search(where=Where("offset > 12"))
    assert [each.value for each in search.matches(batch)] == [b"3", b"4"]


def test_the_batch_at_a_position_is_searched():
    first, second = build_batch([Record(None, b"aa", 0)]), build_batch([Record(None, b"ab", 0)])
    found = list(Search(grep=b"a").matches(first + second, len(first)))
    assert [each.value for each in found] == [b"ab"]


def test_log_append_time_is_the_time_of_what_is_found():
    batch = build_batch([Record(None, b"aa", 5)])
    batch[22] |= 8
    batch[35:43] = (99).to_bytes(8, "big")
    assert [each.timestamp for each in Search(grep=b"a").matches(batch)] == [99]


def test_a_search_stays_within_its_budget():
    batch = build_batch([Record(None, bytes(10_000), 0)], codec=Codec.ZSTD)
    with pytest.raises(DecompressedTooLarge):
        list(Search(grep=b"a").matches(batch, budget_bytes=5_000))


def test_what_is_no_batch_or_ends_early_is_refused():
    batch = build_batch([Record(None, b"aa", 0), Record(None, b"aa", 0)])
    with pytest.raises(CorruptRecords):
        list(Search(grep=b"a").matches(batch[:-1]))
    with pytest.raises(CorruptRecords):
        list(Search(grep=b"a").matches(batch, 5))
    batch[61] = 200  # a length beyond the batch
    with pytest.raises(CorruptRecords):
        list(Search(grep=b"a").matches(batch))
