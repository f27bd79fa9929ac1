"""What keeps people from harm: one rule for commands that take away what cannot be had back.

Such a command asks on a terminal and needs --yes where nobody can answer; or, where the effect is
worth a look before, it only shows it until --execute is given. What it shows says that it is a dry
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
    """Add --yes; the command gets `confirm`, to call with a question before it changes anything.

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
    """Whether a person sits at standard input and reads standard error."""
    return all(stream is not None and stream.isatty() for stream in (sys.stdin, sys.stderr))


def execute_option(command: Command) -> Command:
    """Add --execute; the command gets `execute`, and without it only shows what it would do."""
    option = click.option(
        "--execute", is_flag=True, help="Do it; without this only show what would be done."
    )
    return option(command)


def say_dry_run(*, execute: bool) -> None:
    """After what would be done was shown: that nothing was."""
    if not execute:
        click.echo("Nothing was changed; --execute does it.", err=True)
