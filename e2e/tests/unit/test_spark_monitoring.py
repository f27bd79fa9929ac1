"""Dashboard and alerts of the Spark job's chart name what its PodMonitor makes of what a job tells."""

import json
import re
from typing import Any

import pytest
import yaml
from logfleet_spark.jobs.metrics import COUNTERS, GAUGES, LAG

from charts.spark_dashboard import JOB, PAGE, ROWS, text
from e2e.harness.promql import OF_EVERY_TARGET, named

FILES = PAGE.parent
OF_THE_SCRAPE = {"namespace", "spark_job", "pod"}
RULES: list[dict[str, Any]] = yaml.safe_load((FILES / "alerts.yaml").read_text())
EXPRESSIONS = {
    **{rule["alert"]: rule["expr"] for rule in RULES},
    **{
        f"{panel.title}: {expression}": expression
        for row in ROWS.values()
        for panel in row
        for expression, _ in panel.queries
    },
}
SERIES = {
    **{f"logfleet_spark_{name}_total": set() for name in COUNTERS},
    **{f"logfleet_spark_{name}": set() for name in GAUGES},
    f"logfleet_spark_{LAG}": {"topic", "partition"},
}
TOLD = {
    **{f"metrics_spark_driver_logfleet_{n}_Count": f"logfleet_spark_{n}_total" for n in COUNTERS},
    **{f"metrics_spark_driver_logfleet_{n}_Value": f"logfleet_spark_{n}" for n in GAUGES},
}
TEMPLATE = (FILES.parent / "templates" / "monitoring.yaml").read_text()


def relabelled(name: str) -> dict[str, str] | None:
    """Labels of a series after the PodMonitor's rules, as Prometheus carries them out; None if it is dropped."""
    rules = TEMPLATE.partition("metricRelabelings:\n")[2].partition("{{- end }}")[0]
    labels = {"__name__": name, "type": "gauges"}
    for rule in yaml.safe_load(rules):
        if rule.get("action") == "labeldrop":
            labels = {k: v for k, v in labels.items() if not re.fullmatch(rule["regex"], k)}
            continue
        found = re.fullmatch(rule["regex"], labels["__name__"])
        if rule.get("action") == "keep":
            if found is None:
                return None
        elif found is not None:
            value = re.sub(r"\$\{?(\d)\}?", r"\\\1", rule["replacement"])
            labels[rule["targetLabel"]] = found.expand(value)
    return labels


def test_the_committed_dashboard_is_current() -> None:
    assert PAGE.read_text() == text(), "run: python -m charts.spark_dashboard"
    assert JOB in json.loads(text())["panels"][1]["targets"][0]["expr"]


@pytest.mark.parametrize("told, series", TOLD.items())
def test_what_a_job_tells_becomes_a_series(told: str, series: str) -> None:
    assert relabelled(told) == {"__name__": series}


def test_topic_and_partition_become_labels_and_numbers_are_kept_once() -> None:
    assert relabelled("metrics_spark_driver_logfleet_lag_my_topic_12_Value") == {
        "__name__": "logfleet_spark_lag",
        "topic": "my_topic",
        "partition": "12",
    }
    assert relabelled("metrics_spark_driver_logfleet_batch_ms_Number") is None
    assert relabelled("metrics_spark_driver_jvm_heap_used_Value") is None


@pytest.mark.parametrize("expression", EXPRESSIONS.values(), ids=EXPRESSIONS)
def test_expressions_name_series_and_labels_of_a_job(expression: str) -> None:
    said = named(expression.replace("{JOB}", '{namespace="n", spark_job="j"}'))
    assert said.series <= SERIES.keys() | OF_EVERY_TARGET
    for series in said.series:
        assert said.matched[series] == {"namespace", "spark_job"}
    own = set().union(*(SERIES.get(series, set()) for series in said.series))
    assert said.grouped <= own | OF_THE_SCRAPE


def test_every_alert_says_what_to_do() -> None:
    assert len({rule["alert"] for rule in RULES}) == len(RULES) == 4
    for rule in RULES:
        assert rule["labels"]["severity"] in {"info", "warning", "critical"}
        assert set(rule["annotations"]) == {"summary", "description"}
        assert rule["annotations"]["description"].endswith(".")
