from collections.abc import Callable, Iterator

import click
import pytest
from click.testing import CliRunner
from logfleet.cli import confirming
from logfleet.cli.confirming import yes_option
from logfleet.cli.main import cli

DELETING = {
    "topic delete t": "Delete t with all records, for good?",
    "group delete g": "Delete g with all committed offsets, for good?",
    "group delete-offsets g -t t": "Delete what g has committed for t, for good?",
    "quota delete --user u": "Delete all limits of user=u?",
    "transaction abort a": "Abort what a has open, and fence its producer?",
    "features upgrade 2": "Raise logfleet.version to 2, for good?",
}
"""Command line -> what it asks. The words of a command are those before its first argument."""


@click.command()
@yes_option
def probe(*, confirm: Callable[[str], None]) -> None:
    confirm("Delete it?")
    click.echo("deleted")


@pytest.mark.parametrize(
    "terminal, arguments, typed, code, out",
    [
        (True, [], "y\n", 0, "deleted\n"),
        (True, [], "n\n", 1, ""),
        (True, [], "\n", 1, ""),
        (True, ["--yes"], "", 0, "deleted\n"),
        (False, ["--yes"], "", 0, "deleted\n"),
        (False, [], "y\n", 2, ""),
    ],
)
def test_a_person_is_asked_and_a_script_says_yes(
    terminal: bool,
    arguments: list[str],
    typed: str,
    code: int,
    out: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(confirming, "_can_answer", lambda: terminal)
    done = CliRunner().invoke(probe, arguments, input=typed)
    assert (done.exit_code, done.stdout) == (code, out)
    assert ("Delete it?" in done.stderr) == (not arguments)


def leaves(group: click.Group, path: str = "") -> Iterator[tuple[str, click.Command]]:
    context = click.Context(group)
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        assert command is not None
        if isinstance(command, click.Group):
            yield from leaves(command, f"{path}{name} ")
        else:
            yield f"{path}{name}", command


def test_each_command_that_deletes_asks_or_only_shows_until_it_is_told_to() -> None:
    guards = {
        path: {option.name for option in command.params} & {"yes", "execute"}
        for path, command in leaves(cli)
    }
    undone_by_set = {"config delete"}  # a key goes back to its default, and is set again by `set`
    deleting = {path for path in guards if "delete" in path} - undone_by_set
    assert {path for path in deleting if not guards[path]} == set()
    assert {path for path, found in guards.items() if "yes" in found} == {
        " ".join(line.split()[:2]) for line in DELETING
    }


@pytest.mark.parametrize("line", DELETING)
def test_a_script_without_yes_is_refused_before_a_broker_is_asked(line: str) -> None:
    done = CliRunner().invoke(cli, [*line.split(), "-b", "127.0.0.1:1"])
    assert done.exit_code == 2
    assert DELETING[line] in done.stderr
    assert "give --yes" in done.stderr


NO_CLUSTER = {
    *("broker", "local", "adopt", "doctor", "dump", "metadata snapshot", "metadata restore"),
    "test-server",
}
"""Commands for this machine."""
READING = {"list", "describe", "show", "current", "find-hanging", "plan", "status", "lost"}
READING_PATHS = {"log-dirs", "cluster", "events", "may-i"}
RECORDS = {"produce", "consume"}
"""They write records and commit offsets, of which no broker can be asked beforehand."""


def test_each_command_that_changes_a_cluster_can_be_tried_and_respects_read_only_contexts() -> None:
    for path, command in leaves(cli):
        options = {option.name for option in command.params}
        group, _, last = path.rpartition(" ")
        if path in NO_CLUSTER | {"check", "top", "console", "completion"} or group == "context":
            continue
        if last in READING or {path, group} & READING_PATHS:
            assert not options & {"dry_run", "yes_change", "yes", "execute"}, path
        elif path in RECORDS:
            assert "yes_change" in options
        else:
            assert options >= {"dry_run", "yes_change"}, path


def test_a_dry_run_asks_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(confirming, "_can_answer", lambda: False)
    for line in DELETING:
        done = CliRunner().invoke(cli, [*line.split(), "--dry-run", "-b", "127.0.0.1:1"])
        assert done.exit_code == 1
        assert "cannot connect to 127.0.0.1:1" in done.stderr
