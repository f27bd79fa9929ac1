import asyncio
from pathlib import Path

import click
import pytest
from click.testing import CliRunner
from logfleet.cli.main import cli
from logfleet.cli.record_text import draft_reader, read_json
from logfleet.cli.streams import sending
from logfleet.cli.streams.input import Input
from logfleet.cli.streams.sending import Output, produce_in_transactions, produce_lines
from logfleet.client.cluster import Client
from logfleet.client.errors import KafkaError
from logfleet.records.compression import Codec
from logfleet.wire.errors import ErrorCode
from logfleet.wire.messages import EndTxnRequest

from broker_image.tests.unit.client.fake_broker import FakeBroker
from broker_image.tests.unit.client.fake_log import Log
from broker_image.tests.unit.client.transactions.fake_coordinator import Coordinator


@pytest.mark.parametrize(
    "arguments, words",
    [
        ([], "Missing argument 'TOPIC'"),
        (["t", "-K", ""], "an empty text separates nothing"),
        (["t", "-D", ""], "an empty text separates nothing"),
        (["t", "-k", "a", "-K:"], "--key and --key-separator both say"),
        (["t", "--json", "-K:"], "--json says where key and null are"),
        (["t", "-K", r"\q"], r"'\\q': write \n"),
        (["t", "-H", "name"], "'name': write NAME=VALUE"),
        (
            ["t", "-H", "\udcff=value"],
            r"'\udcff=value': the name is not UTF-8",
        ),  # the byte 0xff (PEP 383)
        (["t", "-z", "brotli"], "'brotli' is not one of 'none', 'gzip'"),
        (["t", "-a", "2"], "'2' is not one of 'all', '1', '0'"),
        (["t", "-p", "-1"], "-1 is not in the range"),
        (["t", "--repeat", "2"], "--repeat: of which --file?"),
        (["t", "--rate", "0"], "0.0 is not in the range"),
        (["t", "--file", "/none"], "'/none' does not exist"),
        (["t", "--transaction-records", "5"], "of which --transactional-id?"),
        (["t", "--transactional-id", "x", "-a", "1"], "a transaction needs --acks all"),
    ],
)
def test_what_the_command_line_cannot_mean_is_told_in_one_line(
    arguments: list[str], words: str
) -> None:
    result = CliRunner().invoke(cli, ["produce", *arguments], prog_name="logfleet")
    assert result.exit_code == 2
    (line,) = result.stderr.splitlines()
    assert words in line
    assert line.endswith("; see logfleet produce --help")


@pytest.mark.asyncio
@pytest.mark.parametrize(
    "line, words",
    [
        (b'{"value": "b", "partition": 99}', "line 3: t-99: there is no such topic or partition"),
        (b'{"value": "b"', "line 3: is no record in JSON"),
    ],
)
async def test_all_lines_before_one_that_cannot_be_sent_are_written(
    line: bytes, words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    given = tmp_path / "lines"
    given.write_bytes(b'{"value": "a"}\n{"value": "a"}\n%s\n{"value": "never"}\n' % line)
    source = Input(b"\n", read_json, (), None)
    output = Output("t", -1, Codec.NONE, create=False, as_json=False)
    with given.open() as lines:
        monkeypatch.setattr("sys.stdin", lines)
        async with FakeBroker({"t": 1}).running() as broker, Client(broker.bootstrap) as client:
            log = Log(broker)
            with pytest.raises(click.ClickException, match=words):
                await produce_lines(client, source, output)
            assert log.values == {0: [b"a", b"a"]}


@pytest.mark.asyncio
async def test_while_a_record_is_not_acknowledged_only_so_many_are_sent_after_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sending, "UNCONFIRMED_MAX", 10)
    given = tmp_path / "lines"
    given.write_bytes(
        b'{"value": "a", "partition": 0}\n' + b'{"value": "b", "partition": 1}\n' * 500
    )
    source = Input(b"\n", read_json, (), None)
    output = Output("t", -1, Codec.NONE, create=False, as_json=False)
    with given.open() as lines:
        monkeypatch.setattr("sys.stdin", lines)
        async with FakeBroker({"t": 2}).running() as broker:
            broker.leaderless = {("t", 0)}
            log = Log(broker)
            async with Client(broker.bootstrap, timeout_ms=500) as client:
                with pytest.raises(click.ClickException, match="line 1: t-0: LEADER_NOT_AVAILABLE"):
                    await produce_lines(client, source, output)
    assert len(log.values[1]) <= 11  # one more waits for its place


