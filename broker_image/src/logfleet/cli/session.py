"""Options, connection and error lines that all commands for a running fleet share."""

import asyncio
import functools
import json
import signal
import sys
from collections.abc import Awaitable, Callable, Sequence
from typing import IO, Any, Final, NamedTuple, TypeVar

import click

from logfleet.cli.advice import explain
from logfleet.cli.confirming import DRY_RUN
from logfleet.client.bootstrap import parse_bootstrap
from logfleet.client.cluster import Client
from logfleet.client.errors import ClientError, ConnectionLost, KafkaError
from logfleet.records.errors import RecordsError
from logfleet.wire.errors import ErrorCode, MalformedMessage

T = TypeVar("T")
Command = TypeVar("Command", bound=Callable[..., Any])

EXIT_TERMINATED: Final = 143  # 128 + SIGTERM, as a shell counts it
BOOTSTRAP_VARIABLE: Final = "LOGFLEET_BOOTSTRAP_SERVER"
DEFAULT_BOOTSTRAP: Final = "localhost:9092"


class Server(NamedTuple):
    """Where to connect, and how long to retry."""

    bootstrap: str
    timeout_seconds: float


def server_options(command: Command) -> Command:
    """Add --bootstrap-server and --timeout; the command gets them as `server`."""

    @click.option(
        "-b",
        "--bootstrap-server",
        default=DEFAULT_BOOTSTRAP,
        show_default=True,
        envvar=BOOTSTRAP_VARIABLE,
        show_envvar=True,
        metavar="HOST:PORT,...",
        callback=_checked_bootstrap,
        help="Brokers to begin with; one that answers is enough.",
    )
    @click.option(
        "--timeout",
        type=click.FloatRange(0.1, 3600),
        default=30.0,
        show_default=True,
        metavar="SECONDS",
        help="How long to go on trying what may pass, such as a broker that restarts.",
    )
    @functools.wraps(command)
    def with_server(*args: Any, bootstrap_server: str, timeout: float, **options: Any) -> Any:
        return command(*args, server=Server(bootstrap_server, timeout), **options)

    return with_server  # type: ignore[return-value]


def output_option(command: Command) -> Command:
    """Add -o; the command gets `as_json`."""

    @click.option(
        "-o",
        "--output",
        type=click.Choice(["text", "json"]),
        default="text",
        show_default=True,
        help="For people, or for programs.",
    )
    @functools.wraps(command)
    def with_output(*args: Any, output: str, **options: Any) -> Any:
        return command(*args, as_json=output == "json", **options)

    return with_output  # type: ignore[return-value]


def is_terminal() -> bool:
    """Whether stdout is a terminal."""
    return sys.stdout is not None and sys.stdout.isatty()


def table_option(command: Command) -> Command:
    """Add -o to a command that lists or describes; the command gets `as_json`.

    Without -o the output is a table on a terminal, else JSON.
    """

    @click.option(
        "-o",
        "--output",
        type=click.Choice(["table", "json"]),
        help="For people, or for programs.  [default: table on a terminal, else json]",
    )
    @functools.wraps(command)
    def with_output(*args: Any, output: str | None, **options: Any) -> Any:
        as_json = output == "json" if output else not is_terminal()
        return command(*args, as_json=as_json, **options)

    return with_output  # type: ignore[return-value]


def listing_options(command: Command) -> Command:
    """`server_options` and `table_option`, for commands that list or describe."""
    return server_options(table_option(command))


def changing_options(command: Command) -> Command:
    """`server_options` and `output_option`, for commands that change things and report each."""
    return server_options(output_option(command))


def _checked_bootstrap(ctx: click.Context, option: click.Parameter, value: str) -> str:
    try:
        parse_bootstrap(value)
    except ValueError as error:
        raise click.BadParameter(str(error), ctx=ctx, param=option) from error
    return value


