"""`logfleet log-dirs`: log directories of brokers, and what partitions use of them."""

import sys
from typing import Any, Final

import click

from logfleet.cli.completion.callbacks import complete
from logfleet.cli.offsets import partitions_of
from logfleet.cli.output.formats import Output
from logfleet.cli.output.tables import echo_table
from logfleet.cli.session import Server, reading_options, run
from logfleet.client.admin import Admin
from logfleet.client.cluster import Client
from logfleet.client.errors import ClientError
from logfleet.client.log_admin import LogDirDescription, describe_log_dirs

UNKNOWN: Final = -1
UNITS: Final = ("B", "KiB", "MiB", "GiB", "TiB")
UNIT_STEP: Final = 1024


@click.command()
@click.argument("topics", nargs=-1, metavar="[TOPIC]...", shell_complete=complete("topics"))
@click.option(
    "--broker",
    "brokers",
    multiple=True,
    type=click.IntRange(0),
    help="Only this one; may be given again.",
)
@click.option("--partitions", is_flag=True, help="A line for each partition.")
@reading_options
def log_dirs(
    topics: tuple[str, ...],
    *,
    brokers: tuple[int, ...],
    partitions: bool,
    output: Output,
    server: Server,
) -> None:
    """Show the directories of brokers: how much room they have, and what partitions take of it.

    A directory that failed says so, and its broker goes on with the others.

    \b
    logfleet log-dirs
    logfleet log-dirs orders --partitions
    logfleet log-dirs -o json | jq 'map(.usable) | min'

    Exit codes: 0 done, 1 a broker or a directory failed, 2 the command line is wrong.
    """
    found = run(server, lambda client: _describe(client, topics, brokers))
    echo = _echo_partitions if partitions else _echo_directories
    output.document(
        [_as_json(each) for each in found],
        lambda: echo(found),
        names=[f"{each.broker}:{each.path}" for each in found],
    )
    for each in found:
        if each.error is not None:
            click.echo(f"Error: broker {each.broker}, {each.path}: {each.error}", err=True)
    if any(each.error is not None for each in found):
        sys.exit(1)


async def _describe(
    client: Client, topics: tuple[str, ...], brokers: tuple[int, ...]
) -> list[LogDirDescription]:
    there = [node.id for node in (await Admin(client).describe_cluster()).brokers]
    for broker in brokers:
        if broker not in there:
            raise click.ClickException(
                f"broker {broker} is not there; there are {', '.join(map(str, there))}"
            )
    keys = await partitions_of(client, topics) if topics else None
    if not topics:
        await client.fetch_topics([])
    found = []
    for broker in brokers or there:
        try:
            found += await describe_log_dirs(client, broker, keys)
        except ClientError as error:
            found.append(LogDirDescription(broker, "-", str(error), UNKNOWN, UNKNOWN, ()))
    return found


def _as_json(each: LogDirDescription) -> dict[str, Any]:
    return {
        "broker": each.broker,
        "path": each.path,
        "error": each.error,
        "total": None if each.total_bytes == UNKNOWN else each.total_bytes,
        "usable": None if each.usable_bytes == UNKNOWN else each.usable_bytes,
        "partitions": [
            {"topic": log.partition.topic, "partition": log.partition.partition, "size": log.size}
            for log in each.logs
        ],
    }


def _echo_directories(found: list[LogDirDescription]) -> None:
    rows = [
        (
            each.broker,
            each.path,
            len(each.logs),
            bytes_text(sum(log.size for log in each.logs)),
            bytes_text(each.usable_bytes),
            bytes_text(each.total_bytes),
        )
        for each in found
    ]
    echo_table(("BROKER", "DIRECTORY", "PARTITIONS", "SIZE", "FREE", "TOTAL"), rows)


def _echo_partitions(found: list[LogDirDescription]) -> None:
    logs = [(log.partition, log.size, each) for each in found for log in each.logs]
    logs.sort(key=lambda log: log[0])
    rows = [
        (key.topic, key.partition, bytes_text(size), each.broker, each.path)
        for key, size, each in logs
    ]
    echo_table(("TOPIC", "PARTITION", "SIZE", "BROKER", "DIRECTORY"), rows)


def bytes_text(size: int) -> str:
    """A size for people; "-" if it is unknown."""
    if size < 0:
        return "-"
    value = float(size)
    for unit in UNITS:
        if value < UNIT_STEP or unit == UNITS[-1]:
            break
        value /= UNIT_STEP
    return f"{size} B" if unit == "B" else f"{value:.1f} {unit}"
