"""`logfleet config`: dynamic configuration of topics, brokers, the cluster and groups."""

from collections.abc import Iterable, Mapping
from typing import Any, Final

import click

from logfleet.cli.advice import guess
from logfleet.cli.completion.callbacks import complete_config
from logfleet.cli.fleet.cluster import check_brokers
from logfleet.cli.output.formats import Column, Output
from logfleet.cli.output.report import change_each
from logfleet.cli.session import Server, changing_options, reading_options, run
from logfleet.cli.topic import config_pairs
from logfleet.client.admin import Admin, ConfigEntry, ConfigSource, ResourceType
from logfleet.client.cluster import Client
from logfleet.client.errors import KafkaError
from logfleet.client.reconcile import config_as_shown
from logfleet.wire.errors import ErrorCode

KINDS: Final = {"topic": "TOPIC", "broker": "BROKER", "cluster": "BROKER", "group": "GROUP"}
"""Of each kind its name in ResourceType."""
OWN_SOURCE: Final = {
    "topic": "DYNAMIC_TOPIC_CONFIG",
    "broker": "DYNAMIC_BROKER_CONFIG",
    "cluster": "DYNAMIC_DEFAULT_BROKER_CONFIG",
    "group": "GROUP_CONFIG",
}
"""The source of a value that was set for the resource itself, by its name in ConfigSource."""
WHOLE_CLUSTER: Final = ""
HIDDEN: Final = "(hidden)"

COLUMNS: Final = (
    Column("KEY", "key"),
    Column("VALUE", lambda row: HIDDEN if row["sensitive"] else row["value"]),
    Column("SOURCE", "source"),
    Column("READ-ONLY", "readOnly", is_wide=True),
)

kind_argument = click.argument("kind", type=click.Choice(list(KINDS)), metavar="KIND")


@click.group()
def config() -> None:
    """Show and change what topics, brokers and groups are set to, with Kafka's keys.

    KIND is topic, broker, cluster or group. The cluster has no name: what is set for it holds for
    every broker without a value of its own.

    \b
    logfleet config describe topic orders
    logfleet config describe broker 1 --all
    logfleet config set cluster log.retention.ms=86400000
    logfleet config set topic orders retention.ms=3600000 segment.bytes=1048576
    logfleet config delete topic orders retention.ms

    Exit codes: 0 done, 1 failed (one line on stderr), 2 the command line is wrong.
    """


def _named(kind: str, arguments: tuple[str, ...]) -> tuple[str, tuple[str, ...]]:
    """The name, and the arguments after it."""
    if kind == "cluster":
        return WHOLE_CLUSTER, arguments
    if not arguments:
        raise click.UsageError(f"which {kind}? Its name comes after the kind")
    name, *rest = arguments
    if kind == "broker" and not name.isdecimal():
        raise click.UsageError(f"{name!r}: a broker is named by its id, a number")
    return name, tuple(rest)


async def _check(client: Client, kind: str, name: str) -> None:
    """Raises ClickException at once for a broker that does not exist."""
    if kind == "broker":
        await check_brokers(client, [int(name)])


@config.command()
@kind_argument
@click.argument("arguments", nargs=-1, metavar="[NAME]", shell_complete=complete_config)
@click.option("--all", "everything", is_flag=True, help="Keys at their defaults, too.")
@reading_options
def describe(
    kind: str, arguments: tuple[str, ...], *, everything: bool, output: Output, server: Server
) -> None:
    """Show what is set for a topic, a broker, the cluster or a group.

    SOURCE is where a value comes from: the thing itself, its broker, the cluster, the broker's
    file, or Kafka's default.

    \b
    logfleet config describe topic orders
    logfleet config describe broker 1 --all
    logfleet config describe cluster
    logfleet config describe group billing -o json
    """
    name, rest = _named(kind, arguments)
    if rest:
        raise click.UsageError(f"{rest[0]!r}: one at a time")

    async def work(client: Client) -> Mapping[str, ConfigEntry]:
        await _check(client, kind, name)
        return await Admin(client).config(ResourceType[KINDS[kind]], name)

    entries = run(server, work)
    rows = [
        _row(entry)
        for _, entry in sorted(entries.items())
        if everything or entry.source is ConfigSource[OWN_SOURCE[kind]]
    ]
    output.rows(rows, COLUMNS, name="key")
    if not rows:
        output.note("Nothing is set; --all shows defaults.")


