"""The results of commands that change one thing after the other."""

import sys
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import click

from logfleet.cli.advice import explain
from logfleet.cli.confirming import DRY_RUN
from logfleet.cli.output.formats import Output, Row
from logfleet.cli.session import Server, run
from logfleet.client.cluster import Client
from logfleet.client.errors import ClientError, KafkaError
from logfleet.wire.errors import ErrorCode


class Report:
    """A line for each result as soon as it is known, or JSON at the end."""

    def __init__(self, output: Output, *, dry_run: bool = False) -> None:
        self.output = output
        self.dry_run = dry_run
        self.rows: list[dict[str, object]] = []
        self.failed = False

    def done(self, kind: str, name: str, result: str, **fields: object) -> None:
        """Report success (in a dry run: what would succeed).

        result: created, unchanged ... fields: for JSON only.
        """
        self._add(kind, name, result=result, **fields)
        if self.output.is_name:
            click.echo(name)
        elif not self.output.is_json:
            click.echo(f"{kind}/{name} {result}{' (dry run)' if self.dry_run else ''}")

    def fail(self, kind: str, name: str, error: str) -> None:
        """Report a failure."""
        self.failed = True
        self._add(kind, name, result="failed", error=error)
        click.echo(f"Error: {kind}/{name}: {error}", err=True)

    def refuse(self, kind: str, name: str, error: ClientError) -> None:
        """Report a failure with the error of a broker."""
        self.fail(kind, name, explain(error, with_subject=False))

    def _add(self, kind: str, name: str, **fields: object) -> None:
        mark = {DRY_RUN: True} if self.dry_run else {}
        self.rows.append({"kind": kind, "name": name, **mark, **fields})

    def end(self) -> None:
        """Print the JSON; exit with code 1 if anything failed."""
        if self.output.is_json:
            self.output.document(self.rows, lambda: None, names=())
        if self.failed:
            sys.exit(1)


def change_each(
    server: Server,
    kind: str,
    names: Sequence[str],
    change: Callable[[Client, str], Awaitable[str]],
    *,
    output: Output,
    dry_run: bool = False,
    accepted: ErrorCode | None = None,
) -> None:
    """Change one after the other and report; a refusal does not stop the others.

    change: returns the result. accepted: an error that counts as unchanged.
    """
    report = Report(output, dry_run=dry_run)

    async def work(client: Client) -> None:
        for name in names:
            try:
                report.done(kind, name, await change(client, name))
            except ClientError as error:
                if isinstance(error, KafkaError) and error.code == accepted:
                    report.done(kind, name, "unchanged")
                else:
                    report.refuse(kind, name, error)

    run(server, work)
    report.end()


def show_each(
    server: Server,
    kind: str,
    names: Callable[[Client], Awaitable[Sequence[str]]],
    describe: Callable[[Client, str], Awaitable[dict[str, Any]]],
    echo: Callable[[Row, Output], None],
    *,
    output: Output,
) -> None:
    """Show the description of each; `echo` prints one for people.

    Prints nothing if none of them exists.
    """
    report = Report(Output())
    descriptions = []

    async def work(client: Client) -> None:
        for name in await names(client):
            try:
                descriptions.append(await describe(client, name))
            except ClientError as error:
                report.refuse(kind, name, error)

    def text() -> None:
        for index, description in enumerate(descriptions):
            click.echo("\n" * bool(index), nl=False)
            echo(description, output)

    run(server, work)
    if descriptions or not report.failed:
        output.document(descriptions, text, names=[each["name"] for each in descriptions])
    report.end()
