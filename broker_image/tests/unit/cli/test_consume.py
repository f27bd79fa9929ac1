import asyncio
import sys
from collections.abc import Callable

import pytest
from click import ClickException
from click.testing import CliRunner
from logfleet.cli import consume
from logfleet.cli.consume import Request, read
from logfleet.cli.main import cli
from logfleet.cli.offsets import Place
from logfleet.cli.streams.formats import Format
from logfleet.cli.streams.printer import Printer
from logfleet.client.cluster import Client
from logfleet.client.errors import KafkaError
from logfleet.client.offsets import IsolationLevel, OffsetSpec, TopicPartition
from logfleet.records.record import Record, build_batch
from logfleet.wire.messages import (
    FetchRequest,
    FetchResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
)

from broker_image.tests.unit.client.fake_broker import FakeBroker, Reply

UNCOMMITTED = IsolationLevel.READ_UNCOMMITTED


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
        (["t", "-o", "pretty", "-K:"], "-o pretty has a form of its own, leave out --key-sep"),
        (["t", "--from-beginning", "--offset", "5"], "--from-beginning and --offset"),
        (["t", "--tail", "5", "--since", "10m"], "--tail and --since both say where to begin"),
        (["t", "--since", "soon"], "write so long ago as 10m"),
        (["t", "--until", "3000-01-01"], "'3000-01-01': lies ahead"),
        (["t", "--tail", "0"], "0 is not in the range"),
        (["t", "--where", "value.a +"], "--where: column 10: invalid syntax"),
        (["t", "--where", "keys == 'a'"], "--where: column 1, 'keys': there is no name keys"),
        (["t", "--schema", __file__], "--schema is for --decode avro"),
        (["t", "--schema", __file__, "--decode", "avro"], "test_consume.py: Expecting value"),
        (["t", "-g", "g", "--tail", "5"], "`logfleet group reset-offsets` moves a group"),
        (["t", "-f", "%s{iso}"], "%s{iso}: write {hex}"),
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


def test_without_fastavro_a_sentence_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "fastavro", None)
    result = CliRunner().invoke(cli, ["consume", "t", "--decode", "avro"], prog_name="logfleet")
    assert result.exit_code == 1
    assert result.stderr == (
        "Error: --decode avro needs fastavro, which is not installed: "
        "pip install 'logfleet[avro]'\n"
    )


T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)


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
    return Request(["t"], (), Place(spec=OffsetSpec.EARLIEST), exit_at_end, UNCOMMITTED)


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
        await read(client, everything(exit_at_end=False), Printer(Format("%s\\n"), 2))
    shown = capfdbinary.readouterr()
    assert shown.out == b"of 1\nof 0\n"
    assert shown.err == b"Warning: t-0 has no leader; it is read once it has one\n"


