import os
from pathlib import Path

import pytest
from logfleet import __version__
from logfleet.node.metrics.loop_lag import LoopLag
from logfleet.node.metrics.process import process
from prometheus_client import CollectorRegistry, ProcessCollector

from broker_image.tests.unit.node.metrics.metric_values import metric_values

FILES = Path("/proc/self/fd")


def test_the_process_is_described() -> None:
    lag = LoopLag()
    lag.histogram.observe(0.003)
    lag.worst_s = 0.003
    values = metric_values(process(lag))
    assert (values("process_resident_memory_bytes") or 0) > 1 << 20
    assert values("logfleet_event_loop_lag_max_seconds") == 0.003
    assert values("logfleet_build_info", version=__version__) == 1
    assert values("logfleet_event_loop_lag_seconds_bucket", le="0.005") == 1
    assert values("logfleet_event_loop_lag_seconds_bucket", le="0.0025") == 0


def test_it_is_reported_as_prometheus_client_does() -> None:
    registry = CollectorRegistry(auto_describe=False)
    ProcessCollector(registry=registry)
    read = registry.get_sample_value
    before = read("process_cpu_seconds_total")
    values = metric_values(process(LoopLag()))
    for name in ("process_start_time_seconds", "process_max_fds", "process_virtual_memory_bytes"):
        assert values(name) == pytest.approx(read(name), rel=0.01)
    assert values("process_resident_memory_bytes") == pytest.approx(
        read("process_resident_memory_bytes"), rel=0.1
    )
    assert before is not None
    assert (
        before - 0.001 <= (values("process_cpu_seconds_total") or 0) <= before + 60
    )  # added otherwise


def test_open_files_are_counted() -> None:
    files = [os.open("/dev/null", os.O_RDONLY) for _ in range(7)]
    while True:
        listed = {each.name for each in FILES.iterdir()}
        values = metric_values(process(LoopLag()))("process_open_fds")
        if {
            each.name for each in FILES.iterdir()
        } == listed:  # else another test's file was closed meanwhile
            break
    for file in files:
        os.close(file)
    assert {str(file) for file in files} <= listed
    assert values == len(listed) - 1, "but for the one that lists them"
