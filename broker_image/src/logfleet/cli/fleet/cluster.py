"""`logfleet cluster`: the brokers, and how the partitions fare as a whole."""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, Final

import click

from logfleet.cli.session import Server, echo_json, echo_table, listing_options, run
from logfleet.client.admin import Admin, ClusterDescription
from logfleet.client.cluster import Client
from logfleet.client.metadata import Topic

SHOWN_MAX: Final = 20
"""Partitions that are named on a terminal; JSON names all."""
REMARKS: Final = ("under_replicated", "under_min_isr", "offline")


@click.command()
@listing_options
def cluster(*, as_json: bool, server: Server) -> None:
    """Show brokers with their zones, who controls, and partitions that lack replicas.

    STATE: active; fenced (registered, and not allowed to lead); unregistered (it has replicas, and does not run). LEADS and REPLICAS are numbers of partitions.
    What forbids a broker to go is told by `logfleet may-i stop ID`, why something is as it is by `logfleet events`.

    \b
    logfleet cluster
    logfleet cluster -o json | jq '.under_min_isr'
    """
    overview = run(server, _overview)
    if as_json:
        echo_json(overview)
    else:
        _echo(overview)


async def _overview(client: Client) -> dict[str, Any]:
    admin = Admin(client)
    found = await admin.describe_cluster(include_fenced=True)
    topics = await admin.list_topics()
    min_isr = await admin.topic_values([topic.name for topic in topics], "min.insync.replicas")
    return overview(found, topics, {name: int(value) for name, value in min_isr.items()})


def unregistered(found: ClusterDescription, topics: Sequence[Topic]) -> list[int]:
    """Brokers that have replicas and do not run."""
    holders = {broker for topic in topics for each in topic.partitions for broker in each.replicas}
    return sorted(holders - {node.id for node in found.brokers})


def overview(
    found: ClusterDescription, topics: Sequence[Topic], min_isr: Mapping[str, int]
) -> dict[str, Any]:
    """As JSON shows it. min_isr: min.insync.replicas by topic; 1 where it is missing."""
    leads, holds = Counter[int](), Counter[int]()
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
            "controller": node.id == found.controller_id,
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


def _echo(overview: Mapping[str, Any]) -> None:
    click.echo(f"Cluster:     {overview['id']}")
    words = ", ".join(f"{len(overview[remark])} {remark.replace('_', ' ')}" for remark in REMARKS)
    click.echo(f"Partitions:  {overview['partitions']}, {words}")
    rows = [
        (
            each["id"],
            each.get("zone") or "-",
            f"{each['host']}:{each['port']}" if "host" in each else "-",
            f"{each['state']}, controller" if each["controller"] else each["state"],
            each["leads"],
            each["replicas"],
        )
        for each in overview["brokers"]
    ]
    echo_table(("BROKER", "ZONE", "ADDRESS", "STATE", "LEADS", "REPLICAS"), rows)
    for remark in REMARKS:
        if names := overview[remark]:
            more = f" and {len(names) - SHOWN_MAX} more" if len(names) > SHOWN_MAX else ""
            shown = " ".join(names[:SHOWN_MAX])
            click.echo(f"{remark.replace('_', ' ').capitalize()}: {shown}{more}")
