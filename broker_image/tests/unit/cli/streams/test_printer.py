from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st
from logfleet.cli.streams.formats import Format
from logfleet.cli.streams.printer import Printer, next_offsets_text, records_text, summary
from logfleet.client.fetcher import Fetched
from logfleet.client.offsets import TopicPartition
from logfleet.records.record import Record, build_batch
from logfleet.records.search import Search
from logfleet.records.where import Where

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)


def fetched(partition: TopicPartition, base_offset: int, *values: bytes) -> Fetched:
    records = [Record(None, value, 0) for value in values]
    batch = memoryview(build_batch(records, base_offset=base_offset))
    end_offset = base_offset + len(values)
    return Fetched(partition, base_offset, end_offset, end_offset, 0, batch)


def test_the_printer_knows_what_it_printed(capfdbinary: pytest.CaptureFixture[bytes]) -> None:
    printer = Printer(Format("%o %s\\n"), None)
    printer.print([fetched(T0, 5, b"a", b"b"), fetched(T1, 0, b"c")])
    assert printer.next_offsets == {T0: 7, T1: 1}
    assert not printer.done


def test_the_printer_stops_at_the_count_and_not_behind_it() -> None:
    printer = Printer(Format(""), 3)
    printer.print([fetched(T0, 0, b"a", b"b"), fetched(T1, 0, b"c", b"d"), fetched(T0, 2, b"e")])
    assert printer.done
    assert printer.next_offsets == {T0: 2, T1: 1}


def test_what_could_not_be_flushed_is_not_printed(monkeypatch: pytest.MonkeyPatch) -> None:
    class Closed:
        buffer: "Closed"

        def write(self, data: bytes) -> None: ...

        def flush(self) -> None:
            raise BrokenPipeError

    closed = Closed()
    closed.buffer = closed
    monkeypatch.setattr("sys.stdout", closed)
    printer = Printer(Format("%s"), None)
    with pytest.raises(BrokenPipeError):
        printer.print([fetched(T0, 0, b"a")])
    assert printer.next_offsets == {}


def test_only_what_is_searched_for_is_printed_and_the_rest_is_read(
    capfdbinary: pytest.CaptureFixture[bytes],
) -> None:
    advanced: list[int] = []
    search = Search(grep=b"a", where=Where("partition == 1"))
    printer = Printer(Format("%s\\n"), 2, advanced.append, search)
    printer.print([fetched(T0, 5, b"a", b"a"), fetched(T1, 3, b"a1", b"b", b"a2", b"a3")])
    assert capfdbinary.readouterr().out == b"a1\na2\n"
    assert printer.next_offsets == {T0: 7, T1: 6}
    assert printer.done
    assert advanced == [2]
    assert (printer.records, printer.bytes) == (2, 6)


@pytest.mark.parametrize("text", ["%s", "%s%o"])
def test_nothing_is_printed_from_a_limit_on(
    text: str, capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    printer = Printer(Format(text), None)
    printer.limits = {T0: 7, T1: 2}
    printer.print([fetched(T0, 5, b"a", b"b", b"c"), fetched(T0, 8, b"d"), fetched(T1, 3, b"e")])
    assert capfdbinary.readouterr().out == {"%s": b"ab", "%s%o": b"a5b6"}[text]
    assert printer.next_offsets == {T0: 8, T1: 3}


def test_a_batch_that_begins_before_the_offset_is_printed_from_there(
    capfdbinary: pytest.CaptureFixture[bytes],
) -> None:
    whole = fetched(T0, 5, b"a", b"b", b"c")
    Printer(Format("%s"), None).print([Fetched(T0, 6, 8, 8, 0, whole.batches)])
    assert capfdbinary.readouterr().out == b"bc"


def test_records_with_headers_are_printed_as_well(
    capfdbinary: pytest.CaptureFixture[bytes],
) -> None:
    batch = memoryview(build_batch([Record(None, b"v", 0, (("name", b""),))]))
    Printer(Format("%s"), None).print([Fetched(T0, 0, 1, 1, 0, batch)])
    assert capfdbinary.readouterr().out == b"v"


@given(st.lists(st.integers(1, 4), min_size=1, max_size=5), st.data())
def test_blocks_print_what_records_one_by_one_print(sizes: list[int], data: st.DataObject) -> None:
    starts = [sum(sizes[:index]) for index in range(len(sizes) + 1)]
    batches = b"".join(
        build_batch([Record(None, b"%d" % at, 0) for at in range(*edge)], base_offset=edge[0])
        for edge in pairwise(starts)
    )
    offset = data.draw(st.integers(0, sizes[0] - 1))
    end = starts[-1]
    given_ = [Fetched(T0, offset, end, end, 0, memoryview(batches))]
    limit = data.draw(st.none() | st.integers(0, end + 1))
    count = data.draw(st.none() | st.integers(1, end + 1))
    out: list[tuple[bytes, object, int]] = []
    for search in (None, Search()):
        written = b""

        class Out:
            def write(self, text: bytes) -> None:
                nonlocal written
                written += text

            def flush(self) -> None: ...

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("logfleet.cli.streams.printer.standard_output", Out)
            printer = Printer(Format("%s "), count, search=search)
            printer.limits = {} if limit is None else {T0: limit}
            printer.print(given_)
        out.append((written, printer.next_offsets, printer.records))
    assert out[0] == out[1]


def test_the_summary_comes_even_after_an_interruption(capsys: pytest.CaptureFixture[str]) -> None:
    printer = Printer(Format("%s"), None)
    printer.records, printer.bytes, printer.next_offsets = 1234, 5, {T1: 3, T0: 2}
    with pytest.raises(KeyboardInterrupt), summary(printer, is_wanted=True):
        raise KeyboardInterrupt
    with summary(printer, is_wanted=False):
        pass
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("1,234 records, 5 bytes, 0.")
    assert line.endswith(" s; next offsets: t-0 2, t-1 3")


@pytest.mark.parametrize(
    "count, text", [(0, "0 records"), (1, "1 record"), (2000, "2,000 records")]
)
def test_one_record_is_one(count: int, text: str) -> None:
    assert records_text(count) == text


def test_without_partitions_there_are_no_next_offsets() -> None:
    assert next_offsets_text({}) == "next offsets: none"
