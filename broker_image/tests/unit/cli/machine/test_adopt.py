from pathlib import Path

import pytest
from click.testing import CliRunner
from logfleet.cli.main import cli


@pytest.mark.parametrize(
    "content, words",
    [
        (None, "Is a directory: '{file}'"),
        (b"version=1\n", "{file} names no node.id"),
        (b"\xff", "{file} names no node.id"),
    ],
    ids=["a directory", "without node.id", "no text"],
)
def test_what_cannot_be_read_of_a_directory_is_told_in_one_line(
    content: bytes | None, words: str, tmp_path: Path
) -> None:
    file = tmp_path / "meta.properties"
    if content is None:
        file.mkdir()
    else:
        file.write_bytes(content)
    result = CliRunner().invoke(cli, ["adopt", str(tmp_path)], prog_name="logfleet")
    assert (result.exit_code, result.stdout) == (1, "")
    (line,) = result.stderr.splitlines()
    assert line.startswith("Error: ")
    assert words.format(file=file) in line


def test_a_kafka_that_was_protected_is_not_adopted_without_that(tmp_path: Path) -> None:
    file = tmp_path / "server.properties"
    file.write_text(
        "authorizer.class.name=org.apache.kafka.metadata.authorizer.StandardAuthorizer\n"
    )
    result = CliRunner().invoke(cli, ["adopt", "--properties", str(file)], prog_name="logfleet")
    assert (result.exit_code, result.stdout) == (1, "")
    assert "authorizer.class.name asks for protection" in result.stderr
