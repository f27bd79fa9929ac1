"""Every command line that the documentation shows is one that the program takes."""

import shlex
from collections.abc import Iterator
from pathlib import Path

import click
import pytest
from logfleet.cli.main import COMMANDS, cli

ROOT = Path(__file__).resolve().parents[4]


def commands(group: click.Group, path: tuple[str, ...]) -> Iterator[click.Command]:
    context = click.Context(group)
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        assert command is not None
        yield command
        if isinstance(command, click.Group):
            yield from commands(command, (*path, name))


def examples() -> list[str]:
    texts = [cli.help or "", (ROOT / "README.md").read_text()]
    texts += [command.help or "" for command in commands(cli, ())]
    lines = [line.strip() for text in texts for line in text.splitlines()]
    return sorted({line for line in lines if line.startswith("logfleet ") or "| logfleet " in line})


def calls(line: str) -> Iterator[list[str]]:
    """The arguments of each `logfleet` in a pipeline."""
    words: list[str] = []
    for word in [*shlex.split(line, comments=True), "|"]:
        if word in {"|", "<", "&&"}:
            if words[:1] == ["logfleet"]:
                yield words[1:]
            words = []
        else:
            words.append(word)


def test_there_are_examples_of_every_command() -> None:
    shown = {arguments[0] for line in examples() for arguments in calls(line)}
    assert shown == set(COMMANDS)


def leaves(group: click.Group, path: tuple[str, ...] = ()) -> Iterator[tuple[str, str]]:
    """Each command that has no commands of its own, and its help."""
    context = click.Context(group)
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        if isinstance(command, click.Group):
            yield from leaves(command, (*path, name))
        else:
            assert command is not None
            yield " ".join((*path, name)), command.help or ""


def test_the_help_of_each_command_has_an_example_of_it() -> None:
    assert [path for path, text in leaves(cli) if f"logfleet {path}" not in text] == []


@pytest.mark.parametrize("line", examples())
def test_an_example_can_be_typed(
    line: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "crds/examples").mkdir(parents=True)
    (tmp_path / "topics").mkdir()
    (tmp_path / "data/orders-0").mkdir(parents=True)
    (tmp_path / "kafka-data").mkdir()
    for name in (
        "payments.txt",
        "topic.yaml",
        "payments.txt",
        "cluster.yaml",
        "crds/examples/topic.yaml",
        "server.properties",
        "00000000000000000000.log",
        "data/meta.properties",
        "data/recovery-point-offset-checkpoint",
    ):
        (tmp_path / name).touch()
    for arguments in calls(line):
        command: click.Command = cli
        context = click.Context(cli, **cli.context_settings)
        rest = arguments
        while isinstance(command, click.Group):
            _, found, rest = command.resolve_command(context, rest)
            assert found is not None
            command = found
        command.make_context("example", rest, parent=context)
