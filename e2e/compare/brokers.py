"""Kafka and ours, each started once, alike in everything that answers depend on."""

from pathlib import Path
from types import TracebackType
from typing import Final, Self

from e2e.compare.beside_kafka import BesideKafka
from e2e.compare.side import Side

CONFIG: Final = {
    "group.initial.rebalance.delay.ms": "0",
    "offsets.topic.num.partitions": "1",
    "log.retention.check.interval.ms": "3600000",
}
"""What would only make the run longer, or answers depend on the time."""


class Pair:
    """Both brokers until the block ends. directory: for all that is written."""

    kafka: Side
    ours: Side

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.brokers = BesideKafka(directory, CONFIG)

    def __enter__(self) -> Self:
        self.brokers.__enter__()
        try:
            self.kafka = self._side("kafka", self.brokers.kafka.port)
            self.ours = self._side("ours", self.brokers.ours.port)
        except BaseException:
            self.brokers.__exit__(None, None, None)
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for side in (self.kafka, self.ours):
            side.close()
        self.brokers.__exit__(kind, error, trace)

    def stop(self) -> None:
        """Both stopped in order, their files complete."""
        for side in (self.kafka, self.ours):
            side.close()
        self.brokers.kafka.stop()
        self.brokers.ours.terminate()

    def start_kafka(self) -> None:
        self.brokers.kafka.start()
        self.kafka = self._side("kafka", self.brokers.kafka.port)

    def _side(self, product: str, port: int) -> Side:
        return Side(product, port, str(self.brokers.log_dirs[product][0]))
