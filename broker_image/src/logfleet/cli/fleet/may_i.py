"""`logfleet may-i`: whether brokers may go down now, or for good, and what forbids it."""

import json
import sys
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any, Final

import click

from logfleet.balance.load import Plan
from logfleet.balance.rebalancing import Goal, make_plan
from logfleet.cli.fleet.admin_port import ask_any
from logfleet.cli.fleet.cluster import BROKER_IDS, check_brokers
from logfleet.cli.fleet.rebalance import MIB, THROTTLE
from logfleet.cli.log_dirs import bytes_text
from logfleet.cli.output.formats import Column, Output, Row
from logfleet.cli.session import Server, reading_options, run
from logfleet.client.admin import Admin
from logfleet.client.brokers.admin_port import Parameters
from logfleet.client.cluster import Client
from logfleet.client.metadata import Node
from logfleet.resources.cluster import zone_that_gives

PATH: Final = "/may-i"
UNMET_SHOWN_MAX: Final = 20


@click.group()
def may_i() -> None:
    """Ask whether brokers may go down now (stop, lose-zone, roll), or for good (drain, scale).

    No, if a partition would be offline or have fewer in-sync replicas than min.insync.replicas, so
    that acknowledged records could not be read or new ones not be written. The same rule decides
    when a broker's controlled shutdown ends. The answer holds for this moment: ask again for the
    next broker.

    \b
    logfleet may-i stop 2 && kubectl delete pod demo-b-0
    logfleet may-i lose-zone b
    logfleet may-i roll
    logfleet may-i drain 4 5
    logfleet may-i scale 3

    Exit codes: 0 yes, 1 no (or nobody could be asked: one line on stderr says so), 2 the command
    line is wrong.
    """


@may_i.command()
@BROKER_IDS
@reading_options
def stop(brokers: tuple[int, ...], *, output: Output, server: Server) -> None:
    """Whether these brokers may be stopped, all of them together.

    \b
    logfleet may-i stop 2
    logfleet may-i stop 2 3 -o json | jq '.forbidden'
    """
    _ask(server, {"stop": [str(each) for each in brokers]}, output)


@may_i.command(name="lose-zone")
@click.argument("zone")
@reading_options
def lose_zone(zone: str, *, output: Output, server: Server) -> None:
    """Whether all brokers of a zone may go down together.

    \b
    logfleet may-i lose-zone b
    """
    _ask(server, {"lose-zone": [zone]}, output)


@may_i.command()
@reading_options
def roll(*, output: Output, server: Server) -> None:
    """Whether each broker may be stopped now, alone: so a rolling restart would not wait.

    \b
    logfleet may-i roll
    """

    async def work(client: Client) -> list[dict[str, Any]]:
        nodes = (await Admin(client).describe_cluster()).brokers
        found = []
        for node in nodes:
            answers = await ask_any(client, PATH, {"stop": [str(node.id)]})
            answers.report_failures()
            (text,) = answers.texts.values()
            found.append({"broker": node.id, **json.loads(text)})
        return found

    found = run(server, work)
    if output.is_name:  # those that may stop are what a script wants
        found = [each for each in found if each["may"]]
    output.rows(found, ROLL_COLUMNS, name="broker")
    sys.exit(0 if found and all(answer["may"] for answer in found) else 1)


def _first_rule(answer: Row) -> str | None:
    forbidden = answer["forbidden"]
    return f"{_name(forbidden[0])}: {forbidden[0]['rule']}" if forbidden else None


@may_i.command()
@BROKER_IDS
@THROTTLE
@reading_options
def drain(brokers: tuple[int, ...], *, throttle: float, output: Output, server: Server) -> None:
    """Whether the other brokers could hold all replicas of these, and what moving them takes.

    No, if a partition would have no other place: fewer brokers than replicas, or disks that would
    be too full. Nothing is changed; `logfleet drain` does it.

    \b
    logfleet may-i drain 4 5
    """
    _ask_for_room(server, output, throttle, lambda _: frozenset(brokers))


