#!/usr/bin/env python3
"""Writes files/dashboard.json of the cluster's chart: `python charts/dashboard.py`.

A test fails if the committed file is out of date. This file holds the parts that people review,
rows of panels with their queries; the rest of the JSON is Grafana's format.
"""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

PAGE: Final = Path(__file__).parent / "cluster" / "files" / "dashboard.json"
WIDTH, HEIGHT, COLUMNS = 8, 8, 24
BROKER: Final = 'namespace="$namespace", logfleet_cluster="$cluster"'
DATASOURCE: Final = {"type": "prometheus", "uid": "${datasource}"}


class Panel(NamedTuple):
    """A graph. queries: (expression, legend).

    BROKER in an expression stands for the cluster's labels.
    """

    title: str
    unit: str
    queries: tuple[tuple[str, str], ...]


def _quantiles(metric: str, by: str, where: str = "") -> tuple[tuple[str, str], ...]:
    rate = f"sum by ({by}, le) (rate({metric}_bucket{{BROKER{where}}}[$__rate_interval]))"
    return tuple(
        (f"histogram_quantile({quantile}, {rate})", f"{{{{{by}}}}} p{int(100 * quantile)}")
        for quantile in (0.5, 0.99)
    )


def _rate(metric: str, by: str) -> tuple[tuple[str, str], ...]:
    return ((f"sum by ({by}) (rate({metric}{{BROKER}}[$__rate_interval]))", f"{{{{{by}}}}}"),)


def _sum(metric: str, by: str, where: str = "") -> tuple[tuple[str, str], ...]:
    return ((f"sum by ({by}) ({metric}{{BROKER{where}}})", f"{{{{{by}}}}}"),)


def _lag(aggregation: str, by: str, own: str) -> tuple[tuple[str, str], ...]:
    """Return the query for the lag of groups, aggregated over partitions.

    A coordinator reports the lag only of partitions that it also leads (metric `own`). For other
    partitions the query joins the leader's high watermark with the committed offset. A broker with
    too many partitions reports none singly; `own` then serves instead.
    """
    joined = (
        "max by (topic, partition) (logfleet_partition_high_watermark{BROKER})"
        " - on (topic, partition) group_right ()"
        " max by (group, topic, partition) (logfleet_group_committed_offset{BROKER})"
    )
    function = f"{aggregation} by ({by})"
    return ((f"{function} ({joined}) or {function} ({own}{{BROKER}})", f"{{{{{by}}}}}"),)


_IMPORTANT = ', api=~"Produce|Fetch|OffsetCommit|Metadata"'

ROWS: Final = {
    "Health": (
        Panel(
            "Partitions that lack something",
            "short",
            (
                ("sum(logfleet_offline_partitions{BROKER})", "without a leader"),
                ("sum(logfleet_under_min_isr_partitions{BROKER})", "below min.insync.replicas"),
                ("sum(logfleet_under_replicated_partitions{BROKER})", "under-replicated"),
            ),
        ),
        Panel(
            "Brokers",
            "short",
            (
                ("sum(logfleet_ready{BROKER})", "ready"),
                ("sum(logfleet_active_brokers{BROKER})", "active"),
                ("sum(logfleet_active_controller{BROKER})", "controllers"),
            ),
        ),
        Panel("Error responses", "reqps", _rate("logfleet_request_errors_total", "api, error")),
    ),
    "Traffic": (
        Panel("Records in, by topic", "cps", _rate("logfleet_topic_messages_in_total", "topic")),
        Panel("Bytes in, by topic", "Bps", _rate("logfleet_topic_bytes_in_total", "topic")),
        Panel("Bytes out, by topic", "Bps", _rate("logfleet_topic_bytes_out_total", "topic")),
        Panel("Records in, by broker", "cps", _rate("logfleet_messages_in_total", "pod")),
        Panel("Bytes in, by broker", "Bps", _rate("logfleet_bytes_in_total", "pod")),
        Panel("Bytes out, by broker", "Bps", _rate("logfleet_bytes_out_total", "pod")),
    ),
    "Requests": (
        Panel("Requests", "reqps", _rate("logfleet_requests_total", "api")),
        Panel("Total time", "s", _quantiles("logfleet_request_seconds", "api", _IMPORTANT)),
        Panel(
            "Time on the loop", "s", _quantiles("logfleet_request_local_seconds", "api", _IMPORTANT)
        ),
        Panel(
            "Time waiting",
            "s",
            _quantiles("logfleet_request_remote_seconds", "api", _IMPORTANT),
        ),
        Panel("Requests that wait", "short", _sum("logfleet_purgatory_size", "operation")),
        Panel(
            "Clients are throttled", "s", _rate("logfleet_quota_throttle_seconds_total", "quota")
        ),
    ),
    "Groups": (
        Panel("Lag", "short", _lag("sum", "group, topic", "logfleet_group_lag")),
        Panel(
            "Worst partition of each group",
            "short",
            _lag("max", "group", "logfleet_group_partition_lag"),
        ),
        Panel("Groups", "short", _sum("logfleet_groups", "state")),
    ),
    "Brokers": (
        Panel("Event loop: lag", "s", _quantiles("logfleet_event_loop_lag_seconds", "pod")),
        Panel("Processor time", "percentunit", _rate("process_cpu_seconds_total", "pod")),
        Panel("Memory", "bytes", _sum("process_resident_memory_bytes", "pod")),
        Panel("Connections", "short", _sum("logfleet_connections", "pod")),
        Panel("Connections closed", "cps", _rate("logfleet_connections_closed_total", "reason")),
        Panel("Open files", "short", _sum("process_open_fds", "pod")),
    ),
    "Storage": (
        Panel(
            "Disk used",
            "percentunit",
            (
                (
                    "1 - logfleet_disk_free_bytes{BROKER} / logfleet_disk_bytes{BROKER}",
                    "{{pod}} {{path}}",
                ),
            ),
        ),
        Panel("Log size, by topic", "bytes", _sum("logfleet_partition_size_bytes", "topic")),
        Panel(
            "Compaction",
            "Bps",
            (
                (
                    "sum by (pod) (rate(logfleet_log_cleaner_read_bytes_total{BROKER}[$__rate_interval]))",
                    "{{pod}} read",
                ),
                (
                    "sum by (pod) (rate(logfleet_log_cleaner_kept_bytes_total{BROKER}[$__rate_interval]))",
                    "{{pod}} kept",
                ),
            ),
        ),
    ),
}


