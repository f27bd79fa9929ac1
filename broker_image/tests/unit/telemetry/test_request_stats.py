from logfleet.telemetry.request_stats import RequestStats


def test_every_request_has_every_phase():
    stats = RequestStats()
    stats.at_once.observe(0.5)
    stats.at_once.observe(0.25)
    stats.waited(local_s=1.0, remote_s=2.0)
    stats.queue.observe(4.0)
    stats.throttle.observe(8.0)
    phases = stats.phases()
    assert {phase: each.count for phase, each in phases.items()} == dict.fromkeys(phases, 3)
    sums = {phase: each.total for phase, each in phases.items()}
    assert sums == {"queue": 4.0, "local": 1.75, "remote": 2.0, "throttle": 8.0, "total": 3.75}
    assert stats.requests == 3


def test_errors_are_counted_by_code():
    stats = RequestStats()
    stats.failed_with([3, 6, 3])
    stats.failed_with([6])
    assert stats.errors == {3: 2, 6: 2}
