"""`logfleet rebalance`: plan and run moves, show their progress, cancel them."""

import asyncio
import json
import sys
import time
from collections.abc import Callable, Sequence
from typing import Any, Final, TypeVar

import click
import msgspec

from logfleet.balance.fleet_load import bytes_left
from logfleet.balance.limits import IN_ALL, PER_BROKER
from logfleet.balance.load import Plan, Skew
from logfleet.balance.rebalancing import (
    Goal,
    Progress,
    advance,
    finish,
    make_plan,
)
from logfleet.balance.rebalancing import (
    stop as call_back,
)
from logfleet.cli.confirming import DRY_RUN
from logfleet.cli.fleet.admin_port import ask_all
from logfleet.cli.log_dirs import bytes_text
from logfleet.cli.output.formats import Column, Output
from logfleet.cli.session import Server, changing_options, reading_options, run
from logfleet.client.cluster import Client
from logfleet.client.reassignments import list_reassignments
from logfleet.telemetry.flows import Flow

SHOWN_MAX: Final = 20
PLAN_COLUMNS: Final = (
    Column("PARTITION", lambda row: f"{row['topic']}-{row['partition']}"),
    Column("FROM", "from"),
    Column("TO", "to"),
    Column("BYTES", lambda row: bytes_text(row["bytes"])),
    Column("WHY", "why"),
)
STATUS_COLUMNS: Final = (
    Column("PARTITION", "partition"),
    Column("FROM", "from"),
    Column("TO", "to"),
    Column("ADDING", "adding"),
)
TRAFFIC: Final = "/traffic"
POLL_S: Final = 2.0
MIB: Final = 1024 * 1024
THROTTLE_MIB: Final = 50.0
THROTTLE: Final = click.option(
    "--throttle",
    type=click.FloatRange(0),
    default=THROTTLE_MIB,
    show_default=True,
    metavar="MIB",
    help="MiB per second and broker that moves may take; 0 for no bound.",
)
Command = TypeVar("Command", bound=Callable[..., Any])


@click.group()
def rebalance() -> None:
    """Spread replicas, bytes and leaders evenly over brokers and zones.

    \b
    logfleet rebalance plan                  # what would be moved, and why
    logfleet rebalance run --throttle 20     # move it, at 20 MiB/s and broker at most
    logfleet rebalance status
    logfleet rebalance stop                  # cancel what is under way

    Partitions are written and read meanwhile. All state is in the brokers: `run` may be interrupted
    and started again, from anywhere.
    """


def goal_options(command: Command) -> Command:
    """Which topics stay, and limits of moves: `excluded`, `per_broker` and `throttle`."""
    options = (
        click.option(
            "--exclude",
            "excluded",
            multiple=True,
            metavar="TOPIC",
            help="Stays where it is; may be given again.",
        ),
        click.option(
            "--per-broker",
            type=click.IntRange(1, 100),
            default=PER_BROKER,
            show_default=True,
            help="Moves at a time that a broker takes part in.",
        ),
        THROTTLE,
    )
    for option in options:
        command = option(command)
    return command


def goal(
    excluded: tuple[str, ...], per_broker: int, throttle: float, leaving: tuple[int, ...] = ()
) -> Goal:
    return Goal(
        leaving=frozenset(leaving),
        excluded=frozenset(excluded),
        per_broker=per_broker,
        in_all=max(IN_ALL, per_broker),
        throttle=int(throttle * MIB) if throttle else None,
    )


@rebalance.command()
@click.option(
    "--exclude",
    "excluded",
    multiple=True,
    metavar="TOPIC",
    help="Stays where it is; may be given again.",
)
@reading_options
def plan(*, excluded: tuple[str, ...], output: Output, server: Server) -> None:
    """Show what would be moved, and what that costs. Nothing is changed.

    BYTES are shown beside the least that any plan has to copy. Exit codes: 0 done (also if there is
    nothing to do), 1 something cannot be reached, 2 the command line is wrong.

    \b
    logfleet rebalance plan
    logfleet rebalance plan --exclude scratch -o json | jq .bytes
    """

    async def work(client: Client) -> Plan:
        return await make_plan(client, Goal(excluded=frozenset(excluded)), await flows(client))

    made = run(server, work)
    show_plan(made, output)
    sys.exit(1 if made.unmet else 0)


@rebalance.command(name="run")
@goal_options
@changing_options
def run_(
    *,
    excluded: tuple[str, ...],
    per_broker: int,
    throttle: float,
    dry_run: bool,
    output: Output,
    server: Server,
) -> None:
    """Move what the plan says, a few partitions at a time, until there is nothing left to do.

    On Ctrl-C the brokers complete the moves under way; `logfleet rebalance run` goes on from there,
    `logfleet rebalance stop` cancels them. With -o json each line of progress is an object.

    \b
    logfleet rebalance run --throttle 20
    logfleet rebalance run --dry-run
    """
    wanted = goal(excluded, per_broker, throttle)
    if dry_run:

        async def work(client: Client) -> Plan:
            return await make_plan(client, wanted, await flows(client))

        show_plan(run(server, work), output, dry_run=True)
    elif not carry_out(server, wanted, output):
        sys.exit(1)


async def flows(client: Client) -> list[Flow]:
    """Traffic as the brokers report it; without those that do not answer leaders are less even."""
    answers = await ask_all(client, TRAFFIC, {})
    return [
        msgspec.json.decode(line, type=Flow)
        for text in answers.texts.values()
        for line in text.splitlines()
    ]


def show_plan(made: Plan, output: Output, *, dry_run: bool = False) -> None:
    """Print a plan, marked if it stands for what a command would do."""
    mark = {DRY_RUN: True} if dry_run else {}
    names = [f"{move.topic}-{move.index}" for move in made.moves]
    output.document({**mark, **_as_json(made)}, lambda: echo_plan(made), names=names)