def dashboard() -> dict[str, Any]:
    """Return the whole dashboard in the form that Grafana imports."""
    labels = {
        "namespace": "label_values(logfleet_ready, namespace)",
        "cluster": 'label_values(logfleet_ready{namespace="$namespace"}, logfleet_cluster)',
    }
    return page("Logfleet", "logfleet", ROWS, ("BROKER", BROKER), labels)


def page(
    title: str,
    uid: str,
    rows: Mapping[str, Sequence[Panel]],
    selector: tuple[str, str],
    labels: Mapping[str, str],
) -> dict[str, Any]:
    """Return a dashboard of rows.

    selector: (word in the queries, its replacement). labels: of each variable that a user can
    choose, the query for its values.
    """
    panels: list[dict[str, Any]] = []
    top = 0
    for name, row in rows.items():
        panels.append({"type": "row", "title": name, "gridPos": _place(0, top, COLUMNS, 1)})
        top += 1
        for number, panel in enumerate(row):
            left = number * WIDTH % COLUMNS
            panels.append(_graph(panel, _place(left, top, WIDTH, HEIGHT), selector))
            if left + WIDTH == COLUMNS or number == len(row) - 1:
                top += HEIGHT
    for number, made in enumerate(panels, 1):
        made["id"] = number
    return {
        "title": title,
        "uid": uid,
        "tags": ["logfleet"],
        "schemaVersion": 39,
        "refresh": "30s",
        "time": {"from": "now-1h", "to": "now"},
        "templating": {"list": _variables(labels)},
        "panels": panels,
    }


def _place(left: int, top: int, width: int, height: int) -> dict[str, int]:
    return {"x": left, "y": top, "w": width, "h": height}


def _graph(panel: Panel, place: dict[str, int], selector: tuple[str, str]) -> dict[str, Any]:
    return {
        "type": "timeseries",
        "title": panel.title,
        "gridPos": place,
        "datasource": DATASOURCE,
        "fieldConfig": {"defaults": {"unit": panel.unit, "min": 0}, "overrides": []},
        "targets": [
            {
                "refId": chr(ord("A") + number),
                "datasource": DATASOURCE,
                "expr": expression.replace(*selector),
                "legendFormat": legend.replace(", ", "}} {{"),
            }
            for number, (expression, legend) in enumerate(panel.queries)
        ],
    }


def _variables(labels: Mapping[str, str]) -> list[dict[str, Any]]:
    source: dict[str, Any] = {"name": "datasource", "type": "datasource", "query": "prometheus"}
    return [
        source,
        *(
            {
                "name": name,
                "type": "query",
                "datasource": DATASOURCE,
                "query": query,
                "refresh": 2,
                "sort": 1,
            }
            for name, query in labels.items()
        ),
    ]


def text() -> str:
    """Return the content of the file."""
    return json.dumps(dashboard(), indent=1) + "\n"


if __name__ == "__main__":
    PAGE.write_text(text(), encoding="utf-8")
