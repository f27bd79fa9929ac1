from e2e.bench.fleet.lives import most_late
from e2e.bench.fleet.rows import LAG, LAG_PHASES
from e2e.bench.lag.probe import Figures


def phases(*latest: float) -> list[Figures]:
    """Of one broker, how late it was at most in each."""
    return [
        Figures("phase", 1, 1000, {}, {"p99": most / 10, "max": most}, {}, 0, {}) for most in latest
    ]


def test_of_a_fleet_the_latest_broker_of_each_phase_counts():
    found = most_late([phases(10, 20, 30), phases(5, 50, 30)])
    assert list(found) == [metric.key for metric in LAG.metrics]
    assert list(found.values()) == [1, 10, 5, 50, 3, 30]
    assert len(LAG_PHASES) == 3
