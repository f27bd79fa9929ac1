import math

import pytest
from hypothesis import given
from hypothesis import strategies as st
from logfleet.telemetry.exposition import Family, labelled, labels_text, number, pieces, single
from logfleet.telemetry.histogram import Histogram
from logfleet.telemetry.metric import counter, gauge, histogram
from prometheus_client.parser import text_string_to_metric_families

GAUGE = gauge("level", 'how "high"\nit is \\', labels="who")


def parsed(*families):
    text = "".join(pieces(families))
    return {family.name: family for family in text_string_to_metric_families(text)}


@given(st.dictionaries(st.text(), st.floats(allow_nan=False), max_size=5))
def test_prometheus_reads_what_was_written(values):
    read = parsed(labelled(GAUGE, [((who,), value) for who, value in values.items()]))["level"]
    assert {sample.labels["who"]: sample.value for sample in read.samples} == values
    assert (read.type, read.documentation) == ("gauge", GAUGE.text)


def test_a_histogram_is_told_in_growing_buckets():
    values = Histogram((0.5, 2.0))
    for value in (0.25, 1, 1, 4):
        values.observe(value)
    metric = histogram("wait_seconds", "how long", labels="api")
    read = parsed(Family(metric, [(labels_text(("api",), ["Fetch"]), values)]))["wait_seconds"]
    assert read.type == "histogram"
    assert [(sample.name, sample.labels.get("le"), sample.value) for sample in read.samples] == [
        ("wait_seconds_bucket", "0.5", 1),
        ("wait_seconds_bucket", "2.0", 3),
        ("wait_seconds_bucket", "+Inf", 4),
        ("wait_seconds_sum", None, 6.25),
        ("wait_seconds_count", None, 4),
    ]
    assert {sample.labels["api"] for sample in read.samples} == {"Fetch"}
    assert "wait_seconds_count 4\n" in "".join(pieces([single(metric, values)]))


def test_rows_that_are_only_prepared_are_no_text():
    rows = [None, ("", 1), None]
    assert list(pieces([Family(counter("x_total", "x"), rows)]))[1:] == ["", "x_total 1\n", ""]


@pytest.mark.parametrize(
    "value, text",
    [(True, "1"), (7, "7"), (0.5, "0.5"), (math.inf, "+Inf"), (-math.inf, "-Inf")],
)
def test_numbers_are_written_as_the_format_wants_them(value, text):
    assert number(value) == text
    assert number(math.nan) == "NaN"
