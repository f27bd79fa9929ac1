"""docs/reference/metrics.md, made from the table of metrics."""

from typing import Final

from logfleet.telemetry.metric import Metric
from logfleet.telemetry.table import sections

_HEAD: Final = """\
# Metrics

Made by `make pages` from `logfleet.telemetry.table`; do not edit. A broker serves them in
Prometheus' text format at `/metrics` of its admin port (`logfleet.admin.listener`; on Kubernetes port 9644), beside `/healthz` and
`/readyz`. The last column names the MBeans of an Apache Kafka broker that mean the same. Times are in seconds, sizes in bytes;
what Kafka exports as a rate is a total here: `rate(NAME[5m])`. A histogram has `NAME_bucket`, `NAME_sum` and `NAME_count`:
`histogram_quantile(0.99, sum by (api, le) (rate(logfleet_request_seconds_bucket[5m])))`.

An API is listed once it was requested. Topics, partitions and offsets of groups are listed one by one, up to
`logfleet.metrics.series.max` of each kind. Beyond that only the totals of the kind are listed, and
`logfleet_metrics_left_out` has the number that is left out.

`/healthz` answers 503 when the broker cannot go on, and not at all while its event loop stands still: a probe needs a timeout.
`/readyz` answers 503 with the reason until clients may be sent there: logs are loaded, ports are open, the broker is registered and
the controller lets it lead.
"""


def metric_docs() -> str:
    """The whole page, in Markdown."""
    lines = [_HEAD]
    for section in sections():
        lines += [f"## {section.title}", "", "| metric | type | labels | meaning | Kafka |"]
        lines += ["|---|---|---|---|---|", *map(_row, section.metrics), ""]
    return "\n".join(lines)


def _row(metric: Metric) -> str:
    labels = ", ".join(f"`{label}`" for label in metric.labels)
    kafka = f"`{metric.kafka}`" if metric.kafka else ""
    return f"| `{metric.name}` | {metric.kind} | {labels} | {metric.text} | {kafka} |"
