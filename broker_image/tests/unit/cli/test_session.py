import json
from collections.abc import Callable

import click
import pytest
from click.testing import CliRunner
from logfleet.cli import session
from logfleet.cli.session import (
    Report,
    Server,
    echo_rows,
    echo_table,
    output_option,
    run,
    server_options,
    table_option,
)
from logfleet.client.cluster import Client


@click.command()
@server_options
@output_option
def probe(server: Server, as_json: bool) -> None:
    click.echo(f"{server.bootstrap} {server.timeout_seconds} {as_json}")


@pytest.mark.parametrize(
    "arguments, environment, said",
    [
        ([], {}, "localhost:9092 30.0 False"),
        ([], {"LOGFLEET_BOOTSTRAP_SERVER": "a:1,b:2"}, "a:1,b:2 30.0 False"),
        ([], {"LOGFLEET_BOOTSTRAP_SERVER": ""}, "localhost:9092 30.0 False"),
        (["-b", "c"], {"LOGFLEET_BOOTSTRAP_SERVER": "a:1"}, "c 30.0 False"),
        (["--timeout", "2", "-o", "json"], {}, "localhost:9092 2.0 True"),
    ],
)
def test_where_the_address_comes_from(
    arguments: list[str], environment: dict[str, str], said: str
) -> None:
    assert CliRunner(env=environment).invoke(probe, arguments).stdout == said + "\n"


@click.command()
@table_option
def listing(as_json: bool) -> None:
    echo_rows(("name", "n"), [("a", 1)], as_json=as_json)


@pytest.mark.parametrize(
    "arguments, terminal, shown",
    [
        ([], False, "json"),
        ([], True, "table"),
        (["-o", "table"], False, "table"),
        (["-o", "json"], True, "json"),
    ],
)
def test_people_get_a_table_and_programs_json_unless_told_otherwise(
    arguments: list[str], terminal: bool, shown: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(session, "is_terminal", lambda: terminal)
    out = CliRunner().invoke(listing, arguments).stdout
    if shown == "json":
        assert json.loads(out) == [{"name": "a", "n": 1}]
    else:
        assert out.split()[:2] == ["NAME", "N"]


@pytest.mark.parametrize("address", ["host:port", "host:99999", ",", ":1"])
def test_an_address_that_is_none_is_a_mistake_of_usage(address: str) -> None:
    result = CliRunner().invoke(probe, ["-b", address])
    assert result.exit_code == 2
    assert "write host:port" in result.stderr


def test_a_failure_of_the_network_is_a_click_error() -> None:
    async def work(client: Client) -> None:
        raise AssertionError("nobody is connected")

    with pytest.raises(click.ClickException, match=r"^cannot connect to 127\.0\.0\.1:1: "):
        run(Server("127.0.0.1:1", 1.0), work)


def reported(
    fill: Callable[[Report], None], *, as_json: bool, dry_run: bool = False
) -> tuple[int, str, str]:
    @click.command()
    def command() -> None:
        report = Report(as_json=as_json, dry_run=dry_run)
        fill(report)
        report.end()

    result = CliRunner().invoke(command)
    return result.exit_code, result.stdout, result.stderr


def one_of_each(report: Report) -> None:
    report.done("topic", "a", "created", why="as asked")
    report.fail("topic", "b", "no")


def test_a_report_in_text() -> None:
    said = reported(one_of_each, as_json=False)
    assert said == (1, "topic/a created\n", "Error: topic/b: no\n")


def test_a_report_of_a_dry_run_says_so_in_text_and_json() -> None:
    assert reported(one_of_each, as_json=False, dry_run=True)[1] == "topic/a created (dry run)\n"
    _, out, _ = reported(one_of_each, as_json=True, dry_run=True)
    assert [row["dryRun"] for row in json.loads(out)] == [True, True]


def test_a_report_in_json() -> None:
    code, out, err = reported(one_of_each, as_json=True)
    assert (code, err) == (1, "Error: topic/b: no\n")
    assert json.loads(out) == [
        {"kind": "topic", "name": "a", "result": "created", "why": "as asked"},
        {"kind": "topic", "name": "b", "result": "failed", "error": "no"},
    ]


def test_a_report_without_failure_ends_well() -> None:
    assert reported(lambda _: None, as_json=True) == (0, "[]\n", "")


def test_columns_are_as_wide_as_what_is_in_them(capsys: pytest.CaptureFixture[str]) -> None:
    echo_table(("NAME", "N"), [("a-long-name", 1), ("b", "")])
    assert capsys.readouterr().out == "NAME         N\na-long-name  1\nb\n"
