import pytest
from click.testing import CliRunner
from logfleet.cli.main import cli


@pytest.mark.parametrize(
    "arguments, reason",
    [
        (["--listen", "0.0.0.0:8080"], "--insecure"),
        (["--listen", "console.example:8080"], "--insecure"),
        (["--listen", "8080"], "write host:port"),
        (["--listen", "127.0.0.1:x"], "write host:port"),
        (["--base-path", "x"], "write it as /path"),
    ],
)
def test_an_address_that_others_reach_and_what_makes_no_sense_is_refused(
    arguments: list[str], reason: str
) -> None:
    result = CliRunner().invoke(cli, ["console", *arguments])
    assert result.exit_code == 2
    assert reason in result.output
