"""Producers and a group on a replicated topic of a Cluster, outside of Kubernetes.

It checks for lost and duplicated records, and measures stalls.
"""

import time
from pathlib import Path
from typing import NamedTuple

from confluent_kafka.admin import AdminClient

from e2e.harness.kube.fleet import PARTITIONS
from e2e.harness.kube.kubernetes import wait_for
from e2e.harness.topics import are_whole
from e2e.load.clients import Producers, Reader, producer, read_all
from e2e.load.verdict import Fault, History, Verdict, gaps, judge, percentile

CLIENTS = {"confluent": 100, "probe": 50}
"""Client -> records a second. The probe gives up on a silent broker after a second; confluent-kafka
has its default timeouts.
"""
SERVED_WITHIN_S = 60.0
WHOLE_WITHIN_S = 180.0
CALM_S = 20.0
"""Seconds for which the times of sends are measured before a scenario, for comparison."""

OUT_OF_ORDER = "ERRSEQ"
"""Text in librdkafka's debug log for a response after which it takes a new producer epoch
(rd_kafka_handle_idempotent_Produce_error).
"""

HEADING = f"{'scenario':<36} {'records':>8} {'failed':>7} {'lost':>5} {'twice':>6}  longest stall"


class Row(NamedTuple):
    """The result of a scenario.

    stalls: per client, the longest time without an acknowledgement on a partition.

    p99s: seconds from a send to its response, by client, before and during the scenario; only if
    requested. out_of_order: librdkafka's log line for each response that invalidated its producer
    epoch.
    """

    scenario: str
    acknowledged: int
    failed: list[str]
    verdict: Verdict
    commits_back: list[str]
    stalls: dict[str, float]
    p99s: dict[str, tuple[float, float]]
    out_of_order: list[str]

    def __str__(self) -> str:
        stalls = ", ".join(f"{name} {seconds:.1f} s" for name, seconds in self.stalls.items())
        lost, twice = len(self.verdict.lost), len(self.verdict.duplicated)
        counts = f"{self.acknowledged:>8} {len(self.failed):>7} {lost:>5} {twice:>6}"
        p99s = "".join(
            f"; p99 {name} {1000 * before:.1f} -> {1000 * during:.1f} ms"
            for name, (before, during) in self.p99s.items()
        )
        epochs = f"; out of order {len(self.out_of_order)}" if self.out_of_order else ""
        return f"{self.scenario:<36} {counts}  {stalls}{p99s}{epochs}"


class Load:
    """Every send is idempotent, has acks=all and a number. topic: is written and read."""

    def __init__(self, bootstrap: str, topic: str, directory: Path) -> None:
        self._bootstrap = bootstrap
        self.topic = topic
        self._producers = Producers(
            {
                kind: producer(kind, bootstrap, topic, PARTITIONS, rate, directory)
                for kind, rate in CLIENTS.items()
            }
        )
        self._reader = Reader(bootstrap, topic)
        self._calm_from_s: float | None = None

    def start(self) -> None:
        """Start the producers; wait until each is served on every partition."""
        self._producers.launch()
        self._reader.start()
        wait_for("acknowledgements", lambda: self._served_since(0.0), SERVED_WITHIN_S)
        self._from_s = time.monotonic()

    def measure_calm(self) -> None:
        """Measure the times of sends before the scenario, which begins when this returns."""
        self._calm_from_s = time.monotonic()
        time.sleep(CALM_S)  # a fixed span of time is measured, so this is no wait for a condition
        self._from_s = time.monotonic()

    def wait_served(self) -> None:
        """Wait until every partition has acknowledged a new record to each producer."""
        now_s = time.monotonic()
        wait_for("acknowledgements", lambda: self._served_since(now_s), SERVED_WITHIN_S)

    def _served_since(self, at_s: float) -> bool:
        return all(
            len({each.partition for each in found.acknowledged if each.at_s > at_s}) == PARTITIONS
            for found in self._producers.histories().values()
        )

    def end(self, scenario: str) -> Row:
        """Stop the load, read all records, and check them."""
        fault = Fault(scenario, "", self._from_s, time.monotonic(), frozenset())
        self.stop()
        histories = self._producers.histories()
        return Row(
            scenario,
            sum(len(found.acknowledged) for found in histories.values()),
            [reason for found in histories.values() for reason in found.failed],
            judge(histories.values(), read_all(self._bootstrap, self.topic, PARTITIONS)),
            self._reader.went_back,
            {
                kind: max(gap.seconds for gap in gaps(found, [fault]))
                for kind, found in histories.items()
            },
            {} if self._calm_from_s is None else self._p99s(histories, self._calm_from_s),
            [
                line
                for line in self._producers.programs["confluent"].log.read_text().splitlines()
                if OUT_OF_ORDER in line
            ],
        )

    def _p99s(
        self, histories: dict[str, History], calm_from_s: float
    ) -> dict[str, tuple[float, float]]:
        def p99(found: History, from_s: float, to_s: float) -> float:
            took = [each.took_s for each in found.acknowledged if from_s <= each.at_s < to_s]
            return percentile([each for each in took if each is not None], 0.99)

        until_s = time.monotonic()
        return {
            kind: (p99(found, calm_from_s, self._from_s), p99(found, self._from_s, until_s))
            for kind, found in histories.items()
        }

    def stop(self) -> None:
        self._producers.stop()
        if self._reader.is_alive():
            self._reader.stop()


def wait_whole(bootstrap: str) -> None:
    """Wait until every partition has a leader and all its replicas are in sync."""
    admin = AdminClient({"bootstrap.servers": bootstrap, "socket.timeout.ms": 5000})

    wait_for("all replicas to be in sync", lambda: are_whole(admin, 20), WHOLE_WITHIN_S)
