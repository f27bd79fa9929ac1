"""The process: processor time, memory, descriptors; and how long its loop makes others wait."""

from collections.abc import Iterator

from prometheus_client import ProcessCollector

from logfleet.node.loop_lag import LoopLag
from logfleet.telemetry import table
from logfleet.telemetry.exposition import Family, single

_collector = ProcessCollector(registry=None)


def process(lag: LoopLag) -> Iterator[Family]:
    """Of this process."""
    yield single(table.LOOP_LAG, lag.histogram)
    yield single(table.LOOP_LAG_MAX, lag.worst_s)
    for family in _collector.collect():
        for sample in family.samples:
            yield single(table.METRICS[sample.name], sample.value)
