import pytest
from click.testing import CliRunner
from logfleet.cli.fleet.may_i import _echo
from logfleet.cli.main import cli

YES = {
    "may": True,
    "brokers": [2],
    "forbidden": [],
    "forbidden_count": 0,
    "under_replicated": [{"topic": "t", "partition": 0}, {"topic": "t", "partition": 1}],
    "under_replicated_count": 2,
}
NO = {
    **YES,
    "may": False,
    "brokers": [2, 3],
    "forbidden": [{"topic": "t", "partition": 7, "rule": "nobody is left", "can_heal": False}],
    "forbidden_count": 30,
    "under_replicated": [],
    "under_replicated_count": 0,
}


def test_people_are_told_yes_and_what_it_costs(capsys: pytest.CaptureFixture[str]) -> None:
    _echo(YES)
    assert capsys.readouterr().out.splitlines() == [
        "Yes: 2",
        "",
        "Partitions that would lack replicas: 2",
        "t-0 t-1",
    ]


def test_people_are_told_no_and_the_first_rules(capsys: pytest.CaptureFixture[str]) -> None:
    _echo(NO)
    assert capsys.readouterr().out.splitlines() == [
        "No: 2, 3",
        "",
        "Partitions that forbid it: 30, the first 1",
        "PARTITION  RULE            WAITING",
        "t-7        nobody is left  does not help",
    ]


@pytest.mark.parametrize(
    "arguments, words",
    [
        (["stop"], "Missing argument 'ID...'"),
        (["stop", "two"], "'two' is not a valid integer"),
        (["lose-zone"], "Missing argument 'ZONE'"),
        (["rest"], "No such command 'rest'"),
    ],
)
def test_what_the_command_line_cannot_mean_is_told_in_one_line(
    arguments: list[str], words: str
) -> None:
    result = CliRunner().invoke(cli, ["may-i", *arguments], prog_name="logfleet")
    assert result.exit_code == 2
    (line,) = result.stderr.splitlines()
    assert words in line
