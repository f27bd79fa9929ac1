"""Dashboard and alerts name what the table of metrics has; that a broker exposes the table is tested where brokers are."""

import json
from typing import Any

import pytest
import yaml
from logfleet.telemetry.metric import MetricType
from logfleet.telemetry.table import METRICS

from charts.dashboard import PAGE, ROWS, text
from e2e.harness.promql import OF_EVERY_TARGET, named

FILES = PAGE.parent
OF_THE_SCRAPE = {"namespace", "logfleet_cluster", "pod"}
RULES: list[dict[str, Any]] = [
    rule for path in FILES.glob("alerts-*.yaml") for rule in yaml.safe_load(path.read_text())
]
EXPRESSIONS = {
    **{rule["alert"]: rule["expr"] for rule in RULES},
    **{
        f"{panel.title}: {expression}": expression
        for row in ROWS.values()
        for panel in row
        for expression, _ in panel.queries
    },
}


def test_the_committed_dashboard_is_current() -> None:
    assert PAGE.read_text() == text(), "run: python charts/dashboard.py"


def test_panels_have_places_of_their_own() -> None:
    panels = json.loads(text())["panels"]
    cells = [
        (x, y)
        for panel in panels
        for place in [panel["gridPos"]]
        for x in range(place["x"], place["x"] + place["w"])
        for y in range(place["y"], place["y"] + place["h"])
    ]
    assert len(cells) == len(set(cells))
    assert max(x for x, _ in cells) < 24
    assert len({panel["id"] for panel in panels}) == len(panels)


@pytest.mark.parametrize("expression", EXPRESSIONS.values(), ids=EXPRESSIONS)
def test_expressions_name_metrics_and_labels_of_the_table(expression: str) -> None:
    said = named(expression.replace("BROKER", 'namespace="n", logfleet_cluster="c"'))
    labels = set(OF_THE_SCRAPE)
    for series in said.series & OF_EVERY_TARGET:
        assert {"namespace", "logfleet_cluster"} <= said.matched[series] <= OF_THE_SCRAPE
    for series in said.series - OF_EVERY_TARGET:
        metric = METRICS.get(series) or METRICS[series.removesuffix("_bucket")]
        assert (metric.kind is MetricType.HISTOGRAM) == (metric.name != series), series
        own = {*metric.labels, *OF_THE_SCRAPE}
        assert {"namespace", "logfleet_cluster"} <= said.matched[series] <= own
        labels |= own | ({"le"} if metric.kind is MetricType.HISTOGRAM else set())
    assert said.grouped <= labels


def test_every_alert_says_what_to_do() -> None:
    assert len({rule["alert"] for rule in RULES}) == len(RULES)
    for rule in RULES:
        assert rule["labels"]["severity"] in {"info", "warning", "critical"}
        assert set(rule["annotations"]) == {"summary", "description"}
        assert rule["annotations"]["description"].endswith(".")


def test_lag_counts_partitions_that_another_broker_leads_than_the_coordinator() -> None:
    """Coordinators tell the lag of those only that they lead too; what was committed they tell of all."""
    groups = {panel.title: panel.queries[0][0] for panel in ROWS["Groups"]}
    assert (
        EXPRESSIONS["LogfleetGroupLagGrows"].count(groups["Lag"]) == 2
    )  # how much it is, and that it grows
    for expression in (groups["Lag"], groups["Worst partition of each group"]):
        assert (
            "max by (topic, partition) (logfleet_partition_high_watermark{BROKER})"
            " - on (topic, partition) group_right ()"
            " max by (group, topic, partition) (logfleet_group_committed_offset{BROKER})"
        ) in expression


def test_a_broker_that_cannot_be_asked_is_not_ready_either() -> None:
    """One that ends before it listens has no series but `up`."""
    expression = EXPRESSIONS["LogfleetBrokerNotReady"]
    assert expression == "logfleet_ready{BROKER} == 0 or up{BROKER} == 0"
