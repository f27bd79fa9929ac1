from collections.abc import Callable

import pytest
from click.testing import CliRunner
from logfleet.cli import consume
from logfleet.cli.consume import Printer, Request, read
from logfleet.cli.main import cli
from logfleet.cli.offsets import Place
from logfleet.cli.record_text import format_writer
from logfleet.client.cluster import Client
from logfleet.client.errors import KafkaError
from logfleet.client.fetcher import Fetched
from logfleet.client.offsets import OffsetSpec, TopicPartition
from logfleet.records.record import Record, build_batch
from logfleet.wire.messages import (
    FetchRequest,
    FetchResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
)

from broker_image.tests.unit.client.fake_broker import FakeBroker


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


# --- against a broker of a few lines


def hold_a_record_each(broker: FakeBroker, when_read: Callable[[int], None]) -> None:
    """Let each partition hold one record; when_read: told of each partition that is read behind it."""

    def begins(request: ListOffsetsRequest) -> ListOffsetsResponse:
        topics = [
            ListOffsetsResponse.ListOffsetsTopicResponse(
                name=topic.name,
                partitions=[
                    ListOffsetsResponse.ListOffsetsPartitionResponse(
                        partition_index=row.partition_index, offset=0
                    )
                    for row in topic.partitions
                ],
            )
            for topic in request.topics
        ]
        return ListOffsetsResponse(topics=topics)

    def row(asked: FetchRequest.FetchPartition) -> FetchResponse.PartitionData:
        if asked.fetch_offset:
            when_read(asked.partition)
            return FetchResponse.PartitionData(partition_index=asked.partition, high_watermark=1)
        batch = bytes(build_batch([Record(None, b"of %d" % asked.partition, 0)]))
        return FetchResponse.PartitionData(
            partition_index=asked.partition, high_watermark=1, records=batch
        )

    def fetch(request: FetchRequest) -> FetchResponse:
        topics = [
            FetchResponse.FetchableTopicResponse(
                topic_id=topic.topic_id, partitions=[row(each) for each in topic.partitions]
            )
            for topic in request.topics
        ]
        return FetchResponse(responses=topics)

    broker.answers |= {ListOffsetsRequest: begins, FetchRequest: fetch}


def everything(*, exit_at_end: bool) -> Request:
    return Request(["t"], (), Place(spec=OffsetSpec.EARLIEST), exit_at_end)


@pytest.mark.asyncio
async def test_a_partition_is_read_once_it_has_a_leader_and_the_others_meanwhile(
    capfdbinary: pytest.CaptureFixture[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(consume, "LEADERS_SECONDS", 0.01)
    monkeypatch.setattr(consume, "POLL_MS", 20)
    async with (
        FakeBroker({"t": 2}).running() as broker,
        Client(broker.bootstrap, timeout_ms=300) as client,
    ):
        broker.leaderless = {("t", 0)}
        hold_a_record_each(broker, lambda _: broker.leaderless.clear())
        await read(client, everything(exit_at_end=False), Printer(format_writer("%s\\n"), 2))
    shown = capfdbinary.readouterr()
    assert shown.out == b"of 1\nof 0\n"
    assert shown.err == b"Warning: t-0 has no leader; it is read once it has one\n"


@pytest.mark.asyncio
async def test_who_wants_all_that_is_there_is_told_if_a_partition_has_no_leader() -> None:
    async with (
        FakeBroker({"t": 2}).running() as broker,
        Client(broker.bootstrap, timeout_ms=300) as client,
    ):
        broker.leaderless = {("t", 0)}
        hold_a_record_each(broker, lambda _: None)
        printer = Printer(format_writer("%s\\n"), None)
        with pytest.raises(KafkaError, match="t-0"):
            await read(client, everything(exit_at_end=True), printer)
