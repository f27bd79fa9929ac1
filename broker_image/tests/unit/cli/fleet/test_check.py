"""The command around the checks: codes, output, exit codes."""

import json
import shlex
from typing import Any

import click
import pytest
from click.testing import CliRunner, Result
from logfleet.checks.finding import Finding
from logfleet.checks.snapshot import Gap, Part, Snapshot
from logfleet.checks.table import CHECKS
from logfleet.checks.table import run as run_checks
from logfleet.cli.fleet import check
from logfleet.cli.main import cli

from broker_image.tests.unit.checks.fleets import fleet, partition, sick_fleets, topic

STRICT = topic("strict", config={"min.insync.replicas": "3"})
SINGLES = [topic(f"s{number}", partition(replicas=(1,))) for number in range(7)]


def checked(monkeypatch: pytest.MonkeyPatch, snapshot: Snapshot, *arguments: str) -> Result:
    def run(*_: Any) -> Snapshot:
        return snapshot

    monkeypatch.setattr(check, "run", run)
    return CliRunner().invoke(cli, ["check", *arguments])


def test_a_healthy_fleet_is_two_lines_and_exit_code_0(monkeypatch: pytest.MonkeyPatch) -> None:
    result = checked(monkeypatch, fleet())
    assert result.exit_code == 0
    head, last = result.output.splitlines()
    assert head.startswith("cluster c1: 3 brokers, 3 zones, 3 partitions  (0.")
    assert last == "nothing found; 35 checks passed"


def test_an_error_is_exit_code_1_with_its_remedy(monkeypatch: pytest.MonkeyPatch) -> None:
    result = checked(monkeypatch, fleet(STRICT))
    assert result.exit_code == 1
    _, finding, remedy, last = result.output.splitlines()
    assert finding == (
        "error    LF103  strict: min.insync.replicas is 3 with 3 replicas: no broker may restart"
    )
    assert remedy.strip() == "logfleet config set topic strict min.insync.replicas=2"
    assert last == "1 error; 34 checks passed"


def test_warnings_are_exit_code_1_only_if_that_is_asked_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert checked(monkeypatch, fleet(SINGLES[0])).exit_code == 0
    assert checked(monkeypatch, fleet(SINGLES[0]), "--strict").exit_code == 1
    assert checked(monkeypatch, fleet(SINGLES[0]), "--strict", "--ignore", "lf2").exit_code == 0
    assert checked(monkeypatch, fleet(SINGLES[0]), "--strict", "--select", "LF1").exit_code == 0


def test_many_findings_of_a_code_are_cut_short_without_v(monkeypatch: pytest.MonkeyPatch) -> None:
    short = checked(monkeypatch, fleet(*SINGLES)).output
    assert short.count("LF201") == 6
    assert "and 2 of LF201 more: -v lists them\n" in short
    long = checked(monkeypatch, fleet(*SINGLES), "-v").output
    assert long.count("LF201") == 7
    assert "passed   LF101  Partitions without a leader\n" in long


def test_what_could_not_be_checked_is_listed_with_the_reason(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    gaps = (Gap(Part.METRICS, "no admin port"), Gap(Part.DISKS, "it is down", 3))
    result = checked(monkeypatch, fleet(gaps=gaps))
    assert "not checked: LF403, LF408, LF503 (no admin port)\n" in result.output
    assert "it is down" not in result.output
    long = checked(monkeypatch, fleet(gaps=gaps), "-v").output
    assert "broker 3 did not report disks: it is down\n" in long


def test_programs_get_all_of_it_as_json(monkeypatch: pytest.MonkeyPatch) -> None:
    gaps = (Gap(Part.METRICS, "no admin port"),)
    result = checked(monkeypatch, fleet(STRICT, gaps=gaps), "-o", "json")
    found = json.loads(result.output)
    assert found["cluster"] == "c1"
    (finding,) = found["findings"]
    assert finding == {
        "code": "LF103",
        "severity": "error",
        "subject": "strict",
        "sentence": "min.insync.replicas is 3 with 3 replicas: no broker may restart",
        "remedy": "logfleet config set topic strict min.insync.replicas=2",
    }
    assert {each["code"] for each in found["not_checked"]} == {"LF403", "LF408", "LF503"}
    assert len(found["passed"]) == 31
    assert found["gaps"] == [{"part": "metrics", "reason": "no admin port", "broker": None}]


def test_a_remedy_names_the_address_that_was_given(monkeypatch: pytest.MonkeyPatch) -> None:
    result = checked(monkeypatch, fleet(STRICT), "-b", "b1:9092")
    assert "strict min.insync.replicas=2 -b b1:9092\n" in result.output


def test_a_code_is_explained_without_a_broker() -> None:
    result = CliRunner().invoke(cli, ["check", "--explain", "lf201"])
    assert result.exit_code == 0
    assert result.output.startswith("Topics with one replica (warning).\n\nThe records are lost")


@pytest.mark.parametrize(
    "arguments, words",
    [
        (["--explain", "LF1O3"], "there is no LF1O3; do you mean LF"),
        (["--explain", "x"], "there is no x; they are LF101 to LF603"),
        (["--select", "LF7"], "no code begins with 'LF7'"),
    ],
)
def test_a_wrong_code_is_a_wrong_command_line(arguments: list[str], words: str) -> None:
    result = CliRunner().invoke(cli, ["check", *arguments])
    assert result.exit_code == 2
    assert words in result.output


FINDINGS = {each.code: each for sick in sick_fleets() for each in run_checks(sick)}


def test_every_finding_is_among_the_examples() -> None:
    assert sorted(FINDINGS) == [each.code for each in CHECKS]


@pytest.mark.parametrize("finding", FINDINGS.values(), ids=lambda each: each.code)
def test_a_remedy_that_is_a_command_can_be_typed(finding: Finding) -> None:
    program, *arguments = shlex.split(finding.remedy)
    if program != "logfleet":
        assert "logfleet " not in finding.remedy or finding.code == "LF110"
        return
    command: click.Command = cli
    context = click.Context(cli, **cli.context_settings)  # commands keep their first help option
    while isinstance(command, click.Group):
        _, found, arguments = command.resolve_command(context, arguments)
        assert found is not None
        command = found
    command.make_context("remedy", arguments, parent=context)
