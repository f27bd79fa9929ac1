from logfleet.node.metrics.requests import requests
from logfleet.telemetry.request_stats import RequestStats

from broker_image.tests.unit.node.metrics.metric_values import metric_values


def test_requests_are_reported_by_api_once_there_are_any():
    stats = RequestStats()
    stats.at_once.observe(0.25)
    stats.waited(local_s=0.5, remote_s=2)
    stats.failed_with([3, 3, 12345])
    values = metric_values(requests(lambda: {"Produce": stats, "Fetch": RequestStats()}))
    assert values("logfleet_requests_total", api="Produce") == 2
    assert values("logfleet_requests_total", api="Fetch") is None
    assert values("logfleet_request_failures_total", api="Produce") == 0
    errors = "logfleet_request_errors_total"
    assert values(errors, api="Produce", error="UNKNOWN_TOPIC_OR_PARTITION") == 2
    assert values(errors, api="Produce", error="UNKNOWN_SERVER_ERROR") == 1
    sums = {
        phase: values(f"logfleet_request_{phase}seconds_sum", api="Produce")
        for phase in ("", "local_", "remote_", "queue_", "throttle_")
    }
    assert sums == {"": 2.75, "local_": 0.75, "remote_": 2, "queue_": 0, "throttle_": 0}
    bucket = "logfleet_request_remote_seconds_bucket"
    assert values(bucket, api="Produce", le="0.0001") == 1
    assert values(bucket, api="Produce", le="2.5") == 2
