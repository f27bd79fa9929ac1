import json
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio
from click.testing import CliRunner
from logfleet.cli import transaction as module
from logfleet.cli.main import cli
from logfleet.cli.output.formats import Output
from logfleet.cli.output.report import Report
from logfleet.cli.root_options import Format
from logfleet.client.cluster import Client
from logfleet.client.offsets import TopicPartition
from logfleet.client.transactions.admin import TransactionDescription
from logfleet.wire.errors import ErrorCode
from logfleet.wire.messages import InitProducerIdRequest, WriteTxnMarkersRequest

from broker_image.tests.unit.client.fake_broker import FakeBroker
from broker_image.tests.unit.client.transactions.fake_transactions import (
    FakeTransactions,
    described,
    producing,
)

T0 = TopicPartition("t", 0)


@pytest.mark.parametrize(
    "arguments, words",
    [
        (["list", "--state", "Open"], "'Open' is not one of 'Empty', 'Ongoing'"),
        (["list", "--longer-than", "-1"], "write seconds, or 500ms"),
        (["describe"], "Missing argument 'NAME...'"),
        (["find-hanging", "-p", "0"], "--partition: of which --topic?"),
        (["abort"], "what to abort: give names, or --topic"),
        (["abort", "a", "-t", "t"], "what to abort: give names, or --topic"),
        (["abort", "-t", "t", "-p", "0"], "a hanging one: give --topic, --partition and"),
        (["abort", "a"], "Nobody can answer here: give --yes"),
        (["abort", "-t", "t", "-p", "0", "--start-offset", "5"], "Nobody can answer here"),
    ],
)
def test_what_the_command_line_cannot_mean_is_one_line(arguments: list[str], words: str) -> None:
    result = CliRunner().invoke(cli, ["transaction", *arguments], prog_name="logfleet")
    assert result.exit_code == 2
    (line,) = result.stderr.splitlines()
    assert words in line
    assert line.endswith(f"; see logfleet transaction {arguments[0]} --help")


def test_a_description_names_for_programs_and_people_since_when_it_is_open(
    capsys: pytest.CaptureFixture[str],
) -> None:
    found = TransactionDescription("a", 1, "Ongoing", 7, 3, 60_000, 1_000, (T0,))
    row = module._described(found, now_ms=3_500)
    assert (row["started"], row["durationMs"]) == (1_000, 2_500)
    assert row["partitions"] == [{"topic": "t", "partition": 0}]
    module._echo_description(row, Output())
    shown = capsys.readouterr().out.splitlines()
    assert shown == [
        "Transaction:  a",
        "State:        Ongoing",
        "Coordinator:  1",
        "Producer:     7, epoch 3",
        "Timeout:      60 s",
        "Open for:     2.5 s",
        "TOPIC  PARTITION",
        "t      0",
    ]


@pytest.mark.parametrize("state, started_ms", [("Empty", -1), ("CompleteCommit", 1_000)])
def test_one_that_has_ended_is_not_open(
    state: str, started_ms: int, capsys: pytest.CaptureFixture[str]
) -> None:
    ended = TransactionDescription("a", 1, state, 7, 3, 60_000, started_ms, ())
    row = module._described(ended, now_ms=3_500)
    assert (row["started"], row["durationMs"]) == (None, None)
    module._echo_description(row, Output())
    assert "Open for" not in capsys.readouterr().out


# --- abort, against a broker of a few lines


@pytest_asyncio.fixture
async def broker() -> AsyncIterator[FakeBroker]:
    async with FakeBroker({"t": 1}).running() as running:
        yield running


@pytest_asyncio.fixture
async def client(broker: FakeBroker) -> AsyncIterator[Client]:
    async with Client(broker.bootstrap, timeout_ms=2_000) as made:
        yield made


@pytest.mark.asyncio
async def test_only_what_is_open_is_aborted_by_name(
    broker: FakeBroker, client: Client, capsys: pytest.CaptureFixture[str]
) -> None:
    fake = FakeTransactions(broker)
    fake.ids = {
        "open": described("open", 1, "Ongoing", 0),
        "ended": described("ended", 2, "CompleteCommit"),
        "ending": described("ending", 3, "PrepareCommit", 0),
    }
    report = Report(Output(Format.JSON))
    await module._abort_names(client, ["open", "ended", "ending", "missing"], report)
    assert [(row["name"], row["result"]) for row in report.rows] == [
        ("open", "aborted"),
        ("ended", "unchanged"),
        ("ending", "failed"),
        ("missing", "failed"),
    ]
    assert [row.transactional_id for row in broker.of(InitProducerIdRequest)] == ["open"]
    assert capsys.readouterr().err.splitlines() == [
        "Error: transaction/ending: its outcome is decided: it is in PrepareCommit",
        "Error: transaction/missing: there is no such transactional id",
    ]


@pytest.mark.asyncio
async def test_a_hanging_transaction_gets_its_marker_and_one_with_an_owner_does_not(
    broker: FakeBroker, client: Client, capsys: pytest.CaptureFixture[str]
) -> None:
    fake = FakeTransactions(broker)
    fake.ids["a"] = described("a", 7, "Ongoing", 0)
    fake.producers[0] = [producing(7, 20), producing(8, 30), producing(9, 40)]
    report = Report(Output())
    for offset in (20, 25, 30):
        await module._abort_hanging(client, T0, offset, report)
    fake.codes[WriteTxnMarkersRequest] = [ErrorCode.INVALID_PRODUCER_EPOCH]
    await module._abort_hanging(client, T0, 40, report)
    shown = capsys.readouterr()
    assert shown.out == "transaction/t-0@30 aborted\n"
    assert shown.err.splitlines() == [
        "Error: transaction/t-0@20: a has it open: `logfleet transaction abort a`",
        "Error: transaction/t-0@25: no open transaction begins there; find-hanging shows them",
        "Error: transaction/t-0@40: its producer has gone on, or was replaced",
    ]
    sent = [request.markers[0].producer_id for request in broker.of(WriteTxnMarkersRequest)]
    assert sent == [8, 9]
    assert json.dumps(report.rows)