def _row(entry: ConfigEntry) -> dict[str, Any]:
    return {
        "key": entry.name,
        "value": entry.value,
        "source": entry.source.name.removesuffix("_CONFIG").lower().replace("_", "-"),
        "readOnly": entry.read_only,
        "sensitive": entry.sensitive,
    }


@config.command(name="set")
@kind_argument
@click.argument(
    "arguments", nargs=-1, metavar="[NAME] KEY=VALUE...", shell_complete=complete_config
)
@changing_options
@click.pass_context
def set_(
    ctx: click.Context,
    kind: str,
    arguments: tuple[str, ...],
    *,
    dry_run: bool,
    output: Output,
    server: Server,
) -> None:
    """Set keys; all others stay as they are.

    Either all keys are set or none.

    \b
    logfleet config set topic orders retention.ms=3600000
    logfleet config set broker 1 log.cleaner.threads=2
    logfleet config set cluster log.retention.ms=86400000
    """
    name, pairs = _named(kind, arguments)
    values = config_pairs(ctx, ctx.command.params[1], pairs)
    if not values:
        raise click.UsageError("nothing to set: give KEY=VALUE")
    _change(server, kind, name, values, (), dry_run=dry_run, output=output)


@config.command()
@kind_argument
@click.argument("arguments", nargs=-1, metavar="[NAME] KEY...", shell_complete=complete_config)
@changing_options
def delete(
    kind: str, arguments: tuple[str, ...], *, dry_run: bool, output: Output, server: Server
) -> None:
    """Reset keys to the value that holds without them.

    \b
    logfleet config delete topic orders retention.ms segment.bytes
    logfleet config delete cluster log.retention.ms
    """
    name, keys = _named(kind, arguments)
    if not keys:
        raise click.UsageError("nothing to delete: give KEY")
    _change(server, kind, name, {}, keys, dry_run=dry_run, output=output)


def _change(
    server: Server,
    kind: str,
    name: str,
    values: Mapping[str, str],
    gone: tuple[str, ...],
    *,
    dry_run: bool,
    output: Output,
) -> None:
    async def one(client: Client, _label: str) -> str:
        await _check(client, kind, name)
        admin = Admin(client)
        entries = await admin.config(ResourceType[KINDS[kind]], name)
        for key in gone:
            # brokers describe only those of the cluster's keys that have a value
            if key not in entries and kind != "cluster":
                raise KafkaError(
                    ErrorCode.INVALID_CONFIG, f"there is no key {key}{guess(key, entries)}"
                )
        present = {
            key: entry.value
            for key, entry in entries.items()
            if entry.source is ConfigSource[OWN_SOURCE[kind]]
        }
        shown = config_as_shown(ResourceType[KINDS[kind]], values)
        wanted = {key: value for key, value in {**present, **shown}.items() if key not in gone}
        if wanted == present:
            return "unchanged"
        try:
            await admin.alter_config(
                ResourceType[KINDS[kind]],
                name,
                set_keys=shown,
                delete_keys=gone,
                validate_only=dry_run,
            )
        except KafkaError as error:
            raise _with_guess(error, values, entries) from error
        return "configured"

    change_each(server, kind, [name or "default"], one, output=output, dry_run=dry_run)


def _with_guess(
    error: KafkaError, values: Iterable[str], entries: Mapping[str, ConfigEntry]
) -> KafkaError:
    """The refusal, with the key that a misspelt one may mean."""
    guesses = [guess(key, entries) for key in values if key not in entries]
    if not any(guesses) or not error.broker_message:
        return error
    message = f"{error.broker_message.rstrip().removesuffix('.')}{''.join(guesses)}"
    return KafkaError(error.code, message, subject=error.subject)
