from pathlib import Path

import click
import pytest
from click.testing import CliRunner
from logfleet.cli import produce as module
from logfleet.cli.main import cli
from logfleet.cli.produce import Input, Output, produce_lines
from logfleet.cli.record_text import read_json
from logfleet.client.cluster import Client
from logfleet.records.compression import Codec

from broker_image.tests.unit.client.fake_broker import FakeBroker
from broker_image.tests.unit.client.fake_log import Log


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
    monkeypatch.setattr(module, "UNCONFIRMED_MAX", 10)
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
