"""`logfleet records`: delete records."""

from typing import Final

import click

from logfleet.cli.completion.callbacks import complete
from logfleet.cli.confirming import DRY_RUN, check_internal, internal_option, report_dry_run
from logfleet.cli.offsets import (
    PLACES,
    Place,
    find,
    offsets_at,
    partition_option,
    partitions_of,
    place_of,
)
from logfleet.cli.output.formats import Column, Output
from logfleet.cli.session import Server, executing_options, run
from logfleet.client.admin import Admin
from logfleet.client.cluster import Client
from logfleet.client.log_admin import delete_records
from logfleet.client.offsets import OffsetSpec

COLUMNS: Final = (
    Column("TOPIC", "topic"),
    Column("PARTITION", "partition"),
    Column("BEGIN", "begin"),
    Column("BEFORE", "before"),
    Column("DELETED", "deleted"),
)


@click.group()
def records() -> None:
    """Delete records before an offset or a time.

    \b
    logfleet records delete orders --before @2013-01-01T00:00:00Z
    logfleet records delete orders --before @2013-01-01T00:00:00Z --execute

    Exit codes: 0 done, 1 failed (one line on stderr), 2 the command line is wrong.
    """


@records.command()
@click.argument(
    "topics", nargs=-1, required=True, metavar="TOPIC...", shell_complete=complete("topics")
)
@partition_option
@click.option(
    "--before", "place", required=True, metavar="WHERE", callback=place_of, help=f"{PLACES}."
)
@internal_option
@executing_options
def delete(
    topics: tuple[str, ...],
    *,
    partitions: tuple[int, ...],
    place: Place,
    internal: bool,
    execute: bool,
    output: Output,
    server: Server,
) -> None:
    """Delete the records before a place in each partition, for good.

    Only shows what would go, until --execute is given. BEGIN is where the log begins now, BEFORE
    where it begins then. A topic that is compacted and nothing else keeps its records.

    \b
    logfleet records delete orders --before end
    logfleet records delete orders -p 0 --before 1200 --execute
    logfleet records delete orders --before -1000 --execute  # keep the last 1000 of each partition
    """

    async def work(client: Client) -> list[dict[str, object]]:
        for name in topics:
            await check_internal(Admin(client), name, internal=internal)
        keys = await partitions_of(client, topics, partitions)
        begins = await offsets_at(client, keys, OffsetSpec.EARLIEST)
        offsets = await find(client, keys, place)
        if execute:
            offsets = await delete_records(client, offsets)
        mark = {} if execute else {DRY_RUN: True}
        return [
            {
                **mark,
                "topic": key.topic,
                "partition": key.partition,
                "begin": begins[key],
                "before": offsets[key],
                "deleted": max(0, offsets[key] - begins[key]),
            }
            for key in keys
        ]

    rows = run(server, work)
    output.rows(rows, COLUMNS, name=lambda row: f"{row['topic']}-{row['partition']}")
    report_dry_run(execute=execute)
