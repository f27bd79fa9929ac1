import re

import pytest
from click.testing import CliRunner
from logfleet.cli.main import cli
from logfleet.cli.output.formats import Output
from logfleet.cli.topic import _echo_description
from logfleet.client.metadata import NO_LEADER


@pytest.mark.parametrize(
    "arguments, words",
    [
        (["create"], "Missing argument 'NAME...'"),
        (["create", "t", "-p", "0"], "0 is not in the range"),
        (["create", "t", "-c", "retention.ms"], "'retention.ms': write KEY=VALUE"),
        (["create", "t", "-c", "=1"], "'=1': write KEY=VALUE"),
        (["alter", "t"], "nothing to change: give --partitions"),
        (["alter", "t", "-c", "a=1", "-d", "a"], "a stands in --config and in --delete-config"),
        (["delete"], "Missing argument 'NAME...'"),
        (["rename", "t"], "No such command 'rename'"),
    ],
)
def test_what_the_command_line_cannot_mean_is_told_in_one_line(
    arguments: list[str], words: str
) -> None:
    result = CliRunner().invoke(cli, ["topic", *arguments], prog_name="logfleet")
    assert result.exit_code == 2
    (line,) = result.stderr.splitlines()
    assert words in line
    assert re.search("(; see|\\? See) logfleet topic", line)


@pytest.mark.parametrize("command", ["create", "list", "describe", "alter", "delete"])
def test_every_command_shows_how_it_is_used(command: str) -> None:
    helped = CliRunner().invoke(cli, ["topic", command, "--help"])
    assert f"logfleet topic {command}" in helped.stdout


def test_a_description_marks_what_partitions_lack(capsys: pytest.CaptureFixture[str]) -> None:
    row = {"replicas": (1, 2), "isr": (1,), "begin": 0, "end": 5}
    marked = {"remarks": ["under_min_isr", "under_replicated"], "elr": (2,)}
    _echo_description(
        {
            "name": "t",
            "id": "i",
            "config": {},
            "partitions": [
                {"partition": 0, "leader": 1, **row, "remarks": [], "elr": ()},
                {"partition": 1, "leader": NO_LEADER, **row, **marked},
            ],
        },
        Output(),
    )
    assert capsys.readouterr().out.splitlines()[-2:] == [
        "0          1       1,2       1    0      5",
        "1          none    1,2       1    0      5    under min isr; under replicated; ELR 2",
    ]
