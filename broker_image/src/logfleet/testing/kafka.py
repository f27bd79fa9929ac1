"""What a test can do with any Kafka: create topics, read records, ask for ends and leaders."""

from collections.abc import Mapping, Sequence
from typing import Any, Final, Literal

import msgspec

from logfleet.testing.errors import OrderFailed
from logfleet.testing.groups import Group
from logfleet.testing.prepared import Prepared, shared

TIMEOUT_S: Final = 30.0
"""Long, as a machine that runs tests is busy; what is done in time does not wait for it."""
GRACE_S: Final = 5.0
"""How much longer the test waits for the client's sentence about its time that is up."""
OF_THE_BROKER: Final = -1
"""As many partitions or replicas as the brokers' configuration says."""

Isolation = Literal["read_committed", "read_uncommitted"]


class Record(msgspec.Struct, frozen=True, array_like=True):
    """One record that was read. timestamp_ms: milliseconds since 1970."""

    partition: int
    offset: int
    timestamp_ms: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...] = ()


class Kafka:
    """A cluster that serves at `bootstrap` ("host:port,..."). Methods raise OrderFailed.

    timeout_s: of each method, the time after which it fails.
    """

    def __init__(self, bootstrap: str, prepared: Prepared | None = None) -> None:
        self._bootstrap = bootstrap
        self._prepared = prepared or shared()

    @property
    def bootstrap(self) -> str:
        """Its brokers as clients want them: bootstrap.servers."""
        return self._bootstrap

    @property
    def _answering(self) -> str:
        """The addresses of brokers that can answer."""
        return self._bootstrap

    def create_topic(
        self,
        topic: str,
        partitions: int = 1,
        *,
        replicas: int = OF_THE_BROKER,
        config: Mapping[str, str] | None = None,
        timeout_s: float = TIMEOUT_S,
    ) -> None:
        """Create a topic; then every broker knows the leader of each partition."""
        self._ask(
            "create_topic",
            timeout_s,
            topic=topic,
            partitions=partitions,
            replicas=replicas,
            config=dict(config or {}),
        )

    def create_topics(self, topics: Mapping[str, int]) -> None:
        """topics: name -> partitions."""
        for name, partitions in topics.items():
            self.create_topic(name, partitions)

    def delete_topic(self, topic: str, *, timeout_s: float = TIMEOUT_S) -> None:
        """Delete a topic with its records."""
        self._ask("delete_topic", timeout_s, topic=topic)

    def records(
        self,
        topic: str,
        *,
        count: int | None = None,
        partition: int | None = None,
        isolation: Isolation = "read_committed",
        timeout_s: float = TIMEOUT_S,
    ) -> list[Record]:
        """All records of a topic, or of one partition, by partition and offset.

        count: wait until there are at least so many. More are returned as well, so that one that
        was written twice is seen. isolation: as a consumer's isolation.level.
        """
        rows = self._ask(
            "records",
            timeout_s,
            topic=topic,
            count=count,
            partition=partition,
            isolation=isolation,
        )
        return [
            Record(
                at, offset, timestamp_ms, key, value, tuple((name, text) for name, text in headers)
            )
            for at, offset, timestamp_ms, key, value, headers in rows
        ]

    def end(self, topic: str, partition: int = 0, *, timeout_s: float = TIMEOUT_S) -> int:
        """The offset behind the partition's last record that consumers may see."""
        found: int = self._ask("end", timeout_s, topic=topic, partition=partition)
        return found

    def leader_id(
        self,
        topic: str,
        partition: int = 0,
        *,
        but: Sequence[int] = (),
        timeout_s: float = TIMEOUT_S,
    ) -> int:
        """The id of the broker that leads the partition, once one does that is none of `but`."""
        found: int = self._ask("leader", timeout_s, topic=topic, partition=partition, but=list(but))
        return found

    def in_sync(
        self,
        topic: str,
        partition: int = 0,
        *,
        count: int | None = None,
        timeout_s: float = TIMEOUT_S,
    ) -> list[int]:
        """The ids of the brokers that are in sync for the partition, once there are `count`."""
        found: list[int] = self._ask(
            "in_sync", timeout_s, topic=topic, partition=partition, count=count
        )
        return found

    def move_leader(
        self, topic: str, partition: int = 0, *, to: int, timeout_s: float = TIMEOUT_S
    ) -> None:
        """Have broker `to`, which must have a replica in sync, lead the partition.

        It does when this returns, by that broker's own metadata. Source: KIP-455, KIP-460.
        """
        self._ask("move_leader", timeout_s, topic=topic, partition=partition, to=to)

    def group(self, name: str) -> Group:
        """The consumer group, which need not exist yet."""
        return Group(name, self._ask, self._disturb)

    def _disturb(self, do: str, **arguments: Any) -> Any:
        """The result of an order that only a broker of one's own takes."""
        raise OrderFailed(f"{do} needs a broker of its own: {arguments}")

    def _ask(self, do: str, timeout_s: float, **arguments: Any) -> Any:
        client = self._prepared.client()
        return client.channel.ask(
            do,
            timeout_s=timeout_s + GRACE_S,
            bootstrap=self._answering,
            limit_s=timeout_s,
            **arguments,
        )
