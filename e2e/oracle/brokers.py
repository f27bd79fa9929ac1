"""Kafka and ours, each started once, alike in everything that answers depend on."""

from pathlib import Path
from types import TracebackType
from typing import Final, Self

from e2e.harness.kafka import KafkaBroker
from e2e.harness.processes import Broker
from e2e.oracle.side import Side

CONFIG: Final = {
    "group.initial.rebalance.delay.ms": "0",
    "offsets.topic.num.partitions": "1",
    "log.retention.check.interval.ms": "3600000",
}
"""What would only make the run longer, or answers depend on the time."""


class Pair:
    """Both brokers until the block ends."""

    kafka: Side
    ours: Side

    def __init__(self, directory: Path) -> None:
        self._kafka = KafkaBroker(directory / "kafka", **CONFIG)
        self._ours = Broker(directory / "ours", CONFIG)

    def __enter__(self) -> Self:
        try:
            self._kafka.__enter__()
            self._ours.start()
            self.kafka = Side("kafka", self._kafka.port, self._kafka.config["log.dirs"])
            self.ours = Side("ours", self._ours.port, str(self._ours.data))
        except BaseException:
            self._end()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._end()

    def stop(self) -> None:
        """Both stopped in order, their files complete."""
        for side in (self.kafka, self.ours):
            side.close()
        self._kafka.stop()
        self._ours.terminate()

    def start_kafka(self) -> None:
        self._kafka.start()
        self.kafka = Side("kafka", self._kafka.port, self._kafka.config["log.dirs"])

    def _end(self) -> None:
        self._kafka.stop()
        self._ours.close()
