"""`logfleet events`: what brokers decided, and why."""

import json
import re
from datetime import datetime, time, timedelta
from typing import Any, Final

import click

from logfleet.cli.fleet.admin_port import Answers, ask_all
from logfleet.cli.session import Server, echo_json, echo_table, listing_options, run

PATH: Final = "/events"
UNITS: Final = {"s": "seconds", "m": "minutes", "h": "hours", "d": "days"}


def parse_since(text: str, now: datetime) -> int:
    """A time in milliseconds since 1970. now: with its time zone. Raises ValueError.

    text: a time of day (the last one), a duration before now, or an ISO time.
    """
    if match := re.fullmatch(r"([0-9]{1,5})([smhd])", text):
        return _milliseconds(now - timedelta(**{UNITS[match[2]]: int(match[1])}))
    if re.fullmatch(r"[0-9]{2}:[0-9]{2}(:[0-9]{2})?", text):
        at = datetime.combine(now, time.fromisoformat(text), now.tzinfo)
        return _milliseconds(at if at <= now else at - timedelta(days=1))
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise ValueError(
            f"{text!r}: write 14:00, 10m (s, m, h or d ago) or 2013-01-01T14:00:00Z"
        ) from None
    return _milliseconds(moment if moment.tzinfo else moment.replace(tzinfo=now.tzinfo))


def _milliseconds(moment: datetime) -> int:
    return max(0, int(moment.timestamp() * 1000))


def _since(ctx: click.Context, option: click.Parameter, value: str | None) -> int:
    try:
        return 0 if value is None else parse_since(value, datetime.now().astimezone())
    except ValueError as error:
        raise click.BadParameter(str(error), ctx=ctx, param=option) from error


@click.command()
@click.option("--topic", help="Only what concerns this topic.")
@click.option("--partition", type=click.IntRange(0), help="Only this one of the topic.")
@click.option("--broker", type=click.IntRange(0), help="Only what concerns this broker.")
@click.option(
    "--kind",
    "kinds",
    multiple=True,
    help="Only this one, as election, fenced, isr_shrink; may be given again.",
)
@click.option(
    "--since",
    metavar="TIME",
    callback=_since,
    help="A time of day, so long ago as 10m, or 2013-01-01T14:00:00Z.",
)
@listing_options
def events(
    topic: str | None,
    *,
    partition: int | None,
    broker: int | None,
    kinds: tuple[str, ...],
    since: int,
    as_json: bool,
    server: Server,
) -> None:
    """Show what brokers decided and why: elections, fencing, ISR changes, failed disks, stalls.

    Each broker keeps its own, the last 10,000 of a week at most, over restarts; all of them are
    asked for theirs at their admin port. BY is the broker that reports it.

    \b
    logfleet events --topic orders --since 14:00
    logfleet events --since 10m --kind election --kind fenced
    logfleet events -o json | jq -r '.[].cause'

    Exit codes: 0 done, also if some brokers could not be asked (stderr says which), 1 none could, 2
    the command line is wrong.
    """
    given = {"topic": topic, "partition": partition, "broker": broker, "since": since}
    parameters = {name: [str(value)] for name, value in given.items() if value is not None}
    answers = run(server, lambda client: ask_all(client, PATH, {**parameters, "kind": kinds}))
    found = merged(answers)
    if as_json:
        echo_json(found)
    elif answers.texts:
        echo_table(("TIME", "BY", "KIND", "ABOUT", "CAUSE"), [_row(each) for each in found])
    answers.report_failures()


def merged(answers: Answers) -> list[dict[str, Any]]:
    """The events of all brokers, by time as their clocks have it.

    Events of one broker within a millisecond keep their order.
    """
    found = [json.loads(line) for text in answers.texts.values() for line in text.splitlines()]
    return sorted(found, key=lambda each: (each["time_ms"], each["by"], each["number"]))


def _row(each: dict[str, Any]) -> tuple[object, ...]:
    at = datetime.fromtimestamp(each["time_ms"] / 1000).astimezone()
    facts = ", ".join(f"{name} {_fact(value)}" for name, value in each.get("facts", {}).items())
    return (
        f"{at:%Y-%m-%d %H:%M:%S}.{each['time_ms'] % 1000:03}",
        each["by"],
        each["kind"],
        subject_of(each),
        f"{each['cause']} ({facts})" if facts else each["cause"],
    )


def subject_of(each: dict[str, Any]) -> str:
    """The subject of an event: a partition, a topic or a broker."""
    if "topic" in each:
        return f"{each['topic']}-{each['partition']}" if "partition" in each else each["topic"]
    return f"broker {each['broker']}" if "broker" in each else ""


def _fact(value: object) -> str:
    if isinstance(value, list) and len(value) == 2:
        return f"{_plain(value[0])} -> {_plain(value[1])}"
    return _plain(value)


def _plain(value: object) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
