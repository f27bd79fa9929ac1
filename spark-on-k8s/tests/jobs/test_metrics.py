"""What a job shows of a progress of Spark."""

import json
from types import SimpleNamespace

import pytest
from logfleet_spark.jobs.metrics import Metrics, ProgressListener, lags

READ = '{"a.b": {"0": 5, "1": 7}, "a.b@sqdAgzRuT9aIhhZNh-1CIA": {}}'
NEWEST = '{"a.b": {"0": 9, "1": 7, "2": 4}, "a.b@sqdAgzRuT9aIhhZNh-1CIA": {}}'
PROGRESS: dict[str, object] = {
    "name": "q",
    "sources": [{"numInputRows": 12, "endOffset": READ, "latestOffset": NEWEST}],
    "stateOperators": [{"numRowsDroppedByWatermark": 2}, {"numRowsDroppedByWatermark": 1}],
    "durationMs": {"triggerExecution": 250},
    "observedMetrics": {"values": {"dead_letters": 4}},
}


def lag(metrics: Metrics, topic: str, partition: int) -> float | None:
    labels = {"topic": topic, "partition": str(partition)}
    return metrics.registry.get_sample_value("logfleet_spark_lag", labels)


def heard(listener: ProgressListener, progress: dict[str, object]) -> None:
    text = json.dumps(progress)
    listener.onQueryProgress(SimpleNamespace(progress=SimpleNamespace(json=text)))  # type: ignore[arg-type]


@pytest.mark.parametrize("read, newest", [(READ, NEWEST), (json.loads(READ), json.loads(NEWEST))])
def test_the_lag_of_a_partition_is_what_is_not_read(read: object, newest: object) -> None:
    """An entry with a topic's id has no partitions and no lag; a partition that is new is not read at all."""
    source = {"endOffset": read, "latestOffset": newest}
    assert lags(source) == {("a.b", 0): 4, ("a.b", 1): 0, ("a.b", 2): 4}


@pytest.mark.parametrize("offsets", [None, "0-5", '"x"', "[1]", {"a": 1}])
def test_a_source_without_offsets_by_partition_has_no_lag(offsets: object) -> None:
    assert lags({"endOffset": offsets, "latestOffset": offsets}) == {}


def test_a_progress_is_counted_and_then_handed_on() -> None:
    metrics = Metrics()
    seen: list[tuple[str, int]] = []
    listener = ProgressListener(
        metrics, "q", lambda progress: seen.append((progress["name"], metrics.value("rows")))
    )
    for name in ("q", "another", "q"):
        heard(listener, PROGRESS | {"name": name})
    assert seen == [("q", 12), ("q", 24)]
    names = ("batches", "rows", "late_rows", "dead_letters", "batch_ms")
    assert [metrics.value(name) for name in names] == [2, 24, 6, 8, 250]
    assert metrics.value("last_progress_seconds") > 1_700_000_000


def test_partitions_that_are_gone_have_no_lag_and_silence_keeps_it() -> None:
    metrics = Metrics()
    listener = ProgressListener(metrics, "q")
    heard(listener, PROGRESS)
    assert (lag(metrics, "a.b", 0), lag(metrics, "a.b", 2)) == (4, 4)
    silent = {"numInputRows": 0, "endOffset": None, "latestOffset": None}
    heard(listener, PROGRESS | {"sources": [silent]})
    assert lag(metrics, "a.b", 0) == 4
    one = {"numInputRows": 0, "endOffset": '{"a.b": {"0": 9}}', "latestOffset": '{"a.b": {"0": 9}}'}
    heard(listener, PROGRESS | {"sources": [one]})
    assert (lag(metrics, "a.b", 0), lag(metrics, "a.b", 2)) == (0, None)
