"""The table, and the page that is made from it."""

import re

import pytest
from logfleet.telemetry.docs import metric_docs
from logfleet.telemetry.metric import MetricType, counter, gauge
from logfleet.telemetry.table import METRICS, sections


def test_every_metric_stands_in_one_section():
    told = [metric.name for section in sections() for metric in section.metrics]
    assert told == list(METRICS)
    assert len(sections()) == 9
    page = metric_docs()
    assert all(f"\n| `{name}` |" in page for name in METRICS)


@pytest.mark.parametrize("metric", METRICS.values(), ids=lambda metric: metric.name)
def test_names_follow_prometheus(metric):
    assert re.fullmatch(r"(logfleet|process)_[a-z0-9_]+", metric.name)
    assert metric.name.endswith("_total") == (metric.kind is MetricType.COUNTER)
    assert not metric.text.endswith(".")
    assert "|" not in metric.text + metric.kafka
    if metric.kind is MetricType.HISTOGRAM:
        assert metric.name.endswith("_seconds")


def test_a_name_that_does_not_fit_its_kind_is_refused():
    with pytest.raises(AssertionError):
        counter("things", "")
    with pytest.raises(AssertionError):
        gauge("things_total", "")
