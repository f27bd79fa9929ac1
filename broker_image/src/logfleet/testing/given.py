"""A Kafka that runs already, on which the same tests run (`--kafka-bootstrap`)."""

from contextlib import suppress
from typing import Any, NoReturn

import pytest

from logfleet.testing.brokers import Broker
from logfleet.testing.errors import OrderFailed
from logfleet.testing.fleets import Fleet
from logfleet.testing.kafka import Kafka


class GivenKafka(Kafka):
    """A cluster of somebody else's: topics that a test creates here are deleted at its end.

    A test that uses what only a broker of our own can do (kill, pause, ...) is skipped there.
    """

    def __init__(self, bootstrap: str) -> None:
        super().__init__(bootstrap)
        self._created: list[str] = []

    def __getattr__(self, name: str) -> NoReturn:
        if name.startswith("_") or not (hasattr(Broker, name) or hasattr(Fleet, name)):
            raise AttributeError(name)
        pytest.skip(f"{name} needs a broker of its own, not --kafka-bootstrap {self.bootstrap}")

    def _disturb(self, do: str, **_: Any) -> NoReturn:
        pytest.skip(f"{do} needs a broker of its own, not --kafka-bootstrap {self.bootstrap}")

    def create_topic(self, topic: str, partitions: int = 1, **options: Any) -> None:
        super().create_topic(topic, partitions, **options)
        self._created.append(topic)

    def close(self) -> None:
        """Delete the topics that were created."""
        for topic in self._created:
            with suppress(OrderFailed):  # the test may have deleted it
                self.delete_topic(topic)
