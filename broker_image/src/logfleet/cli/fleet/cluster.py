"""`logfleet cluster`: the brokers, and partitions that lack replicas."""

import asyncio
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple

import click

from logfleet import BUILD_VERSION
from logfleet.cli.completion.callbacks import complete
from logfleet.cli.output.formats import Column, Output, Row
from logfleet.cli.session import Server, reading_options, run
from logfleet.client.admin import Admin, ClusterDescription
from logfleet.client.cluster import Client
from logfleet.client.errors import ClientError
from logfleet.client.metadata import Node, Topic
from logfleet.controller.brokers.cordons import CORDONED, is_whole

BROKER_IDS: Final = click.argument(
    "brokers",
    nargs=-1,
    required=True,
    type=click.IntRange(0),
    metavar="ID...",
    shell_complete=complete("brokers"),
)
SHOWN_MAX: Final = 20
"""Largest number of partitions named on a terminal; JSON names all."""
MARKS: Final = ("cordoned", "controller")
"""Shown beside a broker's state."""
ANSWER_S_MAX: Final = 5.0
PAUSE_S: Final = 0.2
REMARKS: Final = ("under_replicated", "under_min_isr", "offline")


@click.command()
@click.option(
    "--wait",
    "waits",
    is_flag=True,
    help="Wait until all brokers serve and all replicas are in sync, for --timeout at most.",
)
@click.option(
    "--brokers",
    type=click.IntRange(1),
    metavar="N",
    help="With --wait: so many brokers at least.  [default: those that have replicas]",
)
@reading_options
def cluster(*, waits: bool, brokers: int | None, output: Output, server: Server) -> None:
    """Show brokers with their zones, the controller, and partitions that lack replicas.

    STATE: active; fenced (registered, and not allowed to lead); unregistered (it has replicas, and
    does not run); cordoned beside it: it gets no new replicas, as after `logfleet cordon` and
    `drain`. LEADS and REPLICAS are numbers of partitions. `logfleet may-i stop ID` shows what
    forbids to stop a broker, `logfleet events` why brokers decided something.

    \b
    logfleet cluster
    logfleet cluster -o json | jq '.under_min_isr'
    logfleet cluster --wait --brokers 3 --timeout 60

    Exit codes: 0 done, 1 no broker answers, or after --wait something is still missing (stderr has
    what), 2 the command line is wrong.
    """
    if brokers is not None and not waits:
        raise click.UsageError("--brokers: give --wait too")

    async def work(client: Client) -> dict[str, Any]:
        if waits:
            await until_complete(client, brokers, server.timeout_seconds)
        return await _overview(client)

    overview = run(server, work, waiting=waits)
    ids = [each["id"] for each in overview["brokers"]]
    output.document(overview, lambda: _echo(overview, output), names=ids)


async def until_complete(client: Client, brokers: int | None, seconds: float) -> None:
    """Wait until nothing is `missing`. Raises ClickException, with what is, after that time."""
    patience_ms, client.timeout_ms = client.timeout_ms, 0  # this loop retries
    admin = Admin(client)
    lacks = "no broker has answered"
    try:
        async with asyncio.timeout(seconds):
            while lacks:
                try:
                    found = await admin.describe_cluster(include_fenced=True)
                    lacks = missing(found, await admin.list_topics(), brokers)
                except ClientError as error:
                    if not error.retriable:
                        raise
                    lacks = str(error)
                if lacks:
                    await asyncio.sleep(PAUSE_S)
    except TimeoutError:
        raise click.ClickException(f"after {seconds:g} s: {lacks}") from None
    client.timeout_ms = patience_ms


def missing(found: ClusterDescription, topics: Sequence[Topic], brokers: int | None) -> str:
    """What a fleet lacks until it is complete; "" if nothing.

    brokers: how many are wanted at least; None: those that have replicas.
    """
    reasons = []
    serving = len(found.brokers) - len(found.fenced)
    if serving < (brokers or 1):
        reasons.append(f"{serving} of {brokers or 1} brokers serve")
    reasons += [f"broker {each} is fenced" for each in sorted(found.fenced)]
    reasons += [f"broker {each} does not run" for each in unregistered(found, topics)]
    remarks = Counter(
        remark for topic in topics for each in topic.partitions for remark in each.remarks(1)
    )
    reasons += [
        f"partitions {remark.replace('_', '-')}: {remarks[remark]}"
        for remark in ("offline", "under_replicated")
        if remarks[remark]
    ]
    return ", ".join(reasons)


async def _overview(client: Client) -> dict[str, Any]:
    admin = Admin(client)
    found = await admin.describe_cluster(include_fenced=True)
    topics = await admin.list_topics()
    min_isr = await admin.topic_values([topic.name for topic in topics], "min.insync.replicas")
    values = {name: int(value) for name, value in min_isr.items()}
    return overview(found, topics, values, await _own(found.brokers))


