"""`logfleet may-i`: whether brokers may go down now, and what forbids it."""

import json
import sys
from typing import Any, Final

import click

from logfleet.cli.fleet.admin_port import Parameters, ask_any
from logfleet.cli.session import Server, echo_json, echo_table, listing_options, run

PATH: Final = "/may-i"


@click.group()
def may_i() -> None:
    """Ask whether brokers may go down now.

    No, if a partition would be offline or have fewer in-sync replicas than min.insync.replicas, so that acknowledged records could not be read or new
    ones not be written. The same rule decides when a broker that is stopped lets go. It holds for this moment: ask again for the next broker.

    \b
    logfleet may-i stop 2 && kubectl delete pod demo-b-0
    logfleet may-i lose-zone b

    Exit codes: 0 yes, 1 no (or nobody could be asked: one line on stderr says so), 2 the command line is wrong.
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


def _ask(server: Server, parameters: Parameters, *, as_json: bool) -> None:
    answers = run(server, lambda client: ask_any(client, PATH, parameters))
    answers.tell_failures()
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