def run(server: Server, work: Callable[[Client], Awaitable[T]]) -> T:
    """What `work` returns, called with a connected client.

    Raises ClickException for anything that a broker or the network refused.
    """

    async def main() -> T:
        task = asyncio.current_task()
        assert task is not None
        # as for Ctrl-C: let `work` clean up, for example leave a group
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, task.cancel)
        timeout_ms = int(server.timeout_seconds * 1000)
        async with Client(
            server.bootstrap,
            client_id="logfleet-cli",
            request_timeout_ms=min(timeout_ms, 30_000),
            timeout_ms=timeout_ms,
            on_outage=lambda sentence: click.echo(f"Warning: {sentence}", err=True),
        ) as client:
            try:
                await client.any()  # fail at once if the address is mistyped
            except ConnectionLost as error:
                raise click.ClickException(
                    f"{error}; start a broker there, or name another with --bootstrap-server or "
                    f"{BOOTSTRAP_VARIABLE}"
                ) from error
            return await work(client)

    try:
        return asyncio.run(main())
    except ClientError as error:
        raise click.ClickException(explain(error)) from error
    except (RecordsError, MalformedMessage) as error:
        raise click.ClickException(f"a broker sent what cannot be read: {error}") from error
    except asyncio.CancelledError:
        sys.exit(EXIT_TERMINATED)


def standard_input() -> IO[bytes]:
    """Standard input as bytes. Raises ClickException if the parent process closed it."""
    if sys.stdin is None:
        raise click.ClickException("standard input is closed")
    return sys.stdin.buffer


def standard_output() -> IO[bytes]:
    """Standard output as bytes. Raises ClickException if the parent process closed it."""
    if sys.stdout is None:
        raise click.ClickException("standard output is closed")
    return sys.stdout.buffer


class Report:
    """The results of a command: a line for each as soon as it is known, or JSON at the end."""

    def __init__(self, *, as_json: bool, dry_run: bool = False) -> None:
        self.as_json = as_json
        self.dry_run = dry_run
        self.rows: list[dict[str, object]] = []
        self.failed = False

    def done(self, kind: str, name: str, result: str, **fields: object) -> None:
        """Report success (in a dry run: what would succeed).

        result: created, unchanged ... fields: for JSON only.
        """
        self._add(kind, name, result=result, **fields)
        if not self.as_json:
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
        if self.as_json:
            echo_json(self.rows)
        if self.failed:
            sys.exit(1)


def change_each(
    server: Server,
    kind: str,
    names: Sequence[str],
    change: Callable[[Client, str], Awaitable[str]],
    *,
    as_json: bool,
    dry_run: bool = False,
    accepted: ErrorCode | None = None,
) -> None:
    """Change one after the other and report; a refusal does not stop the others.

    change: returns the result. accepted: an error that counts as unchanged.
    """
    report = Report(as_json=as_json, dry_run=dry_run)

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
    echo: Callable[[dict[str, Any]], None] | None,
) -> None:
    """Show the description of each, by `echo`, or as a JSON list if that is None.

    Prints nothing if none of them exists.
    """
    report = Report(as_json=False)
    descriptions = []

    async def work(client: Client) -> None:
        for name in await names(client):
            try:
                descriptions.append(await describe(client, name))
            except ClientError as error:
                report.refuse(kind, name, error)

    run(server, work)
    if echo is None:
        if descriptions or not report.failed:
            echo_json(descriptions)
    else:
        for index, description in enumerate(descriptions):
            click.echo("\n" * bool(index), nl=False)
            echo(description)
    report.end()


def echo_json(value: object) -> None:
    """Print one JSON document on stdout."""
    click.echo(json.dumps(value, indent=2, ensure_ascii=False))


def echo_rows(columns: Sequence[str], rows: Sequence[Sequence[object]], *, as_json: bool) -> None:
    """Print rows as a table with its titles in capitals, or as JSON objects with these keys."""
    if as_json:
        echo_json([dict(zip(columns, row, strict=True)) for row in rows])
    else:
        echo_table([column.upper() for column in columns], rows)


def echo_table(titles: Sequence[str], rows: Sequence[Sequence[object]]) -> None:
    """Print columns as wide as their widest cell; only the titles if there are no rows.

    A terminal gets a drawn table.
    """
    if is_terminal():
        _draw_table(titles, rows)
        return
    table = [list(titles), *([str(cell) for cell in row] for row in rows)]
    widths = [max(len(row[column]) for row in table) for column in range(len(titles))]
    for row in table:
        cells = (cell.ljust(width) for cell, width in zip(row, widths, strict=True))
        click.echo("  ".join(cells).rstrip())


def _draw_table(titles: Sequence[str], rows: Sequence[Sequence[object]]) -> None:
    from rich import box  # only people need it, and it takes a while to load
    from rich.console import Console
    from rich.table import Table

    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for title in titles:
        table.add_column(title, overflow="fold")
    for row in rows:
        table.add_row(*(str(cell) for cell in row))
    Console(markup=False, highlight=False).print(table)
