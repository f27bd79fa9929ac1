"""Brokers: state, zone, what they lead and hold, their disks."""

from typing import Any

from logfleet.console.sample import Directory, Sample
from logfleet.console.views.texts import percent


def broker_rows(sample: Sample) -> list[dict[str, Any]]:
    """All brokers by id, also those that have replicas and are not registered."""
    cluster = sample.cluster
    if cluster is None:
        return []
    leads, holds = sample.partitions.leads, sample.partitions.holds
    rows: list[dict[str, Any]] = [
        {
            "id": node.id,
            "zone": node.rack,
            "address": node.address,
            "state": "fenced" if node.id in cluster.fenced else "active",
            "controller": node.id == cluster.controller_id,
            "cordoned": node.id in sample.brokers and sample.brokers[node.id].cordoned,
        }
        for node in cluster.brokers
    ]
    there = {row["id"] for row in rows}
    rows += [
        {
            "id": each,
            "zone": None,
            "address": None,
            "state": "unregistered",
            "controller": False,
            "cordoned": False,
        }
        for each in holds.keys() - there
    ]
    for row in rows:
        own = [each for each in sample.directories if each.broker == row["id"]]
        known = [each for each in own if each.total > 0]
        row["leads"], row["replicas"] = leads.get(row["id"], 0), holds.get(row["id"], 0)
        row["bytes"] = sum(each.size for each in own) if own else None
        row["disk"] = max((_used(each) or 0 for each in known), default=None)
        row["failed_directories"] = [each.path for each in own if each.error]
    return sorted(rows, key=lambda row: row["id"])


def zones(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The rows by zone; brokers without one come last."""
    names = sorted({row["zone"] for row in rows}, key=lambda zone: (zone is None, zone or ""))
    return [
        {"zone": name, "brokers": [row for row in rows if row["zone"] == name]} for name in names
    ]


def brokers(sample: Sample) -> dict[str, Any]:
    """The page of all brokers."""
    return {"brokers": broker_rows(sample), "zones": zones(broker_rows(sample))}


def broker(sample: Sample, broker_id: int) -> dict[str, Any] | None:
    """The page of one broker; None if there is none."""
    row = next((row for row in broker_rows(sample) if row["id"] == broker_id), None)
    if row is None:
        return None
    topics = [
        {"topic": name, "leads": led, "replicas": held}
        for name, topic in sample.topics.items()
        if (held := sum(broker_id in each.replicas for each in topic.partitions))
        for led in [sum(each.leader == broker_id for each in topic.partitions)]
    ]
    topics.sort(key=lambda each: (-int(str(each["replicas"])), str(each["topic"])))
    return {
        **row,
        "directories": [
            {
                "path": each.path,
                "error": each.error,
                "bytes": each.size,
                "free": each.usable if each.usable >= 0 else None,
                "total": each.total if each.total >= 0 else None,
                "used": _used(each),
                "partitions": each.partitions,
            }
            for each in sample.directories
            if each.broker == broker_id
        ],
        "topics_count": len(topics),
        "topics": topics[:100],
    }


def _used(each: Directory) -> int | None:
    return percent(each.total - each.usable, each.total) if each.usable >= 0 else None
