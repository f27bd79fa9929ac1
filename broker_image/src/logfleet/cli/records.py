"""`logfleet records`: delete records."""

from typing import Final

import click

from logfleet.cli.confirming import DRY_RUN, execute_option, report_dry_run
from logfleet.cli.offsets import (
    PLACES,
    Place,
    find,
    offsets_at,
    partition_option,
    partitions_of,
    place_of,
)
from logfleet.cli.session import (
    Server,
    echo_json,
    echo_rows,
    listing_options,
    run,
)
from logfleet.client.cluster import Client
from logfleet.client.log_admin import delete_records
from logfleet.client.offsets import OffsetSpec

COLUMNS: Final = ("topic", "partition", "begin", "before", "deleted")


@click.group()
def records() -> None:
    """Delete records before an offset or a time.

    \b
    logfleet records delete orders --before @2013-01-01T00:00:00Z
    logfleet records delete orders --before @2013-01-01T00:00:00Z --execute

    Exit codes: 0 done, 1 failed (one line on stderr), 2 the command line is wrong.
    """


@records.command()
@click.argument("topics", nargs=-1, required=True, metavar="TOPIC...")
@partition_option
@click.option(
    "--before", "place", required=True, metavar="WHERE", callback=place_of, help=f"{PLACES}."
)
@execute_option
@listing_options
def delete(
    topics: tuple[str, ...],
    *,
    partitions: tuple[int, ...],
    place: Place,
    execute: bool,
    as_json: bool,
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

    async def work(client: Client) -> list[tuple[object, ...]]:
        keys = await partitions_of(client, topics, partitions)
        begins = await offsets_at(client, keys, OffsetSpec.EARLIEST)
        offsets = await find(client, keys, place)
        if execute:
            offsets = await delete_records(client, offsets)
        return [
            (key.topic, key.partition, begin, offsets[key], max(0, offsets[key] - begin))
            for key in keys
            for begin in [begins[key]]
        ]

    rows = run(server, work)
    if as_json:
        mark = {} if execute else {DRY_RUN: True}
        echo_json([{**mark, **dict(zip(COLUMNS, row, strict=True))} for row in rows])
    else:
        echo_rows(COLUMNS, rows, as_json=False)
    report_dry_run(execute=execute)
