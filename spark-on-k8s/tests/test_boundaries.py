"""Where records begin, found in all batches at once, against `logfleet.records` one record at a time."""

from hypothesis import example, given
from hypothesis import strategies as st
from logfleet.records.errors import CorruptRecords
from logfleet.records.varint import append_varint, read_varint
from logfleet_spark.boundaries import LANES_MIN, NotRecords, record_starts

# a length of one byte, of two, of three
SIZES = st.integers(0, 63) | st.integers(64, 8191) | st.integers(8192, 9000)
BATCHES = st.lists(st.lists(SIZES, max_size=4), max_size=3 * LANES_MIN)
GAPS = st.sampled_from([0, 61])


def laid_out(batches: list[list[int]], gap: int) -> tuple[bytes, list[int], list[int]]:
    """The batches behind one another, and where each begins and ends. gap: bytes before each, as of its header."""
    body, starts, ends = bytearray(), [], []
    for sizes in batches:
        body += b"\xff" * gap
        starts.append(len(body))
        for size in sizes:
            append_varint(body, size)
            body += bytes(size)
        ends.append(len(body))
    return bytes(body), starts, ends


def one_by_one(
    body: bytes, starts: list[int], ends: list[int], counts: list[int]
) -> list[int] | int:
    """Where all records begin; the first batch that is none of so many records, if there is one."""
    found = []
    for batch, end in enumerate(ends):
        at = starts[batch]
        for _ in range(counts[batch]):
            found.append(at)
            try:
                size, at = read_varint(body, at)
            except (IndexError, CorruptRecords):
                return batch
            at += max(size, 0)
        if at != end:
            return batch
    return found


def at_once(body: bytes, starts: list[int], ends: list[int], counts: list[int]) -> list[int] | int:
    try:
        found: list[int] = record_starts(body, starts, ends, counts).tolist()
    except NotRecords as refused:
        return refused.batch
    return found


@given(BATCHES, GAPS)
@example([[1]] * LANES_MIN + [[2] * 5], 61)
@example([[70] * 3] * (LANES_MIN - 1), 0)
@example([[10, 9000, 10]] + [[10]] * LANES_MIN, 61)
def test_all_records_are_found(batches, gap):
    body, starts, ends = laid_out(batches, gap)
    counts = [len(sizes) for sizes in batches]
    expected = one_by_one(body, starts, ends, counts)
    assert isinstance(expected, list)
    assert at_once(body, starts, ends, counts) == expected


@given(BATCHES.filter(any), GAPS, st.data())
@example([[0]] * 6 + [[8192], [0, 0]], 0, None)
def test_a_batch_of_another_number_of_records_is_refused(batches, gap, data):
    body, starts, ends = laid_out(batches, gap)
    counts = [len(sizes) for sizes in batches]
    wrong, by = 6, 1
    if data:
        wrong = data.draw(st.sampled_from([n for n, sizes in enumerate(batches) if sizes]))
        by = data.draw(st.sampled_from([-1, 1, 100]))
    counts[wrong] += by
    assert one_by_one(body, starts, ends, counts) == wrong
    assert at_once(body, starts, ends, counts) == wrong


@given(BATCHES.filter(any), GAPS, st.data())
def test_bytes_that_are_changed_lead_to_the_same_answer(batches, gap, data):
    body, starts, ends = laid_out(batches, gap)
    counts = [len(sizes) for sizes in batches]
    changed = bytearray(body)
    changed[data.draw(st.integers(0, len(body) - 1))] = data.draw(st.sampled_from([0, 2, 126, 254]))
    read = bytes(changed)
    assert at_once(read, starts, ends, counts) == one_by_one(read, starts, ends, counts)
