import pytest
from click.testing import CliRunner
from logfleet.cli.consume import Printer
from logfleet.cli.main import cli
from logfleet.cli.record_text import format_writer
from logfleet.client.fetcher import Fetched
from logfleet.client.offsets import TopicPartition
from logfleet.records.record import Record, build_batch


@pytest.mark.parametrize(
    "arguments, words",
    [
        ([], "Missing argument 'TOPIC...'"),
        (["t", "-g", "g", "-p", "0"], "leave out --partition"),
        (["t", "-g", "g", "--offset", "5"], "`logfleet group reset-offsets` moves a group"),
        (["t", "--offset", "soon"], "write beginning, end"),
        (["t", "-f", "%x"], "%x: write one of"),
        (["t", "-f", "%s", "-K:"], "leave out --key-separator"),
        (["t", "-o", "json", "-f", "%s"], "leave out --format"),
        (["t", "-o", "json", "--null", "x"], "leave out --null"),
        (["t", "-n", "0"], "0 is not in the range"),
        (["t", "--from-beginning", "--offset", "5"], "--from-beginning and --offset"),
    ],
)
def test_what_the_command_line_cannot_mean_is_told_in_one_line(
    arguments: list[str], words: str
) -> None:
    result = CliRunner().invoke(cli, ["consume", *arguments], prog_name="logfleet")
    assert result.exit_code == 2
    (line,) = result.stderr.splitlines()
    assert words in line
    assert line.endswith("; see logfleet consume --help")


T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)


def fetched(partition: TopicPartition, base_offset: int, *values: bytes) -> Fetched:
    records = [Record(None, value, 0) for value in values]
    batch = memoryview(build_batch(records, base_offset=base_offset))
    end_offset = base_offset + len(values)
    return Fetched(partition, base_offset, end_offset, end_offset, 0, batch)


def test_the_printer_knows_what_it_printed(capfdbinary: pytest.CaptureFixture[bytes]) -> None:
    printer = Printer(format_writer("%o %s\\n"), None)
    printer.print([fetched(T0, 5, b"a", b"b"), fetched(T1, 0, b"c")])
    assert printer.next_offsets == {T0: 7, T1: 1}
    assert not printer.done


def test_the_printer_stops_at_the_count_and_not_behind_it() -> None:
    printer = Printer(format_writer(""), 3)
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
    printer = Printer(format_writer("%s"), None)
    with pytest.raises(BrokenPipeError):
        printer.print([fetched(T0, 0, b"a")])
    assert printer.next_offsets == {}