class Own(NamedTuple):
    """What a broker answers for itself alone.

    version: of its package; None from a broker that does not report one, as Apache Kafka.
    """

    cordoned: bool
    version: str | None


async def _own(nodes: Sequence[Node]) -> dict[int, Own]:
    """By broker id, without brokers that do not answer in ANSWER_S_MAX."""

    async def ask(node: Node) -> Own:
        async with (
            asyncio.timeout(ANSWER_S_MAX),
            Client(node.address, timeout_ms=0) as client,
        ):
            entries = await Admin(client).own_config(node.id)
        version = entries[BUILD_VERSION].value if BUILD_VERSION in entries else None
        return Own(CORDONED in entries and is_whole(entries[CORDONED].value), version)

    answers = await asyncio.gather(*map(ask, nodes), return_exceptions=True)
    found = {}
    for node, answer in zip(nodes, answers, strict=True):
        if isinstance(answer, Own):
            found[node.id] = answer
        elif not isinstance(answer, ClientError | TimeoutError):
            raise answer
    return found


def unregistered(found: ClusterDescription, topics: Sequence[Topic]) -> list[int]:
    """Ids of brokers that have replicas but are not registered."""
    holders = {broker for topic in topics for each in topic.partitions for broker in each.replicas}
    return sorted(holders - {node.id for node in found.brokers})


async def check_brokers(client: Client, ids: Iterable[int]) -> None:
    """Raises ClickException at once for an id that no broker has.

    A broker that has replicas and does not run is accepted: it may restart.
    """
    wanted = set(ids)
    admin = Admin(client)
    found = await admin.describe_cluster(include_fenced=True)
    there = {node.id for node in found.brokers}
    if wanted <= there:
        return
    there.update(unregistered(found, await admin.list_topics()))
    for each in sorted(wanted - there):
        ids_there = ", ".join(map(str, sorted(there)))
        raise click.ClickException(f"there is no broker {each}; the ids are {ids_there}")


def overview(
    found: ClusterDescription,
    topics: Sequence[Topic],
    min_isr: Mapping[str, int],
    own: Mapping[int, Own],
) -> dict[str, Any]:
    """The overview for JSON.

    min_isr: min.insync.replicas by topic, 1 if missing. own: by broker id, shown as null if
    missing.
    """
    leads, holds = Counter[int](), Counter[int]()
    cordoned = {broker: each.cordoned for broker, each in own.items()}
    versions = {broker: each.version for broker, each in own.items()}
    partitions: dict[str, list[str]] = {remark: [] for remark in REMARKS}
    for topic in topics:
        for each in topic.partitions:
            leads[each.leader] += 1
            holds.update(each.replicas)
            for remark in each.remarks(min_isr.get(topic.name, 1)):
                partitions[remark].append(f"{topic.name}-{each.index}")
    brokers = [
        {
            "id": node.id,
            "zone": node.rack,
            "host": node.host,
            "port": node.port,
            "state": "fenced" if node.id in found.fenced else "active",
            "cordoned": cordoned.get(node.id),
            "controller": node.id == found.controller_id,
            "version": versions.get(node.id),
            "leads": leads[node.id],
            "replicas": holds[node.id],
        }
        for node in found.brokers
    ]
    brokers += [
        {
            "id": each,
            "state": "unregistered",
            "controller": False,
            "leads": 0,
            "replicas": holds[each],
        }
        for each in unregistered(found, topics)
    ]
    return {
        "id": found.cluster_id,
        "brokers": brokers,
        "partitions": sum(leads.values()),
        **partitions,
    }


def _state(broker: Row) -> str:
    return ", ".join([broker["state"], *(mark for mark in MARKS if broker.get(mark))])


def _address(broker: Row) -> str | None:
    return f"{broker['host']}:{broker['port']}" if "host" in broker else None


COLUMNS: Final = (
    Column("BROKER", "id"),
    Column("ZONE", lambda broker: broker.get("zone")),
    Column("ADDRESS", _address),
    Column("STATE", _state),
    Column("VERSION", lambda broker: broker.get("version")),
    Column("LEADS", "leads"),
    Column("REPLICAS", "replicas"),
)


def _echo(overview: Mapping[str, Any], output: Output) -> None:
    click.echo(f"Cluster:     {overview['id']}")
    counts = ", ".join(f"{len(overview[remark])} {remark.replace('_', ' ')}" for remark in REMARKS)
    click.echo(f"Partitions:  {overview['partitions']}, {counts}")
    output.rows(overview["brokers"], COLUMNS, name="id")
    for remark in REMARKS:
        if names := overview[remark]:
            more = f" and {len(names) - SHOWN_MAX} more" if len(names) > SHOWN_MAX else ""
            shown = " ".join(names[:SHOWN_MAX])
            click.echo(f"{remark.replace('_', ' ').capitalize()}: {shown}{more}")
