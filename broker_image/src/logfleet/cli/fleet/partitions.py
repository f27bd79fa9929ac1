"""`logfleet partitions`: show partitions that are lost for good, and give them up."""

import asyncio
import sys
from collections.abc import Collection
from typing import Final

import click

from logfleet.cli.confirming import DRY_RUN, report_dry_run
from logfleet.cli.output.formats import Column, Output, Row
from logfleet.cli.session import Server, executing_options, reading_options, run
from logfleet.client.admin import Admin
from logfleet.client.cluster import Client
from logfleet.client.lost_partitions import LostPartition, find_lost
from logfleet.client.offsets import TopicPartition
from logfleet.client.reassignments import elect_unclean

COLUMNS: Final = (
    Column("TOPIC", "topic"),
    Column("PARTITION", "partition"),
    Column("BROKERS", "brokers"),
)
LED_WITHIN_S: Final = 60.0
POLL_S: Final = 0.5


@click.group()
def partitions() -> None:
    """Show partitions that are lost, and give them up.

    A partition is lost if it has no leader although all its brokers run: the disks that held it
    are gone. While one of its brokers is down it is not lost: that broker may still have it.

    \b
    logfleet partitions lost
    logfleet partitions give-up --count 3                # says what would be done
    logfleet partitions give-up --count 3 --execute
    """


@partitions.command()
@reading_options
def lost(*, output: Output, server: Server) -> None:
    """List partitions that are lost. Exit codes: 0 there are none, 1 there are some.

    \b
    logfleet partitions lost
    logfleet partitions lost -o name
    """
    found = run(server, _lost)
    output.rows([_row(each) for each in found], COLUMNS, name=_name)
    if not found:
        output.note("No partition is lost.")
    sys.exit(1 if found else 0)


@partitions.command(name="give-up")
@click.option(
    "--count",
    required=True,
    type=click.IntRange(1),
    help="How many are given up; it must be as many as are lost now.",
)
@click.option("--topic", help="Only partitions of this topic; they are what is counted.")
@executing_options
def give_up(
    count: int, topic: str | None, *, execute: bool, output: Output, server: Server
) -> None:
    """Let lost partitions start again, with what is left of them. What is missing is lost for good.

    A replica that has something, though it was not in sync, leads (Kafka: an unclean election);
    where none has, they begin at offset 0. Consumers whose offsets are not there any more do what
    their auto.offset.reset says; groups whose offsets were in such a partition of
    __consumer_offsets begin as new ones. Should an old disk come back afterwards, what it has is
    cut off or set aside.

    If a disk can be had back, do that instead: put it in, and start the broker again.

    \b
    logfleet partitions give-up --count 3
    logfleet partitions give-up --count 3 --execute
    """

    async def work(client: Client) -> tuple[list[LostPartition], list[str]]:
        found = [each for each in await _lost(client) if topic in {None, each.topic}]
        if len(found) != count:
            raise click.ClickException(
                f"{len(found)} partitions are lost, not {count}: check again (logfleet partitions "
                "lost)"
            )
        if not execute:
            return found, []
        refused = await elect_unclean(client, [each.key for each in found])
        left = await _until_led(client, {each.key for each in found} - refused.keys())
        return found, [f"{key}: {why}" for key, why in refused.items()] + [
            f"{each.key}: nobody leads it after {LED_WITHIN_S:.0f} s" for each in left
        ]

    found, errors = run(server, work)
    mark = {} if execute else {DRY_RUN: True}
    output.rows([{**mark, **_row(each)} for each in found], COLUMNS, name=_name)
    report_dry_run(execute=execute)
    for each in errors:
        click.echo(f"Error: {each}", err=True)
    if errors:
        sys.exit(1)
    if execute:
        click.echo(f"{count} partitions were given up, and are led again.", err=True)


async def _lost(client: Client) -> list[LostPartition]:
    admin = Admin(client)
    return await find_lost(admin, await admin.list_topics())


async def _until_led(client: Client, keys: Collection[TopicPartition]) -> list[LostPartition]:
    """Wait for leaders, LED_WITHIN_S at most; return the partitions that are still lost."""
    loop = asyncio.get_running_loop()
    until = loop.time() + LED_WITHIN_S
    while left := [each for each in await _lost(client) if each.key in keys]:
        if loop.time() > until:
            break
        await asyncio.sleep(POLL_S)
    return left


def _name(row: Row) -> str:
    return f"{row['topic']}-{row['partition']}"


def _row(lost: LostPartition) -> dict[str, object]:
    return {"topic": lost.topic, "partition": lost.partition, "brokers": list(lost.replicas)}
