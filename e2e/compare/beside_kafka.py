"""Apache Kafka and a broker of ours, started alike, to send both the same requests."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Self

from e2e.compare.talks.talker import Talker
from e2e.harness.kafka import KafkaBroker
from e2e.harness.processes import Broker


class BesideKafka:
    """Both brokers, until the block ends.

    directory: for all their files. log_dirs: number of log directories of each.
    """

    def __init__(self, directory: Path, config: Mapping[str, str], *, log_dirs: int = 1) -> None:
        self.log_dirs: dict[str, list[Path]] = {
            product: [directory / product / f"logs-{number}" for number in range(log_dirs)]
            for product in ("kafka", "ours")
        }
        dirs = {product: ",".join(map(str, paths)) for product, paths in self.log_dirs.items()}
        self.kafka = KafkaBroker(directory / "kafka", **{**config, "log.dirs": dirs["kafka"]})
        self.ours = Broker(directory / "ours", {**config, "log.dirs": dirs["ours"]})

    def __enter__(self) -> Self:
        try:
            self.ours.launch()  # our broker is ready long before Kafka
            self.kafka.__enter__()
            self.ours.wait_ready()
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

    @contextmanager
    def talkers(self) -> Iterator[tuple[Talker, Talker]]:
        """Return a talker to Kafka and one to our broker."""
        made = [
            Talker(broker.port, self.log_dirs[product][0])
            for product, broker in (("kafka", self.kafka), ("ours", self.ours))
        ]
        try:
            yield made[0], made[1]
        finally:
            for talker in made:
                talker.close()

    def _end(self) -> None:
        try:
            self.kafka.stop()
        finally:
            self.kafka.close()
            self.ours.close()
