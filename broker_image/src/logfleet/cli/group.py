"""`logfleet group`: consumer groups, their members and their progress."""

import time
from collections.abc import Callable, Sequence
from typing import Any, Final

import click
import msgspec

from logfleet.cli.advice import MEANINGS, guess
from logfleet.cli.completion.callbacks import complete
from logfleet.cli.confirming import DRY_RUN, report_dry_run, yes_option
from logfleet.cli.offsets import (
    PLACES,
    Place,
    find,
    isolation_option,
    led_partitions,
    offsets_at,
    partition_option,
    partitions_of,
    place_of,
    shifted,
)
from logfleet.cli.output.formats import Column, Output, Row
from logfleet.cli.output.report import change_each, show_each
from logfleet.cli.session import (
    Server,
    changing_options,
    executing_options,
    reading_options,
    run,
)
from logfleet.client.cluster import Client
from logfleet.client.errors import KafkaError
from logfleet.client.figures.groups import (
    GroupFigures,
    first_timestamps,
    group_figures,
    total_lag,
)
from logfleet.client.groups import GroupMember, Groups
from logfleet.client.offsets import IsolationLevel, OffsetSpec, TopicPartition
from logfleet.groups.lag import lag
from logfleet.wire.errors import ErrorCode

KIND: Final = "group"
COLUMNS: Final = (
    Column("NAME", "name"),
    Column("STATE", "state"),
    Column("MEMBERS", "members"),
    Column("LAG", "lag"),
    Column("TYPE", "type", is_wide=True),
    Column("PROTOCOL", "protocolType", is_wide=True),
)
MEMBER_COLUMNS: Final = (
    Column("MEMBER", "id"),
    Column("CLIENT", "clientId"),
    Column("HOST", "host"),
    Column("INSTANCE", "instanceId"),
)
OFFSET_COLUMNS: Final = (
    Column("TOPIC", "topic"),
    Column("PARTITION", "partition"),
    Column("COMMITTED", "committed"),
    Column("END", "end"),
    Column("LAG", "lag"),
    Column("MEMBER", "member"),
)
TOTAL_COLUMNS: Final = (
    Column("TOPIC", "topic"),
    Column("PARTITIONS", "partitions"),
    Column("LAG", "lag"),
)
TIME_LAG: Final = Column(
    "TIME LAG",
    lambda row: None if row["timeLagMs"] is None else f"{row['timeLagMs'] / 1000:.1f} s",
)
TIME_LAG_S_MAX: Final = 10.0
MOVE_COLUMNS: Final = (
    Column("TOPIC", "topic"),
    Column("PARTITION", "partition"),
    Column("BEFORE", "before"),
    Column("COMMITTED", "committed"),
)


@click.group()
def group() -> None:
    """List, describe, delete consumer groups, and move them to other offsets.

    \b
    logfleet group list
    logfleet group describe billing
    logfleet group reset-offsets billing --topic orders --to beginning --execute
    logfleet group delete-offsets billing --topic orders
    logfleet group delete billing

    Exit codes: 0 done, 1 failed (one line on stderr for each group), 2 the command line is wrong.
    """


@group.command(name="list")
@reading_options
def list_(*, output: Output, server: Server) -> None:
    """List the groups of all brokers, with their members and their lag in all.

    LAG is that of all partitions for which a group has committed an offset. "-" is unknown, or
    that nothing is committed.

    \b
    logfleet group list
    logfleet group list -o name
    logfleet group list -o json | jq -r '.[] | select(.state == "Empty").name'
    """

    async def work(client: Client) -> list[dict[str, Any]]:
        found = await Groups(client).list()
        names = [] if output.is_name else [each.group for each in found]
        figures = await group_figures(client, names)
        return [
            {
                "name": each.group,
                "state": each.state,
                **msgspec.structs.asdict(figures.get(each.group, GroupFigures(None, None))),
                "type": each.kind,
                "protocolType": each.protocol_type,
            }
            for each in found
        ]

    output.rows(run(server, work), COLUMNS)


