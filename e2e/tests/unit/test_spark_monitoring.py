"""Dashboard and alerts of the Spark job's chart name the series of a job."""

import json
from typing import Any

import pytest
import yaml
from logfleet_spark.jobs.metrics import Metrics

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


def series() -> dict[str, set[str]]:
    """Series of a job that lags -> their labels."""
    metrics = Metrics()
    metrics.set_lags({("flights", 0): 1})
    samples = [each for metric in metrics.registry.collect() for each in metric.samples]
    return {each.name: set(each.labels) for each in samples}


SERIES = series()


def test_the_committed_dashboard_is_current() -> None:
    assert PAGE.read_text() == text(), "run: python -m charts.spark_dashboard"
    assert JOB in json.loads(text())["panels"][1]["targets"][0]["expr"]


@pytest.mark.parametrize("expression", EXPRESSIONS.values(), ids=EXPRESSIONS)
def test_expressions_name_series_and_labels_of_a_job(expression: str) -> None:
    said = named(expression.replace("{JOB}", '{namespace="n", spark_job="j"}'))
    assert said.series <= SERIES.keys() | OF_EVERY_TARGET
    for name in said.series:
        assert said.matched[name] == {"namespace", "spark_job"}
    own = set().union(*(SERIES.get(name, set()) for name in said.series))
    assert said.grouped <= own | OF_THE_SCRAPE


def test_every_alert_says_what_to_do() -> None:
    assert len({rule["alert"] for rule in RULES}) == len(RULES) == 4
    for rule in RULES:
        assert rule["labels"]["severity"] in {"info", "warning", "critical"}
        assert set(rule["annotations"]) == {"summary", "description"}
        assert rule["annotations"]["description"].endswith(".")
