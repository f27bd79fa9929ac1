import pytest
from click.testing import CliRunner
from logfleet.cli.main import cli
from logfleet.cli.quota import KEYS, entity_text
from logfleet.quotas import entities as quotas


@pytest.mark.parametrize(
    "arguments, words",
    [
        (["set", "--user", "u"], "Missing argument 'KEY=NUMBER...'"),
        (["set", "--user", "u", "nope=1"], "'nope=1': write KEY=NUMBER with one of producer_byte"),
        (["set", "--user", "u", "producer_byte_rate"], "'' is not a number"),
        (["set", "producer_byte_rate=1"], "say whom it is for"),
        (["set", "--user", "u", "--user-default", "producer_byte_rate=1"], "give either --user or"),
        (["set", "--ip-default", "--user", "u", "producer_byte_rate=1"], "--ip goes with neither"),
        (["delete"], "say whom it is for"),
        (["delete", "--user", "u", "nope"], "'nope' is not one of"),
    ],
)
def test_what_the_command_line_cannot_mean_is_told_in_one_line(
    arguments: list[str], words: str
) -> None:
    result = CliRunner().invoke(cli, ["quota", *arguments], prog_name="logfleet")
    assert result.exit_code == 2
    (line,) = result.stderr.splitlines()
    assert words in line
    assert "; see logfleet quota" in line


@pytest.mark.parametrize("command", ["describe", "set", "delete"])
def test_every_command_shows_how_it_is_used(command: str) -> None:
    helped = CliRunner().invoke(cli, ["quota", command, "--help"])
    assert f"logfleet quota {command}" in helped.stdout


def test_the_keys_are_those_of_brokers() -> None:
    known = {value for name, value in vars(quotas).items() if name.endswith(("_RATE", "CENTAGE"))}
    assert set(KEYS) == known


def test_an_entity_is_shown_in_one_order() -> None:
    assert entity_text({"user": None, "client-id": "c"}) == "client-id=c,user=<default>"