@pytest.mark.asyncio
@pytest.mark.parametrize("is_plain", [False, True])
@pytest.mark.parametrize("partition, key", [(None, None), (2, None), (None, b"k")])
async def test_lines_that_are_values_are_written_as_records_are(
    is_plain: bool, partition: int | None, key: bytes | None, tmp_path: Path
) -> None:
    given = tmp_path / "lines"
    values = [b"%d" % number * (number % 50) for number in range(9000)]
    given.write_bytes(b"\n".join(values))
    source = Input(
        b"\n", draft_reader(separator=None, key=key), [("h", b"x")], partition, key, is_plain, given
    )
    output = Output("t", -1, Codec.NONE, create=False, as_json=False)
    async with FakeBroker({"t": 5}).running() as broker, Client(broker.bootstrap) as client:
        log = Log(broker)
        await produce_lines(client, source, output)
    written = [value for part in log.values.values() for value in part if value is not None]
    assert sorted(written) == sorted(values)
    if partition is not None or key is not None:
        (only,) = log.values.values()
        assert only == values
        assert partition in {None, *log.values}


@pytest.mark.asyncio
@pytest.mark.parametrize("is_plain", [False, True])
async def test_a_line_that_the_broker_refuses_is_named(
    is_plain: bool, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    given = tmp_path / "lines"
    given.write_bytes(b"a\n" * 3 + b"large" * 1000 + b"\nb\n")
    source = Input(b"\n", draft_reader(separator=None), (), 0, None, is_plain, given)
    output = Output("t", -1, Codec.NONE, create=False, as_json=False, verbose=True)
    async with FakeBroker({"t": 1}).running() as broker, Client(broker.bootstrap) as client:
        log = Log(broker)
        log.batch_bytes_max = 500
        with pytest.raises(click.ClickException, match="line 4: t-0: MESSAGE_TOO_LARGE"):
            await produce_lines(client, source, output)
        assert log.values[0][:3] == [b"a"] * 3
    assert capsys.readouterr().err.startswith("3 records written in ")


@pytest.mark.asyncio
async def test_a_line_longer_than_a_record_may_be_is_named_after_those_before_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("logfleet.cli.streams.input.LINE_BYTES_MAX", 1000)
    monkeypatch.setattr("logfleet.cli.streams.input.CHUNK_BYTES", 100)
    given = tmp_path / "lines"
    given.write_bytes(b"a\n" * 60 + b"b" * 1100)
    source = Input(b"\n", draft_reader(separator=None), (), 0, None, True, given)
    output = Output("t", -1, Codec.NONE, create=False, as_json=False)
    async with FakeBroker({"t": 1}).running() as broker, Client(broker.bootstrap) as client:
        log = Log(broker)
        with pytest.raises(click.ClickException, match="line 61: a record of more than 1000 bytes"):
            await produce_lines(client, source, output)
        assert log.values == {0: [b"a"] * 60}


@pytest.mark.asyncio
@pytest.mark.parametrize("rate", [None, 100_000.0])
async def test_a_file_is_read_as_often_as_wanted(
    rate: float | None, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    given = tmp_path / "lines"
    given.write_bytes(b"a\nb")
    source = Input(b"\n", draft_reader(separator=None), (), 0, None, True, given, 3, rate)
    output = Output("t", -1, Codec.NONE, create=False, as_json=False, verbose=True)
    async with FakeBroker({"t": 1}).running() as broker, Client(broker.bootstrap) as client:
        log = Log(broker)
        await produce_lines(client, source, output)
        assert log.values == {0: [b"a", b"b"] * 3}
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("6 records written in ")
    assert line.endswith(" s; next offsets: t-0 6")


@pytest.mark.asyncio
async def test_what_nobody_acknowledges_is_sent_not_written(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    given = tmp_path / "lines"
    given.write_bytes(b"a\nb\n")
    source = Input(b"\n", draft_reader(separator=None), (), 0, None, True, given)
    output = Output("t", 0, Codec.NONE, create=False, as_json=False, verbose=True)
    async with FakeBroker({"t": 1}).running() as broker, Client(broker.bootstrap) as client:
        log = Log(broker)
        await produce_lines(client, source, output)
        await log.taken.wait()
        assert log.values == {0: [b"a", b"b"]}
    assert capsys.readouterr().err.startswith("2 records sent in ")


@pytest.mark.asyncio
async def test_a_rate_is_kept(tmp_path: Path) -> None:
    given = tmp_path / "lines"
    given.write_bytes(b"a\n" * 5)
    source = Input(b"\n", draft_reader(separator=None), (), 0, None, True, given, 1, 100.0)
    output = Output("t", -1, Codec.NONE, create=False, as_json=False)
    async with FakeBroker({"t": 1}).running() as broker, Client(broker.bootstrap) as client:
        log = Log(broker)
        started = asyncio.get_running_loop().time()
        await produce_lines(client, source, output)
        assert asyncio.get_running_loop().time() - started >= 0.04
        assert log.values == {0: [b"a"] * 5}


@pytest.mark.asyncio
@pytest.mark.parametrize("transactional_id", [None, "id"])
async def test_a_topic_that_is_not_there_fails_before_anything_is_read(
    transactional_id: str | None,
) -> None:
    source = Input(b"\n", draft_reader(separator=None), (), 0, None, True, Path("/never/opened"))
    output = Output("none", -1, Codec.NONE, False, False, transactional_id)
    write = produce_lines if transactional_id is None else produce_in_transactions
    async with FakeBroker({"t": 1}).running() as broker, Client(broker.bootstrap) as client:
        Coordinator(broker, 2)
        started = asyncio.get_running_loop().time()
        with pytest.raises(KafkaError, match="UNKNOWN_TOPIC_OR_PARTITION"):
            await write(client, source, output)
        assert asyncio.get_running_loop().time() - started < 3


# --- in transactions


async def produce_five(
    broker: FakeBroker,
    lines: Path,
    monkeypatch: pytest.MonkeyPatch,
    *,
    last: str = "4",
    records: int | None = None,
    timeout_ms: int = 10_000,
) -> None:
    """Write the values 0 to 4 in transactions of so many. last: instead of the value 4."""
    rows = [*(f'{{"value": "{number}"}}' for number in range(4)), last]
    lines.write_text("\n".join(rows))
    source = Input(b"\n", read_json, (), 0)
    output = Output("t", -1, Codec.NONE, False, True, "id", records)
    with lines.open() as given:
        monkeypatch.setattr("sys.stdin", given)
        async with Client(broker.bootstrap, timeout_ms=timeout_ms) as client:
            await produce_in_transactions(client, source, output)


@pytest.mark.asyncio
@pytest.mark.parametrize("records, commits", [(None, 1), (2, 3), (5, 1), (99, 1)])
async def test_lines_are_committed_each_so_many_or_at_the_end(
    records: int | None,
    commits: int,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfdbinary: pytest.CaptureFixture[bytes],
) -> None:
    async with FakeBroker({"t": 1}).running() as broker:
        log = Coordinator(broker, 2)
        last = '{"value": "4"}'
        await produce_five(broker, tmp_path / "lines", monkeypatch, records=records, last=last)
    assert log.values == {0: [b"0", b"1", b"2", b"3", b"4"]}
    assert log.ends() == [True] * commits
    shown = capfdbinary.readouterr().out.splitlines()
    assert [b'"offset":%d' % number in line for number, line in enumerate(shown)] == [True] * 5


@pytest.mark.asyncio
async def test_a_line_that_is_no_record_aborts_its_transaction_and_no_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    async with FakeBroker({"t": 1}).running() as broker:
        log = Coordinator(broker, 2)
        words = "line 5: is no record in JSON.*; the lines from 4 on are not committed"
        with pytest.raises(click.ClickException, match=words):
            await produce_five(broker, tmp_path / "lines", monkeypatch, last="{", records=3)
    assert log.ends()[0] is True
    assert True not in log.ends()[1:]
    assert len(capfdbinary.readouterr().out.splitlines()) == 3


@pytest.mark.asyncio
async def test_a_record_that_cannot_be_written_is_named_and_none_is_committed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    async with FakeBroker({"t": 1}).running() as broker:
        log = Coordinator(broker, 2)
        log.refused = {0: ErrorCode.INVALID_RECORD}
        words = "^line 1: t-0: INVALID_RECORD; the lines from 1 on are not committed$"
        with pytest.raises(click.ClickException, match=words):
            await produce_five(broker, tmp_path / "lines", monkeypatch, last='{"value": "4"}')
    assert True not in log.ends()
    assert capfdbinary.readouterr().out == b""


@pytest.mark.asyncio
@pytest.mark.parametrize(
    "faults, words",
    [
        ([ErrorCode.PRODUCER_FENCED], "has taken over; the lines from 1 on are not committed"),
        (
            [FakeBroker.CLOSE] * 9,
            "whether the lines from 1 on are committed is unknown",
        ),
    ],
)
async def test_a_commit_that_fails_tells_whether_anything_is_committed(
    faults: list[int | bytes],
    words: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with FakeBroker({"t": 1}).running() as broker:
        Coordinator(broker, 2).faults[EndTxnRequest] = faults
        with pytest.raises(click.ClickException, match=words):
            await produce_five(
                broker, tmp_path / "lines", monkeypatch, last='{"value": "4"}', timeout_ms=300
            )
