"""Protects people: one rule for commands that remove what cannot be restored.

Such a command asks on a terminal, and needs --yes where nobody can answer. If the effect should be
inspected first, the command instead only shows it until --execute is given, and marks it as a dry
run, in text and in JSON.
"""

import functools
import sys
from collections.abc import Callable
from typing import Any, Final, TypeVar

import click

Command = TypeVar("Command", bound=Callable[..., Any])

DRY_RUN: Final = "dryRun"
"""The key in JSON."""


def yes_option(command: Command) -> Command:
    """Add --yes; the command gets `confirm`, to be called with a question before any change.

    `confirm` raises ClickException if the answer is no, UsageError if nobody can answer and --yes
    is missing.
    """

    @click.option("--yes", is_flag=True, help="Do not ask; a script needs it.")
    @functools.wraps(command)
    def with_confirm(*args: Any, yes: bool, **options: Any) -> Any:
        return command(*args, confirm=functools.partial(_confirm, yes=yes), **options)

    return with_confirm  # type: ignore[return-value]


def _confirm(question: str, *, yes: bool) -> None:
    if yes:
        return
    if not _can_answer():
        raise click.UsageError(f"{question} Nobody can answer here: give --yes to do it")
    if not click.confirm(question, err=True):
        raise click.ClickException("nothing was changed")


def _can_answer() -> bool:
    """Whether a person uses standard input and reads standard error."""
    return all(stream is not None and stream.isatty() for stream in (sys.stdin, sys.stderr))


def execute_option(command: Command) -> Command:
    """Add --execute; the command gets `execute`, and without it only shows what it would do."""
    option = click.option(
        "--execute", is_flag=True, help="Do it; without this only show what would be done."
    )
    return option(command)


def report_dry_run(*, execute: bool) -> None:
    """Report that nothing was changed, after a dry run was shown."""
    if not execute:
        click.echo("Nothing was changed; --execute does it.", err=True)
