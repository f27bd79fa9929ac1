"""Kafka and ours, each started once, alike in everything that answers depend on."""

from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from e2e.compare.side import Side
from e2e.harness.kafka import KafkaBroker
from e2e.harness.processes import Broker

CONFIG: Final = {
    "group.initial.rebalance.delay.ms": "0",
    "offsets.topic.num.partitions": "1",
    "transaction.state.log.num.partitions": "1",
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "100",
    "log.retention.check.interval.ms": "3600000",
}
"""What would only make the run longer, or answers depend on the time."""


class Pair:
    """Both brokers until the block ends. directory: for all that is written. log_dirs: of each, first how many, then which."""

    kafka: Side
    ours: Side

    def __init__(
        self, directory: Path, config: Mapping[str, str] = CONFIG, *, log_dirs: int = 1
    ) -> None:
        self.directory = directory
        self.log_dirs: dict[str, list[Path]] = {
            product: [directory / product / f"logs-{number}" for number in range(log_dirs)]
            for product in ("kafka", "ours")
        }
        dirs = {product: ",".join(map(str, paths)) for product, paths in self.log_dirs.items()}
        self._kafka = KafkaBroker(directory / "kafka", **{**config, "log.dirs": dirs["kafka"]})
        self._ours = Broker(directory / "ours", {**config, "log.dirs": dirs["ours"]})

    def __enter__(self) -> Self:
        try:
            self._ours.launch()  # our broker is ready long before Kafka
            self._kafka.__enter__()
            self._ours.wait_ready()
            self.kafka = self._side("kafka", self._kafka.port)
            self.ours = self._side("ours", self._ours.port)
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
        for side in self.sides:
            side.close()
        self._end()

    @property
    def sides(self) -> tuple[Side, Side]:
        return self.kafka, self.ours

    def stop(self) -> None:
        """Both stopped in order, their files complete."""
        for side in self.sides:
            side.close()
        self._kafka.stop()
        self._ours.terminate()

    def start_kafka(self) -> None:
        self._kafka.start()
        self.kafka = self._side("kafka", self._kafka.port)

    def _side(self, product: str, port: int) -> Side:
        return Side(product, port, str(self.log_dirs[product][0]))

    def _end(self) -> None:
        try:
            self._kafka.stop()
        finally:
            self._kafka.close()
            self._ours.close()
