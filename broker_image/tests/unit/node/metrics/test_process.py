from logfleet.node.loop_lag import LoopLag
from logfleet.node.metrics.process import process

from broker_image.tests.unit.node.metrics.told import told


def test_the_process_is_described() -> None:
    lag = LoopLag()
    lag.histogram.observe(0.003)
    lag.worst_s = 0.003
    said = told(process(lag))
    assert (said("process_resident_memory_bytes") or 0) > 1 << 20
    assert said("logfleet_event_loop_lag_max_seconds") == 0.003
    assert said("logfleet_event_loop_lag_seconds_bucket", le="0.005") == 1
    assert said("logfleet_event_loop_lag_seconds_bucket", le="0.0025") == 0
