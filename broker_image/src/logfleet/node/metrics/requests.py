"""Metrics of requests, by API."""

from collections.abc import Callable, Iterator, Mapping

from logfleet.telemetry import table
from logfleet.telemetry.exposition import Family, labelled
from logfleet.telemetry.request_stats import RequestStats
from logfleet.wire.errors import ErrorCode


def requests(stats: Callable[[], Mapping[str, RequestStats]]) -> Iterator[Family]:
    """Metrics of every API that had requests."""
    used = [(api, each) for api, each in stats().items() if each.requests or each.failures]
    yield labelled(table.REQUESTS, [((api,), each.requests) for api, each in used])
    yield labelled(
        table.REQUEST_ERRORS,
        [
            ((api, ErrorCode(code).name), count)
            for api, each in used
            for code, count in each.errors.items()
        ],
    )
    yield labelled(table.REQUEST_FAILURES, [((api,), each.failures) for api, each in used])
    phases = [((api,), each.phases()) for api, each in used]
    for metric, phase in (
        (table.REQUEST_SECONDS, "total"),
        (table.REQUEST_QUEUE_SECONDS, "queue"),
        (table.REQUEST_LOCAL_SECONDS, "local"),
        (table.REQUEST_REMOTE_SECONDS, "remote"),
        (table.REQUEST_THROTTLE_SECONDS, "throttle"),
    ):
        yield labelled(metric, [(labels, of[phase]) for labels, of in phases])
