"""The first page: is all well, and if not, what is wrong."""

from typing import Any, Final

from logfleet.checks import Severity, headline
from logfleet.console.history import History, Ring
from logfleet.console.sample import REMARKS, Sample
from logfleet.console.views.brokers import broker_rows, zones
from logfleet.console.views.events import event_row
from logfleet.console.views.groups import group_row

NAMED_MAX: Final = 20
EVENTS_SHOWN: Final = 10
CHART_POINTS: Final = 180
FULL_PERCENT: Final = 85


def overview(sample: Sample, history: History, now_s: float, stuck_s: float) -> dict[str, Any]:
    """The page. state: level (ok, warning, error) and one sentence."""
    rows = broker_rows(sample)
    behind = [
        group_row(sample, history, group, now_s, stuck_s)
        for name in history.lags.moving()
        if (group := sample.groups.get(name)) is not None
    ]
    growing = [row for row in behind if row["growing"] or row["stuck"]]
    growing.sort(key=lambda row: -(row["lag"] or 0))
    cluster = sample.cluster
    return {
        "state": state(sample, rows),
        "findings": len(sample.findings),
        "cluster": cluster.cluster_id if cluster else None,
        "brokers": rows,
        "zones": zones(rows),
        "topics": len(sample.topics),
        "partitions": sample.partitions.count,
        "groups": len(sample.groups),
        "remarks": {
            remark: {
                "count": len(sample.partitions.remarks.get(remark, ())),
                "first": [str(k) for k in sample.partitions.remarks.get(remark, ())[:NAMED_MAX]],
            }
            for remark in REMARKS
        },
        "growing": growing[:NAMED_MAX],
        "moving": [str(key) for key in sample.moving[:NAMED_MAX]],
        "moving_count": len(sample.moving),
        "events": [event_row(each) for each in reversed(sample.events[-EVENTS_SHOWN:])],
        "charts": {
            "records": _chart(history.written),
            "bytes_in": _chart(history.bytes_in),
            "bytes_out": _chart(history.bytes_out),
        },
    }


def _chart(ring: Ring) -> dict[str, Any]:
    points = ring.points(CHART_POINTS)
    return {"now": points[-1][1] if points else None, "points": points}


def state(sample: Sample, rows: list[dict[str, Any]]) -> dict[str, str]:
    """The worst that is known, in one sentence."""
    if (failure := sample.failures.get("cluster")) is not None:
        return {"level": "error", "sentence": f"No broker answers: {failure}"}
    if sample.cluster is None:
        return {"level": "warning", "sentence": "The first sample is being taken."}
    counts = {remark: len(sample.partitions.remarks.get(remark, ())) for remark in REMARKS}
    if count := counts["offline"]:
        return _state("error", f"{_partitions(count)} offline: no records in or out.")
    if count := counts["under_min_isr"]:
        what = "below min.insync.replicas: producers with acks=all are refused."
        return _state("error", f"{_partitions(count)} {what}")
    if failed := [row for row in rows if row["failed_directories"]]:
        return _state("error", f"{_brokers(failed)}: a log directory has failed.")
    if away := [row for row in rows if row["state"] != "active"]:
        return _state("warning", f"{_brokers(away)}: {away[0]['state']}; the others serve.")
    if count := counts["under_replicated"]:
        return _state("warning", f"{_partitions(count)} under-replicated.")
    if full := [row for row in rows if (row["disk"] or 0) >= FULL_PERCENT]:
        return _state("warning", f"{_brokers(full)}: disk {full[0]['disk']} % full.")
    if serious := [each for each in sample.findings if each.severity is not Severity.HINT]:
        return _state(str(serious[0].severity), f"{headline(serious)}.")
    count = len(rows)
    return _state(
        "ok",
        f"All is well: {count} broker{'s' * (count != 1)}, "
        f"{sample.partitions.count:,} partitions, all replicas in sync.",
    )


def _state(level: str, sentence: str) -> dict[str, str]:
    return {"level": level, "sentence": sentence}


def _partitions(count: int) -> str:
    return f"{count:,} partition{'s are' if count != 1 else ' is'}"


def _brokers(rows: list[dict[str, Any]]) -> str:
    return f"Broker{'s' * (len(rows) != 1)} {', '.join(str(row['id']) for row in rows[:5])}"


def health(sample: Sample) -> dict[str, Any]:
    """What `logfleet check` finds; at_s: when it was made, None before the first time."""
    counts = {str(level): 0 for level in Severity}
    for each in sample.findings:
        counts[str(each.severity)] += 1
    return {"at_s": sample.at_s.get("checks"), "counts": counts, "findings": sample.findings}
