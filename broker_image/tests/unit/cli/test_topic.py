import pytest
from click.testing import CliRunner
from logfleet.cli.main import cli


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
    assert "; see logfleet topic" in line


@pytest.mark.parametrize("command", ["create", "list", "describe", "alter", "delete"])
def test_every_command_shows_how_it_is_used(command: str) -> None:
    helped = CliRunner().invoke(cli, ["topic", command, "--help"])
    assert f"logfleet topic {command}" in helped.stdout
