import pytest
from click.testing import CliRunner
from logfleet.cli.main import cli


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
