"""A topic that is written all the time, and the Spark job that streams it."""

from pathlib import Path

from e2e.harness.kube.fleet import PARTITIONS, Fleet
from e2e.harness.kube.kubernetes import wait_for
from e2e.harness.kube.spark import SparkJobs
from e2e.load.clients import producer
from e2e.load.verdict import History, read_history

RATE = 20
"""Records a second, idempotent and acks=all."""
READING_WITHIN_S = 240


class Streamed:
    """Runs `window_counts` with a trigger of some seconds, by the records' own timestamps.

    topic: its own; the job has the same name.
    """

    def __init__(self, fleet: Fleet, jobs: SparkJobs, topic: str, directory: Path) -> None:
        self._topic = topic
        self._counts = f"/data/{topic}/counts"
        self._fleet = fleet
        self._jobs = jobs
        self._producer = producer(
            "probe", fleet.outside, topic, PARTITIONS, RATE, directory / "streamed"
        )
        self._driver = ""
        self._uid = ""

    def _arguments(self, trigger: str) -> list[str]:
        return [
            *("--bootstrap-servers", self._fleet.inside, "--topic", self._topic),
            *("--event-time", "timestamp", "--window", "1 minute", "--watermark", "1 day"),
            *("--sink", "delta", "--output", self._counts),
            *("--checkpoint", f"/data/{self._topic}/checkpoint"),
            *("--trigger", trigger),
        ]

    def start(self) -> None:
        """Start both; wait until an executor of the job works."""
        self._producer.launch()
        self._driver = self._jobs.start(
            self._topic, "window_counts", self._arguments("10 seconds"), executors=1
        )
        wait_for("the streaming job's executor", self._has_executor, READING_WITHIN_S)
        self._uid = self._pod()["metadata"]["uid"]

    def _has_executor(self) -> bool:
        return bool(self._jobs.executors_running(self._driver))

    def _pod(self) -> dict[str, dict[str, str]]:
        return self._jobs.pod(self._driver)

    def is_running(self) -> bool:
        """Return whether the driver that was started still runs."""
        pod = self._pod()
        return pod["status"]["phase"] == "Running" and pod["metadata"]["uid"] == self._uid

    def end(self) -> tuple[History, int]:
        """Stop both.

        Return the acknowledged records, and the number that the job counted in the end.
        """
        self._producer.terminate()
        self._jobs.delete(self._driver)
        self._jobs.run(
            f"{self._topic}-rest", "window_counts", self._arguments("available-now"), executors=1
        )
        counts = self._jobs.rows(self._counts, ["count"])
        return read_history("probe", self._producer.log.read_text()), int(counts["count"].sum())

    def stop(self) -> None:
        if self._producer.running:
            self._producer.terminate()
