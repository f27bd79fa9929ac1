"""Options and connection that all commands for a running fleet share."""

import asyncio
import functools
import os
import shlex
import signal
import sys
from collections.abc import Awaitable, Callable, Sequence
from typing import IO, Any, Final, NamedTuple, TypeVar

import click

from logfleet.cli.advice import explain
from logfleet.cli.completion.callbacks import complete_context
from logfleet.cli.confirming import dry_run_option, execute_option
from logfleet.cli.contexts.address import (
    BOOTSTRAP_VARIABLE,
    CONTEXT_VARIABLE,
    DEFAULT_BOOTSTRAP,
    GIVEN,
    choose_address,
)
from logfleet.cli.contexts.file import load_contexts
from logfleet.cli.contexts.model import Context, WrongContext
from logfleet.cli.output.formats import output_option
from logfleet.cli.root_options import Format, root_options
from logfleet.client.bootstrap import parse_bootstrap
from logfleet.client.cluster import Client
from logfleet.client.errors import ClientError, ConnectionLost
from logfleet.records.errors import RecordsError
from logfleet.wire.errors import MalformedMessage

T = TypeVar("T")
Command = TypeVar("Command", bound=Callable[..., Any])

EXIT_TERMINATED: Final = 143  # 128 + SIGTERM, as a shell counts it
BOTH_CONTEXT_FLAGS: Final = ("-c", "--context")
LONG_CONTEXT_FLAG: Final = ("--context",)
"""For commands where -c means a configuration key."""


class Server(NamedTuple):
    """Where to connect, and how long to retry.

    source: where the address comes from. yes_change: the context that may be changed although it
    is read-only.
    """

    bootstrap: str
    timeout_seconds: float
    source: str = GIVEN
    context: Context | None = None
    yes_change: str | None = None

    @property
    def flags(self) -> tuple[str, ...]:
        """The options that another command needs for the same cluster; none if it finds it."""
        if self.source == GIVEN:
            return "-b", shlex.quote(self.bootstrap)
        if self.context is not None and self.source.endswith("(-c)"):
            return "--context", self.context.name
        return ()

    def check_may_change(self) -> None:
        """Raises ClickException if the context is read-only and --yes-change does not name it."""
        name = None if self.context is None else self.context.name
        if self.yes_change not in {None, name}:
            raise click.ClickException(
                f"--yes-change {self.yes_change}: nothing was changed, as the cluster is that of "
                f"{self.source}"
            )
        if self.context is not None and self.context.is_read_only and self.yes_change is None:
            raise click.ClickException(
                f"context {name} is read-only: nothing was changed; --yes-change {name} does it"
            )


def server_options(command: Command, context_flags: Sequence[str] = BOTH_CONTEXT_FLAGS) -> Command:
    """Add --bootstrap-server, --context and --timeout; the command gets them as `server`."""

    @click.option(
        "-b",
        "--bootstrap-server",
        metavar="HOST:PORT,...",
        callback=_checked_bootstrap,
        help="Brokers to begin with; one that answers is enough.  "
        f"[default: {BOOTSTRAP_VARIABLE}, else the context, else {DEFAULT_BOOTSTRAP}]",
    )
    @click.option(
        *context_flags,
        "context_name",
        metavar="NAME",
        shell_complete=complete_context,
        help="A cluster of `logfleet context list`.  "
        f"[default: {CONTEXT_VARIABLE}, else the current one]",
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
    def with_server(
        *args: Any,
        bootstrap_server: str | None,
        context_name: str | None,
        timeout: float,
        **options: Any,
    ) -> Any:
        server = chosen_server(bootstrap_server, context_name, timeout)
        return command(*args, server=server, **options)

    return with_server  # type: ignore[return-value]


def chosen_server(bootstrap: str | None, context_name: str | None, timeout: float) -> Server:
    """The server of these options, those before the sub-command, the environment and contexts.

    Raises ClickException.
    """
    before = root_options()
    try:
        bootstrap, source, context = choose_address(
            bootstrap or before.bootstrap,
            context_name or before.context,
            os.environ,
            load_contexts,
        )
        parse_bootstrap(bootstrap)
    except WrongContext as error:
        raise click.ClickException(str(error)) from error
    except ValueError as error:
        raise click.UsageError(f"{source}: {error}") from error
    return Server(bootstrap, timeout, source, context)


def record_output_option(command: Command) -> Command:
    """Add -o to a command that reads or writes records; the command gets `as_json`."""

    @click.option(
        "-o",
        "--output",
        type=click.Choice(["text", "json"]),
        help="For people, or for programs.  [default: text]",
    )
    @functools.wraps(command)
    def with_output(*args: Any, output: str | None, **options: Any) -> Any:
        chosen = output or root_options().output
        return command(*args, as_json=chosen == Format.JSON, **options)

    return with_output  # type: ignore[return-value]


def reading_options(command: Command) -> Command:
    """`server` and `output`, for commands that change nothing."""
    return server_options(output_option(command))


def changing_options(
    command: Command, context_flags: Sequence[str] = BOTH_CONTEXT_FLAGS
) -> Command:
    """`server`, `output` and `dry_run`, for commands that change things.

    A read-only context is refused before the command runs, unless this is a dry run.
    """
    guarded = guard(lambda options: not options["dry_run"])(output_option(command))
    return server_options(dry_run_option(guarded), context_flags)


def executing_options(command: Command) -> Command:
    """`server`, `output` and `execute`, for commands that only show what they would do without it.

    A read-only context is refused before the command runs, if it is to be executed.
    """
    guarded = guard(lambda options: bool(options["execute"]))(output_option(command))
    return server_options(execute_option(guarded))


def guard(changes: Callable[[dict[str, Any]], bool]) -> Callable[[Command], Command]:
    """Add --yes-change below `server_options`, and refuse a read-only context without it.

    changes: whether a command with these options changes the cluster.
    """

    def decorated(command: Command) -> Command:
        @click.option(
            "--yes-change", metavar="CONTEXT", help="Change it although this context is read-only."
        )
        @functools.wraps(command)
        def with_check(*args: Any, server: Server, yes_change: str | None, **options: Any) -> Any:
            server = server._replace(yes_change=yes_change)
            if changes(options):
                server.check_may_change()
            return command(*args, server=server, **options)

        return with_check  # type: ignore[return-value]

    return decorated


def _checked_bootstrap(
    ctx: click.Context, option: click.Parameter, value: str | None
) -> str | None:
    try:
        if value is not None:
            parse_bootstrap(value)
    except ValueError as error:
        raise click.BadParameter(str(error), ctx=ctx, param=option) from error
    return value


def run(server: Server, work: Callable[[Client], Awaitable[T]], *, waiting: bool = False) -> T:
    """What `work` returns, called with a connected client.

    waiting: brokers may be away at first, so the client is not connected yet.

    Raises ClickException for anything that a broker or the network refused, and before any
    connection if the context needs what is not built.
    """
    if server.context is not None and (objection := server.context.objection()) is not None:
        raise click.ClickException(objection)

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
                if not waiting:  # fail at once if the address is mistyped
                    await client.any()
            except ConnectionLost as error:
                raise click.ClickException(
                    f"{error}; that is the address of {server.source}: start a broker there, or "
                    f"name another with -b, -c or {BOOTSTRAP_VARIABLE}"
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