@group.command()
@click.argument(
    "names", nargs=-1, required=True, metavar="NAME...", shell_complete=complete("groups")
)
@isolation_option
@click.option(
    "--time-lag", is_flag=True, help="Also since when the first unread record waits: it is fetched."
)
@reading_options
def describe(
    names: tuple[str, ...],
    *,
    isolation: IsolationLevel,
    time_lag: bool,
    output: Output,
    server: Server,
) -> None:
    """Show groups: state, members, committed offsets and lag, at the end by topic and in all.

    LAG is how many records are between the committed offset and the end of the partition, which is
    the end for readers of that isolation. TIME LAG is the age of the first of them, by its
    timestamp; of several partitions the largest.

    \b
    logfleet group describe billing
    logfleet group describe billing --time-lag
    logfleet group describe billing -o json | jq '.[0].lag'
    """

    async def wanted(_: Client) -> tuple[str, ...]:
        return names

    async def one(client: Client, name: str) -> dict[str, Any]:
        try:
            found = await description_of(client, name, isolation)
        except KafkaError as error:
            if error.code != ErrorCode.GROUP_ID_NOT_FOUND:
                raise
            near = guess(name, [each.group for each in await Groups(client).list()])
            raise KafkaError(error.code, f"{MEANINGS[error.code]}{near}") from error
        if time_lag:
            await add_time_lags(client, found, isolation, time.time_ns() // 1_000_000)
        return {**found, **totals_of(found["offsets"])}

    show_each(server, KIND, wanted, one, _echo_description, output=output)


async def description_of(
    client: Client, name: str, isolation: IsolationLevel | None = None
) -> dict[str, Any]:
    """The description for JSON. Raises ClientError.

    isolation: where a partition ends, None for READ_UNCOMMITTED. end and lag are None if a
    partition is gone or has no leader.
    """
    groups = Groups(client)
    description = await groups.describe(name)
    committed = await groups.committed(name, require_stable=False)
    readers = {
        TopicPartition(topic, index): member
        for member in description.members
        for topic, indexes in member.assignment.items()
        for index in indexes
    }
    keys = sorted({*committed, *readers})
    led = await led_partitions(client, None)
    led_keys = [key for key in keys if key in led]
    ends = await offsets_at(client, led_keys, OffsetSpec.LATEST, isolation)
    offsets = []
    for key in keys:
        at = committed[key].offset if key in committed else None
        end = ends.get(key)
        reader = readers.get(key)
        offsets.append(
            {
                "topic": key.topic,
                "partition": key.partition,
                "committed": at,
                "end": end,
                "lag": lag(end, at),
                "member": None if reader is None else reader.member_id,
            }
        )
    return {
        "name": name,
        "state": description.state,
        "assignor": description.assignor,
        "members": [_member(each) for each in description.members],
        "offsets": offsets,
    }


async def add_time_lags(
    client: Client, description: dict[str, Any], isolation: IsolationLevel, now_ms: int
) -> None:
    """Add timeLagMs to each row of the offsets: 0 without a lag, None if it is unknown."""
    rows = {TopicPartition(row["topic"], row["partition"]): row for row in description["offsets"]}
    behind = {key: row["committed"] for key, row in rows.items() if (row["lag"] or 0) > 0}
    found = await first_timestamps(client, behind, isolation, TIME_LAG_S_MAX) if behind else {}
    for key, row in rows.items():
        row["timeLagMs"] = max(0, now_ms - found[key]) if key in found else None
        if row["lag"] is not None and key not in behind:
            row["timeLagMs"] = 0


def totals_of(offsets: Sequence[Row]) -> dict[str, Any]:
    """The lag by topic and in all; of time lags the largest, if there are any."""

    def total(rows: Sequence[Row]) -> dict[str, Any]:
        found: dict[str, Any] = {"lag": total_lag([row["lag"] for row in rows])}
        if any("timeLagMs" in row for row in rows):
            times = [row["timeLagMs"] for row in rows if row["timeLagMs"] is not None]
            found["timeLagMs"] = max(times, default=None)
        return found

    by_topic: dict[str, list[Row]] = {}
    for row in offsets:
        by_topic.setdefault(row["topic"], []).append(row)
    topics = [
        {"topic": topic, "partitions": len(rows), **total(rows)} for topic, rows in by_topic.items()
    ]
    return {"topics": topics, **total(offsets)}


def _member(member: GroupMember) -> dict[str, Any]:
    return {
        "id": member.member_id,
        "instanceId": member.instance_id,
        "clientId": member.client_id,
        "host": member.host,
    }


def _echo_description(description: Row, output: Output) -> None:
    click.echo(f"Group:     {description['name']}\nState:     {description['state']}")
    if description["assignor"]:
        click.echo(f"Assignor:  {description['assignor']}")
    if description["members"]:
        output.rows(description["members"], MEMBER_COLUMNS, name="id")
    times = [TIME_LAG] * ("timeLagMs" in description)
    output.rows(description["offsets"], [*OFFSET_COLUMNS, *times], name="topic")
    if description["offsets"]:
        partitions = len(description["offsets"])
        in_all = {**description, "topic": "(all)", "partitions": partitions}
        click.echo()
        output.rows([*description["topics"], in_all], [*TOTAL_COLUMNS, *times], name="topic")


@group.command()
@click.argument(
    "names", nargs=-1, required=True, metavar="NAME...", shell_complete=complete("groups")
)
@click.option("--if-exists", is_flag=True, help="A group that is not there is no failure.")
@yes_option
@changing_options
def delete(
    names: tuple[str, ...],
    *,
    if_exists: bool,
    confirm: Callable[[str], None],
    dry_run: bool,
    output: Output,
    server: Server,
) -> None:
    """Delete groups that have no members, with their committed offsets.

    Asks first on a terminal; a script gives --yes.

    \b
    logfleet group delete billing
    logfleet group delete billing --yes
    """
    confirm(f"Delete {', '.join(names)} with all committed offsets, for good?")

    async def one(client: Client, name: str) -> str:
        if dry_run:
            await _check_deletable(Groups(client), name)
        else:
            await Groups(client).delete(name)
        return "deleted"

    accepted = ErrorCode.GROUP_ID_NOT_FOUND if if_exists else None
    change_each(server, KIND, names, one, output=output, dry_run=dry_run, accepted=accepted)


async def _check_deletable(groups: Groups, name: str) -> None:
    """Raises KafkaError as DeleteGroups does for a group with members, or none."""
    if (await groups.describe(name)).members:
        raise KafkaError(ErrorCode.NON_EMPTY_GROUP, subject=f"group {name}")


@group.command(name="reset-offsets")
@click.argument("name", shell_complete=complete("groups"))
@click.option(
    "-t",
    "--topic",
    "topics",
    multiple=True,
    shell_complete=complete("topics"),
    help="[default: all that it has committed for]",
)
@partition_option
@click.option(
    "--to",
    "place",
    metavar="WHERE",
    callback=place_of,
    help=f"{PLACES}.",
)
@click.option(
    "--shift-by",
    "shift",
    type=int,
    metavar="N",
    help="That many records on from what is committed, or back if it is negative; never beyond "
    "what is there.",
)
@executing_options
def reset_offsets(
    name: str,
    *,
    topics: tuple[str, ...],
    partitions: tuple[int, ...],
    place: Place | None,
    shift: int | None,
    execute: bool,
    output: Output,
    server: Server,
) -> None:
    """Commit other offsets for a group that has no members.

    Only shows what would be committed, until --execute is given. Where to: --to or --shift-by.

    \b
    logfleet group reset-offsets billing --to beginning
    logfleet group reset-offsets billing -t orders -p 0 --to 1200 --execute
    logfleet group reset-offsets billing -t orders --to @2013-01-01T00:00:00Z --execute
    logfleet group reset-offsets billing --shift-by -100 --execute
    """
    if (place is None) == (shift is None):
        raise click.UsageError("where to: give --to or --shift-by, one of them")
    if partitions and not topics:
        raise click.UsageError("--partition: of which --topic?")

    async def work(client: Client) -> list[dict[str, Any]]:
        groups = Groups(client)
        await _without_members(groups, name)
        before = await groups.committed(name)
        keys = await partitions_of(client, topics, partitions) if topics else sorted(before)
        if not keys:
            raise click.ClickException(f"group {name} has committed nothing; name a --topic")
        if place is not None:
            offsets = await find(client, keys, place)
        else:
            assert shift is not None
            at = {key: committed.offset for key, committed in before.items()}
            offsets = await shifted(client, keys, at, shift)
        if execute:
            await groups.commit(name, offsets)
        mark = {} if execute else {DRY_RUN: True}
        return [
            {
                **mark,
                "topic": key.topic,
                "partition": key.partition,
                "before": before[key].offset if key in before else None,
                "committed": offset,
            }
            for key, offset in offsets.items()
        ]

    rows = run(server, work)
    output.rows(rows, MOVE_COLUMNS, name=lambda row: f"{row['topic']}-{row['partition']}")
    report_dry_run(execute=execute)


async def _without_members(groups: Groups, name: str) -> None:
    try:
        description = await groups.describe(name)
    except KafkaError as error:
        if error.code == ErrorCode.GROUP_ID_NOT_FOUND:
            return  # the first commit creates the group
        raise
    if description.members:
        raise KafkaError(ErrorCode.NON_EMPTY_GROUP, subject=f"group {name}")


@group.command(name="delete-offsets")
@click.argument("name", shell_complete=complete("groups"))
@click.option(
    "-t",
    "--topic",
    "topics",
    multiple=True,
    required=True,
    shell_complete=complete("topics"),
    help="May be given again.",
)
@partition_option
@yes_option
@changing_options
def delete_offsets(
    name: str,
    *,
    topics: tuple[str, ...],
    partitions: tuple[int, ...],
    confirm: Callable[[str], None],
    dry_run: bool,
    output: Output,
    server: Server,
) -> None:
    """Delete what a group has committed for topics that its members do not read any more.

    Asks first on a terminal; a script gives --yes.

    \b
    logfleet group delete-offsets billing -t orders
    logfleet group delete-offsets billing -t orders -p 3 --yes
    """
    confirm(f"Delete what {name} has committed for {', '.join(topics)}, for good?")

    async def one(client: Client, topic: str) -> str:
        keys = await partitions_of(client, [topic], partitions)
        groups = Groups(client)
        committed = await groups.committed(name, keys)
        if not dry_run:
            await groups.delete_offsets(name, keys)
        return "deleted" if committed else "unchanged"

    change_each(server, "offsets", topics, one, output=output, dry_run=dry_run)