@pytest.mark.asyncio
async def test_a_partition_that_is_added_is_read_from_its_beginning(
    capfdbinary: pytest.CaptureFixture[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(consume, "PARTITIONS_SECONDS", 0.01)
    monkeypatch.setattr(consume, "POLL_MS", 20)
    async with FakeBroker({"t": 1}).running() as broker, Client(broker.bootstrap) as client:
        hold_a_record_each(broker, lambda _: broker.topics.update(t=2))
        await read(client, everything(exit_at_end=False), Printer(Format("%s\\n"), 2))
    assert capfdbinary.readouterr().out == b"of 0\nof 1\n"


@pytest.mark.asyncio
async def test_reading_committed_records_ends_where_a_transaction_is_open(
    capfdbinary: pytest.CaptureFixture[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(consume, "POLL_MS", 20)

    def ends(request: ListOffsetsRequest) -> ListOffsetsResponse:
        stable = request.isolation_level == IsolationLevel.READ_COMMITTED
        is_end = request.topics[0].partitions[0].timestamp == OffsetSpec.LATEST
        row = ListOffsetsResponse.ListOffsetsPartitionResponse(
            partition_index=0, offset=(1 if stable else 5) if is_end else 0
        )
        topic = ListOffsetsResponse.ListOffsetsTopicResponse(name="t", partitions=[row])
        return ListOffsetsResponse(topics=[topic])

    async with FakeBroker({"t": 1}).running() as broker, Client(broker.bootstrap) as client:
        hold_a_record_each(broker, lambda _: None)
        broker.answers[ListOffsetsRequest] = ends
        request = everything(exit_at_end=True)._replace(isolation=IsolationLevel.READ_COMMITTED)
        async with asyncio.timeout(10):
            await read(client, request, Printer(Format("%s\\n"), None))
    assert capfdbinary.readouterr().out == b"of 0\n"
    assert {asked.isolation_level for asked in broker.of(FetchRequest)} == {1}


@pytest.mark.asyncio
@pytest.mark.parametrize("younger, printed", [(1, b"of 0\n"), (0, b""), (-1, b"of 0\n")])
async def test_reading_until_a_time_ends_before_what_is_younger(
    younger: int,
    printed: bytes,
    capfdbinary: pytest.CaptureFixture[bytes],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(consume, "POLL_MS", 20)

    def offsets(request: ListOffsetsRequest) -> ListOffsetsResponse:
        at = {OffsetSpec.EARLIEST: 0, OffsetSpec.LATEST: 1, 99: younger}
        row = ListOffsetsResponse.ListOffsetsPartitionResponse(
            partition_index=0, offset=at[request.topics[0].partitions[0].timestamp]
        )
        topic = ListOffsetsResponse.ListOffsetsTopicResponse(name="t", partitions=[row])
        return ListOffsetsResponse(topics=[topic])

    async with FakeBroker({"t": 1}).running() as broker, Client(broker.bootstrap) as client:
        hold_a_record_each(broker, lambda _: None)
        broker.answers[ListOffsetsRequest] = offsets
        request = everything(exit_at_end=False)._replace(until_ms=99)
        async with asyncio.timeout(10):
            await read(client, request, Printer(Format("%s\\n"), None))
    assert capfdbinary.readouterr().out == printed


@pytest.mark.asyncio
@pytest.mark.parametrize("from_beginning", [False, True])
async def test_on_a_terminal_it_says_that_it_waits_at_the_end(
    *, from_beginning: bool, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(consume, "is_terminal", lambda: True)
    monkeypatch.setattr(consume, "POLL_MS", 20)
    spec = OffsetSpec.EARLIEST if from_beginning else OffsetSpec.LATEST
    async with FakeBroker({"t": 2}).running() as broker, Client(broker.bootstrap) as client:
        hold_a_record_each(broker, lambda _: None)
        request = Request(["t"], (), Place(spec=spec), False, UNCOMMITTED)
        await read(client, request, Printer(Format(""), 1))
    line = (
        "waiting at the end of 2 partitions; --from-beginning prints what is there, Ctrl-C ends\n"
    )
    assert capsys.readouterr().err == ("" if from_beginning else line)


@pytest.mark.asyncio
async def test_partitions_that_are_added_are_not_read_by_who_named_others(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(consume, "PARTITIONS_SECONDS", 0.0)
    monkeypatch.setattr(consume, "POLL_MS", 20)
    async with FakeBroker({"t": 1}).running() as broker, Client(broker.bootstrap) as client:
        hold_a_record_each(broker, lambda _: None)
        rounds = iter(range(5))

        def grow_and_end_in_time(_: int) -> None:
            broker.topics["t"] = 2
            if next(rounds, None) is None:
                raise TimeoutError

        printer = Printer(Format("%s\\n"), None, grow_and_end_in_time)
        request = Request(["t"], (0,), Place(spec=OffsetSpec.EARLIEST), False, UNCOMMITTED)
        with pytest.raises(TimeoutError):
            await read(client, request, printer)
        assert printer.next_offsets == {T0: 1}


@pytest.mark.asyncio
async def test_who_wants_all_that_is_there_is_told_if_a_partition_has_no_leader() -> None:
    async with (
        FakeBroker({"t": 2}).running() as broker,
        Client(broker.bootstrap, timeout_ms=300) as client,
    ):
        broker.leaderless = {("t", 0)}
        hold_a_record_each(broker, lambda _: None)
        printer = Printer(Format("%s\\n"), None)
        with pytest.raises(KafkaError, match="t-0"):
            await read(client, everything(exit_at_end=True), printer)


class Shrinking:
    """Partition 0 of t ends at `end`, and has one record to read."""

    def __init__(self, broker: FakeBroker, end: int) -> None:
        self.end = end
        hold_a_record_each(broker, lambda _: None)
        broker.answers[ListOffsetsRequest] = self.list_offsets

    def list_offsets(self, request: ListOffsetsRequest) -> ListOffsetsResponse:
        asked = request.topics[0].partitions[0].timestamp
        row = ListOffsetsResponse.ListOffsetsPartitionResponse(
            offset=self.end if asked == OffsetSpec.LATEST else 0
        )
        topic = ListOffsetsResponse.ListOffsetsTopicResponse(name="t", partitions=[row])
        return ListOffsetsResponse(topics=[topic])


@pytest.mark.asyncio
async def test_an_end_that_is_not_there_any_more_is_told_and_not_waited_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(consume, "ENDS_SECONDS", 0.01)
    monkeypatch.setattr(consume, "POLL_MS", 20)
    async with FakeBroker({"t": 1}).running() as broker, Client(broker.bootstrap) as client:
        log = Shrinking(broker, end=2)

        def shrink(_: int) -> None:
            log.end = 1

        printer = Printer(Format("%s\\n"), None, shrink)
        with pytest.raises(ClickException, match=r"t-0 ended at 2 .* and ends at 1 now"):
            await read(client, everything(exit_at_end=True), printer)
        assert printer.next_offsets == {T0: 1}


@pytest.mark.asyncio
async def test_a_leader_that_does_not_tell_its_end_holds_up_no_reading(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(consume, "ENDS_SECONDS", 0.05)
    monkeypatch.setattr(consume, "POLL_MS", 20)
    async with FakeBroker({"t": 1}).running() as broker, Client(broker.bootstrap) as client:
        Shrinking(broker, end=2)
        first_record = broker.answers[FetchRequest]
        silent = asyncio.Event()

        def fetch(request: FetchRequest) -> Reply:
            answer = first_record(request)
            if silent.is_set() and request.topics[0].partitions[0].fetch_offset == 1:
                last = build_batch([Record(None, b"last", 0)], base_offset=1)
                answer.responses[0].partitions[0].records = bytes(last)  # type: ignore[union-attr]
            return answer

        def say_nothing(_: ListOffsetsRequest) -> None:
            silent.set()

        def fall_silent(_: int) -> None:
            broker.answers |= {ListOffsetsRequest: say_nothing, FetchRequest: fetch}

        printer = Printer(Format("%s\\n"), None, fall_silent)
        async with asyncio.timeout(10):
            await read(client, everything(exit_at_end=True), printer)
        assert printer.next_offsets == {T0: 2}


@pytest.mark.asyncio
async def test_an_end_of_a_topic_made_anew_meanwhile_is_not_read_up_to(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(consume, "POLL_MS", 20)
    async with FakeBroker({"t": 1}).running() as broker, Client(broker.bootstrap) as client:
        Shrinking(broker, end=2)

        def make_anew(_: int) -> None:
            broker.topic_id = b"fedcba9876543210"
            client.metadata.forget(["t"])

        printer = Printer(Format("%s\\n"), None, make_anew)
        with pytest.raises(ClickException, match="topic t was deleted and created again"):
            await read(client, everything(exit_at_end=True), printer)
        assert printer.next_offsets == {T0: 1}
