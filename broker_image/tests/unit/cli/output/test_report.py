import json
from collections.abc import Callable

import click
from click.testing import CliRunner
from logfleet.cli.output.formats import Output
from logfleet.cli.output.report import Report
from logfleet.cli.root_options import Format


def reported(
    fill: Callable[[Report], None], *, format_: Format = Format.TABLE, dry_run: bool = False
) -> tuple[int, str, str]:
    @click.command()
    def command() -> None:
        report = Report(Output(format_), dry_run=dry_run)
        fill(report)
        report.end()

    result = CliRunner().invoke(command)
    return result.exit_code, result.stdout, result.stderr


def one_of_each(report: Report) -> None:
    report.done("topic", "a", "created", why="as asked")
    report.fail("topic", "b", "no")


def test_a_report_in_text() -> None:
    assert reported(one_of_each) == (1, "topic/a created\n", "Error: topic/b: no\n")


def test_a_report_of_a_dry_run_says_so_in_text_and_json() -> None:
    assert reported(one_of_each, dry_run=True)[1] == "topic/a created (dry run)\n"
    _, out, _ = reported(one_of_each, format_=Format.JSON, dry_run=True)
    assert [row["dryRun"] for row in json.loads(out)] == [True, True]


def test_a_report_in_json() -> None:
    code, out, err = reported(one_of_each, format_=Format.JSON)
    assert (code, err) == (1, "Error: topic/b: no\n")
    assert json.loads(out) == [
        {"kind": "topic", "name": "a", "result": "created", "why": "as asked"},
        {"kind": "topic", "name": "b", "result": "failed", "error": "no"},
    ]


def test_a_report_without_failure_ends_well() -> None:
    assert reported(lambda _: None, format_=Format.JSON) == (0, "[]\n", "")


def test_a_report_of_names_has_those_that_were_done() -> None:
    assert reported(one_of_each, format_=Format.NAME)[:2] == (1, "a\n")
