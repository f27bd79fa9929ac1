"""`logfleet transaction`: who has transactions open, and what to do about those that hang."""

import time
from collections.abc import Callable, Sequence
from typing import Any, Final

import click

from logfleet.cli.confirming import yes_option
from logfleet.cli.offsets import led_partitions, partition_option, partitions_of
from logfleet.cli.output.formats import Column, Output, Row
from logfleet.cli.output.report import Report, show_each
from logfleet.cli.output.tables import echo_table
from logfleet.cli.session import Server, changing_options, reading_options, run
from logfleet.cli.times import Duration
from logfleet.client.cluster import Client
from logfleet.client.errors import ClientError
from logfleet.client.offsets import TopicPartition
from logfleet.client.transactions import hanging
from logfleet.client.transactions.admin import (
    ANY_DURATION,
    TransactionDescription,
    Transactions,
)
from logfleet.client.transactions.hanging import OpenTransaction

KIND: Final = "transaction"
HANGING_SECONDS: Final = 900
"""The default of transaction.max.timeout.ms: a coordinator has ended what is older."""
STATES: Final = (
    "Empty",
    "Ongoing",
    "PrepareCommit",
    "PrepareAbort",
    "CompleteCommit",
    "CompleteAbort",
    "PrepareEpochFence",
    "Dead",
)
LISTED: Final = (
    Column("NAME", "name"),
    Column("COORDINATOR", "coordinator"),
    Column("PRODUCER", "producerId"),
    Column("STATE", "state"),
)
HANGING: Final = (
    Column("TOPIC", "topic"),
    Column("PARTITION", "partition"),
    Column("START", "startOffset"),
    Column("PRODUCER", "producerId"),
    Column("EPOCH", "producerEpoch"),
    Column("COORDINATOR EPOCH", "coordinatorEpoch"),
    Column("IDLE", lambda row: f"{row['idleSeconds']} s"),
    Column("LAST WRITE", "lastWrite", is_wide=True),
)


@click.group()
def transaction() -> None:
    """List, describe and abort transactions, and find those that hang.

    \b
    logfleet transaction list --state Ongoing
    logfleet transaction describe payments-1
    logfleet transaction find-hanging
    logfleet transaction abort payments-1
    logfleet transaction abort --topic orders --partition 3 --start-offset 1200

    Exit codes: 0 done, 1 failed (one line on stderr for each transaction), 2 the command line is
    wrong.
    """


@transaction.command(name="list")
@click.option(
    "--state",
    "states",
    multiple=True,
    type=click.Choice(STATES),
    help="Only in this state; may be given again and again.",
)
@click.option(
    "--producer-id", "producer_ids", multiple=True, type=int, help="Only of this producer."
)
@click.option(
    "--longer-than",
    type=Duration(),
    metavar="DURATION",
    help="Only those that began so long ago, and ids that have had no transaction.",
)
@click.option("--pattern", metavar="REGEX", help="Only those whose whole transactional id matches.")
@reading_options
def list_(
    *,
    states: tuple[str, ...],
    producer_ids: tuple[int, ...],
    longer_than: float | None,
    pattern: str | None,
    output: Output,
    server: Server,
) -> None:
    """List the transactional ids of all brokers.

    \b
    logfleet transaction list
    logfleet transaction list --state Ongoing --longer-than 10m
    logfleet transaction list --pattern 'payments-.*' -o json | jq -r '.[].name'
    """
    found = run(
        server,
        lambda client: Transactions(client).list(
            states=states,
            producer_ids=producer_ids,
            longer_than_ms=ANY_DURATION if longer_than is None else int(longer_than * 1000),
            pattern=pattern,
        ),
    )
    rows = [
        {
            "name": row.transactional_id,
            "coordinator": row.coordinator,
            "producerId": row.producer_id,
            "state": row.state,
        }
        for row in found
    ]
    output.rows(rows, LISTED)


@transaction.command()
@click.argument("names", nargs=-1, required=True, metavar="NAME...")
@reading_options
def describe(names: tuple[str, ...], *, output: Output, server: Server) -> None:
    """Show the state, producer and partitions of transactional ids.

    Partitions are those that are part of the transaction, once it has ended those that still lack
    its marker.

    \b
    logfleet transaction describe payments-1
    logfleet transaction describe payments-1 -o json | jq '.[0].partitions'
    """

    async def wanted(_: Client) -> tuple[str, ...]:
        return names

    async def one(client: Client, name: str) -> dict[str, Any]:
        return _described(await Transactions(client).describe(name), _now_ms())

    show_each(server, KIND, wanted, one, _echo_description, output=output)


def _described(found: TransactionDescription, now_ms: int) -> dict[str, Any]:
    # A completed one keeps the time at which it began.
    is_open = found.started_ms >= 0 and not found.state.startswith("Complete")
    return {
        "name": found.transactional_id,
        "state": found.state,
        "coordinator": found.coordinator,
        "producerId": found.producer_id,
        "producerEpoch": found.producer_epoch,
        "timeoutMs": found.timeout_ms,
        "started": found.started_ms if is_open else None,
        "durationMs": max(0, now_ms - found.started_ms) if is_open else None,
        "partitions": [
            {"topic": key.topic, "partition": key.partition} for key in sorted(found.partitions)
        ],
    }


