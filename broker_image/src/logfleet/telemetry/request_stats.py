"""Requests of one API by the phases of Kafka's RequestMetrics.

Most requests are answered in the same step of the event loop that completed their frame. For those
only one duration is counted; that the other phases took no time is added when the statistics are
read.
"""

from collections.abc import Iterable

from logfleet.telemetry.histogram import Histogram


class RequestStats:
    """Plain numbers, read by a scrape.

    at_once: durations of requests answered in one step. local, remote, total: of the others, in
    seconds: on the loop, waiting, both. queue: waits of requests that came with many of the same
    connection, before work on them began. throttle: times for which clients were throttled. errors:
    error codes in responses, one for each partition or other row. failures: requests that a bug
    ended.
    """

    __slots__ = ("at_once", "errors", "failures", "local", "queue", "remote", "throttle", "total")

    def __init__(self) -> None:
        self.at_once = Histogram()
        self.local = Histogram()
        self.remote = Histogram()
        self.total = Histogram()
        self.queue = Histogram()
        self.throttle = Histogram()
        self.errors: dict[int, int] = {}
        self.failures = 0

    def waited(self, local_s: float, remote_s: float) -> None:
        """Count a request that was not answered in one step."""
        self.local.observe(local_s)
        self.remote.observe(remote_s)
        self.total.observe(local_s + remote_s)

    def failed_with(self, codes: Iterable[int]) -> None:
        """Count the errors of a response."""
        for code in codes:
            self.errors[code] = self.errors.get(code, 0) + 1

    @property
    def requests(self) -> int:
        """Requests that were answered, or need no response."""
        return self.at_once.count + self.total.count

    def phases(self) -> dict[str, Histogram]:
        """All requests by phase: queue, local, remote, throttle; total is local and remote."""
        at_once, requests = self.at_once.count, self.requests
        return {
            "queue": self.queue.with_zeros(max(0, requests - self.queue.count)),
            "local": self.at_once.plus(self.local),
            "remote": self.remote.with_zeros(at_once),
            "throttle": self.throttle.with_zeros(max(0, requests - self.throttle.count)),
            "total": self.at_once.plus(self.total),
        }
