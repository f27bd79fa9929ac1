"""A fleet of real brokers on a real etcd, as a test sees it."""

import shutil
import tempfile
import uuid
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Self

from logfleet.testing.brokers import Broker
from logfleet.testing.etcd import shared_etcd
from logfleet.testing.faults.disturbing import Disturbed
from logfleet.testing.kafka import TIMEOUT_S
from logfleet.testing.prepared import Prepared, shared
from logfleet.testing.settings import racks, replication


class Fleet(Disturbed):
    """Brokers 1 to `size`; a context manager inside which all of them serve.

    zones: racks, given to the brokers in turn. config, topics, directory, keep: as of `Broker`.
    Topics have three replicas where there are three brokers, and min.insync.replicas 2.
    """

    def __init__(
        self,
        size: int = 3,
        *,
        zones: Sequence[str] = (),
        config: Mapping[str, str] | None = None,
        topics: Mapping[str, int] | None = None,
        directory: Path | None = None,
        prepared: Prepared | None = None,
    ) -> None:
        super().__init__("", prepared or shared())
        self.directory = directory or Path(tempfile.mkdtemp(prefix="logfleet-"))
        self._topics = dict(topics or {})
        self.keep = directory is not None
        self._config = dict(config or {})
        self.brokers = [
            self._broker(index + 1, size, rack) for index, rack in enumerate(racks(zones, size))
        ]

    def _broker(self, broker_id: int, size: int, rack: str | None) -> Broker:
        config = {**replication(size), **({"broker.rack": rack} if rack else {}), **self._config}
        directory = self.directory / f"broker-{broker_id}"
        return Broker(config, directory=directory, broker_id=broker_id, prepared=self._prepared)

    def __enter__(self) -> Self:
        try:
            self._start()
            self.create_topics(self._topics)
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __iter__(self) -> Iterator[Broker]:
        return iter(self.brokers)

    def __getitem__(self, broker_id: int) -> Broker:
        """The broker with that id, from 1. Raises KeyError."""
        for broker in self.brokers:
            if broker.id == broker_id:
                return broker
        raise KeyError(broker_id)

    @property
    def bootstrap(self) -> str:
        """All brokers' addresses: bootstrap.servers."""
        return ",".join(broker.bootstrap for broker in self.brokers)

    @property
    def _answering(self) -> str:
        return ",".join(broker.bootstrap for broker in self.brokers if broker.answers)

    @property
    def config(self) -> dict[str, str]:
        """The configuration of broker 1; the others differ in what is a broker's own."""
        return self.brokers[0].config

    def leader(self, topic: str, partition: int = 0, *, timeout_s: float = TIMEOUT_S) -> Broker:
        """The broker that leads the partition, once one does that runs and is not paused."""
        others = [broker.id for broker in self.brokers if not broker.answers]
        return self[self.leader_id(topic, partition, but=others, timeout_s=timeout_s)]

    def events(self, **query: Any) -> list[dict[str, Any]]:
        """What the brokers that answer decided, by time (see `Broker.events`)."""
        answering = [broker for broker in self.brokers if broker.answers]
        found = [each for broker in answering for each in broker.events(**query)]
        return sorted(found, key=lambda each: (each["time_ms"], each["by"], each["number"]))

    def log_tail(self) -> str:
        """The last lines of each broker's log."""
        return "\n".join(f"--- broker {each.id}\n{each.log_tail()}" for each in self.brokers)

    def close(self) -> None:
        """End all brokers, and remove the directory unless `keep` is set."""
        for broker in self.brokers:
            broker.keep = self.keep
            broker.close()
        if not self.keep:
            shutil.rmtree(self.directory, ignore_errors=True)

    def _disturbed(self) -> Sequence[Broker]:
        return self.brokers

    def _start(self) -> None:
        etcd = shared_etcd(self._prepared)
        own = {
            "logfleet.metadata.store": "etcd",
            "logfleet.etcd.endpoints": etcd.endpoint,
            "logfleet.cluster.name": f"tests-{uuid.uuid4().hex[:12]}",
        }
        for broker in self.brokers:
            broker.directory.mkdir(parents=True, exist_ok=True)
            broker.config |= own
            broker.keep = self.keep
            broker.launch()
        for broker in self.brokers:
            broker.wait_started()
        self._ask("brokers", TIMEOUT_S, count=len(self.brokers))
