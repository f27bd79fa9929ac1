"""`logfleet events`: what brokers decided, and why."""

import json
from datetime import datetime
from typing import Any, Final

import click

from logfleet.cli.advice import guess
from logfleet.cli.completion.callbacks import complete
from logfleet.cli.fleet.admin_port import Answers, ask_all
from logfleet.cli.output.formats import Column, Output, Row
from logfleet.cli.session import Server, reading_options, run
from logfleet.cli.times import TIMES, time_of
from logfleet.telemetry.decisions import Kind

PATH: Final = "/events"


@click.command()
@click.option("--topic", shell_complete=complete("topics"), help="Only what concerns this topic.")
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
    callback=time_of,
    help=f"Only what is younger: {TIMES}.",
)
@click.option("--until", metavar="TIME", callback=time_of, help="Only what is older, likewise.")
@reading_options
def events(
    topic: str | None,
    *,
    partition: int | None,
    broker: int | None,
    kinds: tuple[str, ...],
    since: int | None,
    until: int | None,
    output: Output,
    server: Server,
) -> None:
    """Show what brokers decided and why: elections, fencing, ISR changes, failed disks, stalls.

    Each broker keeps its own, the last 10,000 of a week at most, over restarts; all of them are
    asked for theirs at their admin port. BY is the broker that reports it.

    \b
    logfleet events --topic orders --since 14:00 --until 14:10
    logfleet events --since 10m --kind election --kind fenced
    logfleet events -o json | jq -r '.[].cause'

    Exit codes: 0 done, also if some brokers could not be asked (stderr says which), 1 none could, 2
    the command line is wrong.
    """
    for kind in set(kinds) - {*Kind}:  # brokers of another version may have it
        message = f"this version has no decision of kind {kind}{guess(kind, Kind)}"
        click.echo(f"Warning: {message}", err=True)
    given = {"topic": topic, "partition": partition, "broker": broker, "since": since}
    parameters = {name: [str(value)] for name, value in given.items() if value is not None}
    answers = run(server, lambda client: ask_all(client, PATH, {**parameters, "kind": kinds}))
    found = [each for each in merged(answers) if until is None or each["time_ms"] < until]
    if answers.texts:
        output.rows(found, columns(), name=lambda row: f"{row['by']}-{row['number']}")
    answers.report_failures()


def merged(answers: Answers) -> list[dict[str, Any]]:
    """The events of all brokers, by time as their clocks have it.

    Events of one broker within a millisecond keep their order.
    """
    found = [json.loads(line) for text in answers.texts.values() for line in text.splitlines()]
    return sorted(found, key=lambda each: (each["time_ms"], each["by"], each["number"]))


def columns() -> list[Column]:
    """The columns of a table; the title of the time names this machine's zone."""
    zone = datetime.now().astimezone().tzinfo  # of now, for all rows: one title for them

    def shown_time(each: Row) -> str:
        at = datetime.fromtimestamp(each["time_ms"] // 1000, zone)
        return f"{at:%Y-%m-%d %H:%M:%S}.{each['time_ms'] % 1000:03}"

    return [
        Column(f"TIME ({datetime.now(zone):%Z})", shown_time),
        Column("BY", "by"),
        Column("KIND", "kind"),
        Column("ABOUT", subject_of),
        Column("CAUSE", _cause),
        Column("NUMBER", "number", is_wide=True),
    ]


def _cause(each: Row) -> str:
    facts = ", ".join(f"{name} {_fact(value)}" for name, value in each.get("facts", {}).items())
    return f"{each['cause']} ({facts})" if facts else each["cause"]


def subject_of(each: Row) -> str:
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