def _echo_description(row: Row, _: Output) -> None:
    click.echo(f"Transaction:  {row['name']}\nState:        {row['state']}")
    click.echo(f"Coordinator:  {row['coordinator']}")
    click.echo(f"Producer:     {row['producerId']}, epoch {row['producerEpoch']}")
    click.echo(f"Timeout:      {row['timeoutMs'] / 1000:g} s")
    if row["durationMs"] is not None:
        click.echo(f"Open for:     {row['durationMs'] / 1000:g} s")
    cells = [(each["topic"], each["partition"]) for each in row["partitions"]]
    echo_table(("TOPIC", "PARTITION"), cells)


@transaction.command(name="find-hanging")
@click.option("-t", "--topic", "topics", multiple=True, help="[default: all]")
@partition_option
@click.option(
    "--idle",
    "idle_seconds",
    type=Duration(),
    default=HANGING_SECONDS,
    show_default=True,
    metavar="DURATION",
    help="Only those whose producer has written nothing for so long; less than its timeout finds "
    "some that are about to be aborted.",
)
@reading_options
def find_hanging(
    *,
    topics: tuple[str, ...],
    partitions: tuple[int, ...],
    idle_seconds: float,
    output: Output,
    server: Server,
) -> None:
    """Find open transactions that no coordinator will end.

    Readers of committed records stand still before such a transaction; `logfleet transaction abort`
    ends it.

    \b
    logfleet transaction find-hanging
    logfleet transaction find-hanging -t orders --idle 1h
    """
    if partitions and not topics:
        raise click.UsageError("--partition: of which --topic?")

    now_ms = _now_ms()
    since_ms = now_ms - int(idle_seconds * 1000)

    async def work(client: Client) -> list[OpenTransaction]:
        keys: Sequence[TopicPartition]
        if topics:
            keys = await partitions_of(client, topics, partitions)
        else:
            keys = sorted(await led_partitions(client, None))
        return await hanging.find_hanging(client, keys, idle_since_ms=since_ms)

    found = run(server, work)
    rows = [
        {
            "topic": row.partition.topic,
            "partition": row.partition.partition,
            "startOffset": row.start_offset,
            "producerId": row.producer_id,
            "producerEpoch": row.producer_epoch,
            "coordinatorEpoch": row.coordinator_epoch,
            "lastWrite": row.last_ms,
            "idleSeconds": max(0, (now_ms - row.last_ms) // 1000),
        }
        for row in found
    ]
    output.rows(
        rows, HANGING, name=lambda row: f"{row['topic']}-{row['partition']}@{row['startOffset']}"
    )


@transaction.command()
@click.argument("names", nargs=-1, metavar="[NAME...]")
@click.option("-t", "--topic", help="Of a hanging transaction.")
@click.option("-p", "--partition", type=click.IntRange(0), help="Of a hanging transaction.")
@click.option(
    "--start-offset",
    type=click.IntRange(0),
    help="Of a hanging transaction, as find-hanging shows it.",
)
@yes_option
@changing_options
def abort(
    names: tuple[str, ...],
    *,
    topic: str | None,
    partition: int | None,
    start_offset: int | None,
    confirm: Callable[[str], None],
    dry_run: bool,
    output: Output,
    server: Server,
) -> None:
    """Abort transactions by name, or a hanging one.

    By name, the producer is fenced: it can write nothing more, and has to begin again. A hanging
    transaction gets the marker that its coordinator will not write; if a coordinator has it open,
    the command refuses that. Asks first on a terminal; a script gives --yes.

    \b
    logfleet transaction abort payments-1
    logfleet transaction abort -t orders -p 3 --start-offset 1200 --yes
    """
    place = (topic, partition, start_offset)
    if bool(names) == any(value is not None for value in place):
        raise click.UsageError("what to abort: give names, or --topic, --partition, --start-offset")
    report = Report(output, dry_run=dry_run)
    if names:
        have, their = ("has", "its producer") if len(names) == 1 else ("have", "their producers")
        confirm(f"Abort what {', '.join(names)} {have} open, and fence {their}?")
        run(server, lambda client: _abort_names(client, names, report))
    else:
        if topic is None or partition is None or start_offset is None:
            raise click.UsageError("a hanging one: give --topic, --partition and --start-offset")
        key = TopicPartition(topic, partition)
        confirm(f"Abort the transaction at offset {start_offset} of {key}?")
        run(server, lambda client: _abort_hanging(client, key, start_offset, report))
    report.end()


async def _abort_names(client: Client, names: Sequence[str], report: Report) -> None:
    transactions = Transactions(client)
    for name in names:
        try:
            state = (await transactions.describe(name)).state
            if state in {"PrepareCommit", "PrepareAbort"}:
                report.fail(KIND, name, f"its outcome is decided: it is in {state}")
            elif state == "Ongoing":
                if not report.dry_run:
                    await transactions.abort(name)
                report.done(KIND, name, "aborted")
            else:
                report.done(KIND, name, "unchanged")
        except ClientError as error:
            report.refuse(KIND, name, error)


async def _abort_hanging(
    client: Client, key: TopicPartition, start_offset: int, report: Report
) -> None:
    name = f"{key}@{start_offset}"
    try:
        opened = await hanging.open_transactions(client, [key])
        found = [each for each in opened if each.start_offset == start_offset]
        owners = await hanging.owners(client, found)
        if not found:
            report.fail(KIND, name, "no open transaction begins there; find-hanging shows them")
        elif found[0] in owners:
            report.fail(
                KIND,
                name,
                f"{owners[found[0]]} has it open: `logfleet transaction abort {owners[found[0]]}`",
            )
        else:
            if not report.dry_run:
                await hanging.write_abort(client, found[0])
            report.done(KIND, name, "aborted", producerId=found[0].producer_id)
    except ClientError as error:
        report.refuse(KIND, name, error)


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
