"""`logfleet`: the command group."""

import difflib
import errno
import importlib
import os
import sys
from collections.abc import Sequence
from typing import Any, NoReturn

import click
from click.exceptions import NoArgsIsHelpError, NoSuchCommand
from click.shell_completion import CompletionItem

from logfleet import KAFKA_VERSION, __version__
from logfleet.cli.completion.callbacks import complete_context
from logfleet.cli.late_imports import late_imports, loading
from logfleet.cli.root_options import FORMATS, RootOptions

EXIT_USAGE = 2
EXIT_INTERRUPTED = 130  # 128 + SIGINT, as a shell counts it
PYTHON = ".".join(map(str, sys.version_info[:3]))
VERSION = f"logfleet {__version__} (Python {PYTHON}, protocol of Kafka {KAFKA_VERSION})"
EXTRAS = {"etcd3": "etcd", "fastavro": "avro", "google": "etcd", "grpc": "etcd"}
"""Of modules that only an extra of the package installs: its name."""

# Command -> the module that has it under the same name (with _ for -), and its line in the list. A
# module is imported when its command is called: listing topics needs none of a broker's libraries.
COMMANDS = {
    "broker": ("logfleet.cli.broker", "Run one broker in the foreground."),
    "local": ("logfleet.cli.machine.local", "Run a whole fleet on this machine."),
    "adopt": (
        "logfleet.cli.machine.adopt",
        "Take over the partitions that an Apache Kafka left behind.",
    ),
    "doctor": (
        "logfleet.cli.machine.doctor",
        "Check what a broker lacks on this machine, and what to do.",
    ),
    "test-server": (
        "logfleet.cli.machine.test_server",
        "Real brokers for tests in any language, by HTTP.",
    ),
    "context": ("logfleet.cli.contexts.commands", "Name clusters, and choose one."),
    "completion": (
        "logfleet.cli.completion.commands",
        "Have a shell complete commands, options and names.",
    ),
    "topic": ("logfleet.cli.topic", "Create, list, describe, alter and delete topics."),
    "produce": ("logfleet.cli.produce", "Write lines of standard input to a topic."),
    "consume": ("logfleet.cli.consume", "Print the records of topics."),
    "group": ("logfleet.cli.group", "List, describe, move and delete consumer groups."),
    "transaction": (
        "logfleet.cli.transaction",
        "List, describe and abort transactions, find hanging ones.",
    ),
    "config": (
        "logfleet.cli.config",
        "Show and change what topics, brokers and groups are set to.",
    ),
    "records": ("logfleet.cli.records", "Delete records before an offset or a time."),
    "log-dirs": ("logfleet.cli.log_dirs", "Show what lies on the brokers' disks."),
    "dump": ("logfleet.cli.machine.dump", "Print what segments and indexes on this disk hold."),
    "quota": ("logfleet.cli.quota", "Describe, set and delete limits of clients."),
    "cluster": ("logfleet.cli.fleet.cluster", "Show brokers, and partitions that lack replicas."),
    "check": ("logfleet.cli.fleet.check", "Check a fleet: what is wrong, and how to mend it."),
    "console": ("logfleet.cli.fleet.console", "Show a fleet in a browser."),
    "events": ("logfleet.cli.fleet.events", "Show what brokers decided, and why."),
    "may-i": ("logfleet.cli.fleet.may_i", "Ask whether brokers may go down now."),
    "rebalance": ("logfleet.cli.fleet.rebalance", "Spread replicas evenly over brokers and zones."),
    "drain": ("logfleet.cli.fleet.drain", "Move all that brokers have to others."),
    "cordon": ("logfleet.cli.fleet.drain", "Give brokers no new replicas."),
    "uncordon": ("logfleet.cli.fleet.drain", "Let brokers get replicas again."),
    "partitions": (
        "logfleet.cli.fleet.partitions",
        "Show partitions that are lost, and give them up.",
    ),
    "features": (
        "logfleet.cli.fleet.features",
        "Show and raise the level of what brokers may write.",
    ),
    "metadata": (
        "logfleet.cli.fleet.metadata",
        "Take snapshots of the metadata store, restore one.",
    ),
    "apply": ("logfleet.cli.apply", "Make topics and settings match YAML files."),
}