def echo_step(output: Output, text: str, **fields: object) -> None:
    """Print a line of progress: text for people, or an object of these fields."""
    now = time.localtime()
    if output.is_json:
        row = {"time": time.strftime("%Y-%m-%dT%H:%M:%S%z", now), **fields}
        click.echo(json.dumps(row, ensure_ascii=False))
    elif not output.is_name:
        click.echo(f"{time.strftime('%H:%M:%S', now)}  {text}")


def carry_out(server: Server, wanted: Goal, output: Output) -> bool:
    """Move until done; return whether everything was moved.

    Prints a line whenever the progress changes, and an error for each thing that was not done.
    """

    async def work(client: Client) -> Progress:
        last_line = None
        while True:
            progress = await advance(client, wanted, await flows(client))
            line = _line(progress)
            if line != last_line:
                echo_step(output, line, **_step(progress))
                last_line = line
            if progress.is_over:
                await finish(client, wanted)
                return progress
            await asyncio.sleep(POLL_S)

    progress = run(server, work)
    for each in (*progress.unmet, *progress.refused):
        click.echo(f"Error: {each}", err=True)
    if progress.unmet or progress.refused:
        return False
    echo_step(output, "Done.", done=True)
    return True


@rebalance.command()
@reading_options
def status(*, output: Output, server: Server) -> None:
    """Show all moves under way, also those that other tools started.

    \b
    logfleet rebalance status
    """

    async def work(client: Client) -> tuple[list[dict[str, str]], int]:
        moving = await list_reassignments(client)
        rows = [
            {
                "partition": str(key),
                "from": _ids(each.origin),
                "to": _ids(each.target),
                "adding": _ids(each.adding),
            }
            for key, each in sorted(moving.items(), key=lambda item: str(item[0]))
        ]
        return rows, await bytes_left(client, moving) if moving else 0

    rows, left = run(server, work)

    def text() -> None:
        click.echo(f"{len(rows)} partitions move, {bytes_text(left)} are left to copy.")
        if rows:
            output.rows(rows[:SHOWN_MAX], STATUS_COLUMNS, name="partition")

    names = [row["partition"] for row in rows]
    output.document({"moves": rows, "bytes_left": left}, text, names=names)


@rebalance.command()
@changing_options
def stop(*, dry_run: bool, output: Output, server: Server) -> None:
    """Cancel all moves under way; completed moves stay. Throttles are removed.

    \b
    logfleet rebalance stop
    """

    async def work(client: Client) -> tuple[list[str], Sequence[str]]:
        moving = sorted(map(str, await list_reassignments(client)))
        return moving, () if dry_run else await call_back(client, Goal(throttle=0))

    moving, refused = run(server, work)
    for each in refused:
        click.echo(f"Error: {each}", err=True)
    if refused:
        sys.exit(1)
    mark = {DRY_RUN: True} if dry_run else {}
    sentence = "would be cancelled (dry run)" if dry_run else "were cancelled: nothing moves"
    output.document(
        {**mark, "cancelled": moving},
        lambda: click.echo(f"{len(moving)} moves {sentence}."),
        names=moving,
    )


def echo_plan(made: Plan) -> None:
    if not made.moves:
        click.echo("Nothing is to be moved.")
    else:
        copied = [move for move in made.moves if move.bytes]
        click.echo(
            f"{len(made.moves)} partitions change, {len(copied)} are copied: "
            f"{bytes_text(made.bytes)} (any plan: {bytes_text(made.least_bytes)} at least)"
        )
        Output().rows(_as_json(made)["moves"][:SHOWN_MAX], PLAN_COLUMNS, name="topic")
        if len(made.moves) > SHOWN_MAX:
            click.echo(f"... and {len(made.moves) - SHOWN_MAX} more; -o json shows all")
    pairs = [
        ("bytes", "bytes"),
        ("replicas", "replicas"),
        ("leaders", "leaders"),
        ("traffic", "rate"),
    ]
    skews = ", ".join(
        f"{title} {getattr(made.before, name):.0%} -> {getattr(made.after, name):.0%}"
        for title, name in pairs
    )
    click.echo(f"Furthest off the mean: {skews}")
    for each in made.unmet:
        click.echo(f"Cannot be reached: {each}", err=True)
    for each in made.hot:
        click.echo(f"Hot: {each}")


def _as_json(made: Plan) -> dict[str, Any]:
    return {
        "moves": [
            {
                "topic": move.topic,
                "partition": move.index,
                "from": move.before,
                "to": move.after,
                "bytes": move.bytes,
                "why": move.reason,
            }
            for move in made.moves
        ],
        "bytes": made.bytes,
        "least_bytes": made.least_bytes,
        "before": _skew(made.before),
        "after": _skew(made.after),
        "unmet": made.unmet,
        "hot": made.hot,
    }


def _skew(skew: Skew) -> dict[str, float]:
    return {
        "bytes": skew.bytes,
        "replicas": skew.replicas,
        "leaders": skew.leaders,
        "traffic": skew.rate,
    }


def _step(progress: Progress) -> dict[str, int]:
    return {
        "underWay": progress.under_way,
        "bytesLeft": progress.bytes_left,
        "planned": progress.planned,
        "plannedBytes": progress.planned_bytes,
    }


def _line(progress: Progress) -> str:
    return (
        f"{progress.under_way} partitions move ({bytes_text(progress.bytes_left)} left), "
        f"{progress.planned} wait ({bytes_text(progress.planned_bytes)})"
    )


def _ids(ids: tuple[int, ...]) -> str:
    return ",".join(map(str, ids)) or "-"
