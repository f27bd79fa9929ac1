"""Protects people: one rule for commands that change things, most for what cannot be restored.

Every command that changes something takes --dry-run, and marks what it then shows as a dry run, in
text and in JSON. A command that removes what cannot be restored asks on a terminal, and needs --yes
where nobody can answer. If the effect should be inspected first, the command is a dry run until
--execute is given. Topics that brokers keep for themselves want --internal.
"""

import functools
import sys
from collections.abc import Callable
from typing import Any, Final, TypeVar

import click

from logfleet.client.admin import Admin
from logfleet.client.errors import KafkaError
from logfleet.wire.errors import ErrorCode

Command = TypeVar("Command", bound=Callable[..., Any])

DRY_RUN: Final = "dryRun"
"""The key in JSON."""


def yes_option(command: Command) -> Command:
    """Add --yes; the command gets `confirm`, to be called with a question before any change.

    `confirm` raises ClickException if the answer is no, UsageError if nobody can answer and --yes
    is missing. A dry run asks nothing.
    """

    @click.option("--yes", is_flag=True, help="Do not ask; a script needs it.")
    @functools.wraps(command)
    def with_confirm(*args: Any, yes: bool, **options: Any) -> Any:
        is_answered = yes or options.get("dry_run", False)
        return command(*args, confirm=functools.partial(_confirm, yes=is_answered), **options)

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


internal_option = click.option(
    "--internal", is_flag=True, help="A topic that brokers keep for themselves, too."
)
INTERNAL: Final = (
    "the brokers keep it for themselves, and what groups or transactions need may be lost; "
    "--internal does it"
)


async def check_internal(admin: Admin, name: str, *, internal: bool) -> None:
    """Raises KafkaError for a topic that brokers keep for themselves, unless `internal`."""
    found = None if internal else await admin.find_topic(name)
    if found is not None and found.internal:
        raise KafkaError(ErrorCode.INVALID_REQUEST, INTERNAL, subject=f"topic {name}")


def dry_run_option(command: Command) -> Command:
    """Add --dry-run; the command gets `dry_run`, and then asks nobody and changes nothing."""
    option = click.option(
        "--dry-run", is_flag=True, help="Only check, and show what would happen; change nothing."
    )
    return option(command)


def execute_option(command: Command) -> Command:
    """Add --execute; the command gets `execute`, and without it only shows what it would do.

    --dry-run, which other commands have, is the same as to leave it out.
    """

    @click.option(
        "--execute", is_flag=True, help="Do it; without this only show what would be done."
    )
    @click.option("--dry-run", is_flag=True, help="Only show what would be done, as by default.")
    @functools.wraps(command)
    def with_execute(*args: Any, execute: bool, dry_run: bool, **options: Any) -> Any:
        if execute and dry_run:
            raise click.UsageError("--execute and --dry-run contradict each other, give one")
        return command(*args, execute=execute, **options)

    return with_execute  # type: ignore[return-value]


def report_dry_run(*, execute: bool) -> None:
    """Report that nothing was changed, after a dry run was shown."""
    if not execute:
        click.echo("Nothing was changed; --execute does it.", err=True)