class LazyGroup(click.Group):
    """Imports a command's module when the command is called, and reports failures in one line."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        del ctx
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        del ctx
        if cmd_name not in COMMANDS:
            return None
        module, _ = COMMANDS[cmd_name]
        with late_imports():
            command = getattr(importlib.import_module(module), cmd_name.replace("-", "_"))
        assert isinstance(command, click.Command)
        return _with_work(command)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """As click's, which suggests commands only where it has loaded them."""
        try:
            return super().resolve_command(ctx, args)
        except click.UsageError as error:
            near = difflib.get_close_matches(args[0], COMMANDS, cutoff=0.5)
            if near and isinstance(error, NoSuchCommand):
                raise NoSuchCommand(args[0], possibilities=near, ctx=ctx) from None
            raise

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        """As click's, without importing the commands."""
        found = [
            CompletionItem(name, help=line)
            for name, (_, line) in COMMANDS.items()
            if name.startswith(incomplete)
        ]
        return found + click.Command.shell_complete(self, ctx, incomplete)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        del ctx
        with formatter.section("Commands"):
            formatter.write_dl([(name, line) for name, (_, line) in COMMANDS.items()])

    def main(
        self,
        args: Sequence[str] | None = None,
        prog_name: str | None = None,
        complete_var: str | None = None,
        standalone_mode: bool = True,
        **extra: Any,
    ) -> Any:
        """As click's, but a user's mistake is one line on stderr, and Ctrl-C prints nothing."""
        if not standalone_mode:
            return super().main(args, prog_name, complete_var, False, **extra)
        try:
            code = super().main(args, prog_name, complete_var, False, **extra)
        except NoArgsIsHelpError as error:
            error.show()
            sys.exit(EXIT_USAGE)
        except click.ClickException as error:
            _fail(error)
        except click.Abort:
            sys.exit(EXIT_INTERRUPTED)
        except ModuleNotFoundError as error:
            if error.name is None or error.name.partition(".")[0] == "logfleet":
                raise
            library = EXTRAS.get(error.name.partition(".")[0])
            wanted = f"'logfleet[{library}]'" if library else "logfleet"
            _fail(click.ClickException(f"this needs {error.name}: pip install {wanted}"))
        except OSError as error:
            if error.errno != errno.ENOSPC:
                raise
            # what could not be written is still buffered, and would be written again at exit
            os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
            _fail(click.ClickException(str(error)))
        sys.exit(code if isinstance(code, int) else 0)


def _with_work(command: click.Command) -> click.Command:
    """The command, which imports what it works with when it runs."""
    if isinstance(command, click.Group):
        for each in command.commands.values():
            _with_work(each)
    elif command.callback is not None:
        command.callback = loading(command.callback)
    return command


def _fail(error: click.ClickException) -> NoReturn:
    message = " ".join(error.format_message().split())
    context = error.ctx if isinstance(error, click.UsageError) else None
    if context is not None:
        is_guess = isinstance(error, NoSuchCommand) and error.possibilities
        end = " See" if is_guess else "; see"
        message = f"{message.rstrip('.')}{end} {context.command_path} --help"
    click.echo(f"Error: {message}", err=True)
    sys.exit(error.exit_code)


@click.group(cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, message=VERSION)
@click.option("-b", "--bootstrap-server", metavar="HOST:PORT,...", help="As behind the command.")
@click.option(
    "-c",
    "--context",
    metavar="NAME",
    shell_complete=complete_context,
    help="As behind the command.",
)
@click.option("-o", "--output", type=click.Choice(FORMATS), help="As behind the command.")
@click.pass_context
def cli(
    ctx: click.Context, bootstrap_server: str | None, context: str | None, output: str | None
) -> None:
    """Logfleet: a fleet of log brokers that speaks Kafka's protocol.

    \b
    logfleet broker                                   # a broker on localhost:9092
    logfleet apply -f topic.yaml                      # topics as resources say
    echo hello | logfleet produce greetings
    logfleet consume greetings --from-beginning --exit-at-end

    Exit codes: 0 done, 1 failed (one line on stderr says what and why), 2 the command line is
    wrong, 130 Ctrl-C.
    """
    ctx.obj = RootOptions(bootstrap_server, context, output)
    if os.environ.get("NO_COLOR"):  # https://no-color.org
        ctx.color = False
