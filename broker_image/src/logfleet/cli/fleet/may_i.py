"""`logfleet may-i`: whether brokers may go down now, or for good, and what forbids it."""

import json
import sys
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any, Final

import click

from logfleet.balance.load import Plan
from logfleet.balance.rebalancing import Goal, make_plan
from logfleet.cli.fleet.admin_port import Parameters, ask_any
from logfleet.cli.fleet.cluster import check_brokers
from logfleet.cli.fleet.rebalance import MIB, THROTTLE
from logfleet.cli.log_dirs import bytes_text
from logfleet.cli.session import (
    Server,
    echo_json,
    echo_table,
    listing_options,
    run,
    server_options,
)
from logfleet.client.admin import Admin
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
@click.argument("brokers", nargs=-1, required=True, type=click.IntRange(0), metavar="ID...")
@listing_options
def stop(brokers: tuple[int, ...], *, as_json: bool, server: Server) -> None:
    """Whether these brokers may be stopped, all of them together.

    \b
    logfleet may-i stop 2
    logfleet may-i stop 2 3 -o json | jq '.forbidden'
    """
    _ask(server, {"stop": [str(each) for each in brokers]}, as_json=as_json)


@may_i.command(name="lose-zone")
@click.argument("zone")
@listing_options
def lose_zone(zone: str, *, as_json: bool, server: Server) -> None:
    """Whether all brokers of a zone may go down together.

    \b
    logfleet may-i lose-zone b
    """
    _ask(server, {"lose-zone": [zone]}, as_json=as_json)


@may_i.command()
@server_options
def roll(*, server: Server) -> None:
    """Whether each broker may be stopped now, alone: so a rolling restart would not wait.

    \b
    logfleet may-i roll
    """

    async def work(client: Client) -> list[tuple[int, dict[str, Any]]]:
        nodes = (await Admin(client).describe_cluster()).brokers
        found = []
        for node in nodes:
            answers = await ask_any(client, PATH, {"stop": [str(node.id)]})
            answers.report_failures()
            (text,) = answers.texts.values()
            found.append((node.id, json.loads(text)))
        return found

    found = run(server, work)
    rows = [
        (broker, "yes" if answer["may"] else "no", answer["forbidden_count"], _first_rule(answer))
        for broker, answer in found
    ]
    echo_table(("BROKER", "MAY STOP", "FORBIDDEN BY", "FIRST"), rows)
    sys.exit(0 if all(answer["may"] for _, answer in found) else 1)


def _first_rule(answer: dict[str, Any]) -> str:
    forbidden = answer["forbidden"]
    return f"{_name(forbidden[0])}: {forbidden[0]['rule']}" if forbidden else "-"


@may_i.command()
@click.argument("brokers", nargs=-1, required=True, type=click.IntRange(0), metavar="ID...")
@THROTTLE
@server_options
def drain(brokers: tuple[int, ...], *, throttle: float, server: Server) -> None:
    """Whether the other brokers could hold all replicas of these, and what moving them takes.

    No, if a partition would have no other place: fewer brokers than replicas, or disks that would
    be too full. Nothing is changed; `logfleet drain` does it.

    \b
    logfleet may-i drain 4 5
    """
    _ask_for_room(server, throttle, lambda _: frozenset(brokers))


@may_i.command()
@click.argument("count", type=click.IntRange(1), metavar="BROKERS")
@THROTTLE
@server_options
def scale(count: int, *, throttle: float, server: Server) -> None:
    """Whether this number of brokers could hold all replicas, and what moving them takes.

    The brokers to go have the highest ids in the zones with most brokers, as the operator chooses
    them.

    \b
    logfleet may-i scale 6
    """
    _ask_for_room(server, throttle, lambda nodes: surplus(nodes, count))


def surplus(nodes: Sequence[Node], count: int) -> frozenset[int]:
    """Ids of the brokers to remove so that `count` stay."""
    left = sorted(nodes, key=lambda node: node.id)
    while len(left) > count:
        zone = zone_that_gives(Counter(node.rack for node in left))
        left.remove(max((node for node in left if node.rack == zone), key=lambda node: node.id))
    return frozenset(node.id for node in nodes) - {node.id for node in left}


def _ask_for_room(
    server: Server, throttle: float, going: Callable[[Sequence[Node]], frozenset[int]]
) -> None:
    async def work(client: Client) -> tuple[frozenset[int], int, Plan]:
        nodes = (await Admin(client).describe_cluster()).brokers
        leaving = going(nodes)
        await check_brokers(client, leaving)
        return leaving, len(nodes) - len(leaving), await make_plan(client, Goal(leaving=leaving))

    leaving, staying, made = run(server, work)
    ids = ", ".join(map(str, sorted(leaving))) or "nobody goes"
    click.echo(f"{'No' if made.unmet else 'Yes'}: {ids}")
    copied = sum(move.bytes > 0 for move in made.moves)
    minutes = made.bytes / (throttle * MIB * max(1, staying)) / 60 if throttle else 0.0
    click.echo(
        f"{len(made.moves)} partitions change, {copied} are copied, {bytes_text(made.bytes)}"
        + (f": {minutes:.0f} minutes at {throttle:g} MiB/s and broker" if throttle else "")
    )
    for each in made.unmet[:UNMET_SHOWN_MAX]:
        click.echo(each)
    if len(made.unmet) > UNMET_SHOWN_MAX:
        click.echo(f"... and {len(made.unmet) - UNMET_SHOWN_MAX} more")
    sys.exit(1 if made.unmet else 0)


def _ask(server: Server, parameters: Parameters, *, as_json: bool) -> None:
    answers = run(server, lambda client: ask_any(client, PATH, parameters))
    answers.report_failures()
    (text,) = answers.texts.values()
    answer = json.loads(text)
    if as_json:
        echo_json(answer)
    else:
        _echo(answer)
    sys.exit(0 if answer["may"] else 1)


def _echo(answer: dict[str, Any]) -> None:
    brokers = ", ".join(map(str, answer["brokers"]))
    click.echo(f"{'Yes' if answer['may'] else 'No'}: {brokers}")
    if count := answer["forbidden_count"]:
        click.echo(f"\nPartitions that forbid it: {count}{_first(answer['forbidden'], count)}")
        rows = [
            (_name(each), each["rule"], "helps" if each["can_heal"] else "does not help")
            for each in answer["forbidden"]
        ]
        echo_table(("PARTITION", "RULE", "WAITING"), rows)
    if count := answer["under_replicated_count"]:
        found = answer["under_replicated"]
        click.echo(f"\nPartitions that would lack replicas: {count}{_first(found, count)}")
        click.echo(" ".join(map(_name, found)))


def _first(found: list[dict[str, Any]], count: int) -> str:
    return f", the first {len(found)}" if count > len(found) else ""


def _name(each: dict[str, Any]) -> str:
    return f"{each['topic']}-{each['partition']}"