@may_i.command()
@click.argument("count", type=click.IntRange(1), metavar="BROKERS")
@THROTTLE
@reading_options
def scale(count: int, *, throttle: float, output: Output, server: Server) -> None:
    """Whether this number of brokers could hold all replicas, and what moving them takes.

    The brokers to go have the highest ids in the zones with most brokers, as the operator chooses
    them.

    \b
    logfleet may-i scale 6
    """
    _ask_for_room(server, output, throttle, lambda nodes: surplus(nodes, count))


def surplus(nodes: Sequence[Node], count: int) -> frozenset[int]:
    """Ids of the brokers to remove so that `count` stay."""
    left = sorted(nodes, key=lambda node: node.id)
    while len(left) > count:
        zone = zone_that_gives(Counter(node.rack for node in left))
        left.remove(max((node for node in left if node.rack == zone), key=lambda node: node.id))
    return frozenset(node.id for node in nodes) - {node.id for node in left}


def _ask_for_room(
    server: Server,
    output: Output,
    throttle: float,
    going: Callable[[Sequence[Node]], frozenset[int]],
) -> None:
    async def work(client: Client) -> tuple[frozenset[int], int, Plan]:
        nodes = (await Admin(client).describe_cluster()).brokers
        leaving = going(nodes)
        await check_brokers(client, leaving)
        return leaving, len(nodes) - len(leaving), await make_plan(client, Goal(leaving=leaving))

    leaving, staying, made = run(server, work)
    minutes = made.bytes / (throttle * MIB * max(1, staying)) / 60 if throttle else None
    document = {
        "may": not made.unmet,
        "brokers": sorted(leaving),
        "partitions": len(made.moves),
        "bytes": made.bytes,
        "minutes": minutes,
        "unmet": made.unmet,
    }
    output.document(
        document, lambda: _echo_room(leaving, made, throttle, minutes), names=sorted(leaving)
    )
    sys.exit(1 if made.unmet else 0)


def _echo_room(leaving: frozenset[int], made: Plan, throttle: float, minutes: float | None) -> None:
    ids = ", ".join(map(str, sorted(leaving))) or "nobody goes"
    click.echo(f"{'No' if made.unmet else 'Yes'}: {ids}")
    copied = sum(move.bytes > 0 for move in made.moves)
    click.echo(
        f"{len(made.moves)} partitions change, {copied} are copied, {bytes_text(made.bytes)}"
        + ("" if minutes is None else f": {minutes:.0f} minutes at {throttle:g} MiB/s and broker")
    )
    for each in made.unmet[:UNMET_SHOWN_MAX]:
        click.echo(each)
    if len(made.unmet) > UNMET_SHOWN_MAX:
        click.echo(f"... and {len(made.unmet) - UNMET_SHOWN_MAX} more")


def _ask(server: Server, parameters: Parameters, output: Output) -> None:
    answers = run(server, lambda client: ask_any(client, PATH, parameters))
    answers.report_failures()
    (text,) = answers.texts.values()
    answer = json.loads(text)
    output.document(answer, lambda: _echo(answer), names=map(_name, answer["forbidden"]))
    sys.exit(0 if answer["may"] else 1)


def _echo(answer: dict[str, Any]) -> None:
    brokers = ", ".join(map(str, answer["brokers"]))
    click.echo(f"{'Yes' if answer['may'] else 'No'}: {brokers}")
    if count := answer["forbidden_count"]:
        click.echo(f"\nPartitions that forbid it: {count}{_first(answer['forbidden'], count)}")
        Output().rows(answer["forbidden"], FORBIDDEN_COLUMNS, name=_name)
    if count := answer["under_replicated_count"]:
        found = answer["under_replicated"]
        click.echo(f"\nPartitions that would lack replicas: {count}{_first(found, count)}")
        click.echo(" ".join(map(_name, found)))


def _first(found: list[dict[str, Any]], count: int) -> str:
    return f", the first {len(found)}" if count > len(found) else ""


def _name(each: Row) -> str:
    return f"{each['topic']}-{each['partition']}"


ROLL_COLUMNS: Final = (
    Column("BROKER", "broker"),
    Column("MAY STOP", "may"),
    Column("FORBIDDEN BY", "forbidden_count"),
    Column("FIRST", _first_rule),
)
FORBIDDEN_COLUMNS: Final = (
    Column("PARTITION", _name),
    Column("RULE", "rule"),
    Column("WAITING", lambda row: "helps" if row["can_heal"] else "does not help"),
)
