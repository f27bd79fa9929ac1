"""A client's cache of the cluster: brokers, topics, partition leaders."""

from collections.abc import Iterable

import msgspec
from msgspec.structs import replace

from logfleet.wire.errors import ErrorCode
from logfleet.wire.messages import MetadataResponse

NO_LEADER = -1
AGE_MS_MAX = 300_000
"""Kafka's metadata.max.age.ms."""
DOUBTED_AGE_MS_MAX = 80
"""Age at which metadata that an error has put in doubt is fetched again.

It is the shortest pause between two attempts, as Kafka's retry.backoff.ms between two refreshes.
"""


class Node(msgspec.Struct, frozen=True):
    """A broker's address on the listener that we connected to."""

    id: int
    host: str
    port: int
    rack: str | None = None

    @property
    def address(self) -> str:
        """host:port, an IPv6 host in brackets."""
        return f"{bracketed(self.host)}:{self.port}"


def bracketed(host: str) -> str:
    """The host as it is written before a port."""
    return f"[{host}]" if ":" in host else host


class PartitionInfo(msgspec.Struct, frozen=True):
    """leader: broker id or NO_LEADER. isr, replicas: broker ids."""

    index: int
    leader: int
    leader_epoch: int
    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    error: ErrorCode = ErrorCode.NONE

    def remarks(self, min_isr: int) -> list[str]:
        """What it lacks, as Kafka's metrics name them: offline, under_min_isr, under_replicated.

        min_isr: min.insync.replicas. Replicas that a reassignment is adding count as missing.
        """
        lacks = {
            "offline": self.leader == NO_LEADER,
            "under_min_isr": len(self.isr) < min(min_isr, len(self.replicas)),
            "under_replicated": len(self.isr) < len(self.replicas),
        }
        return [name for name, is_so in lacks.items() if is_so]


class Topic(msgspec.Struct, frozen=True):
    """partitions: in the order of their indexes.

    topic_id: zero if the broker has none (before KIP-516).
    """

    name: str
    topic_id: bytes
    internal: bool
    partitions: tuple[PartitionInfo, ...]

    def partition(self, index: int) -> PartitionInfo | None:
        """The partition with that index; None if there is none."""
        return self.partitions[index] if 0 <= index < len(self.partitions) else None


class Metadata:
    """A cache; `now` is the loop's time in seconds.

    Only `update`, `learn`, `forget` and `doubt` change it.
    """

    def __init__(self) -> None:
        self.cluster_id: str | None = None
        self.controller_id = -1
        self.nodes: dict[int, Node] = {}
        self._topics: dict[str, tuple[Topic, float]] = {}
        self._doubted: set[str] = set()

    def topic(self, name: str, now: float) -> Topic | None:
        """The topic, if cached for at most AGE_MS_MAX; a doubted one, DOUBTED_AGE_MS_MAX."""
        topic, learnt = self._topics.get(name, (None, float("-inf")))
        age_ms_max = DOUBTED_AGE_MS_MAX if name in self._doubted else AGE_MS_MAX
        return topic if (now - learnt) * 1000 < age_ms_max else None

    def last_known(self, name: str) -> Topic | None:
        """The topic as last fetched, however long ago."""
        topic, _ = self._topics.get(name, (None, 0.0))
        return topic

    def forget(self, names: Iterable[str]) -> None:
        """Mark these topics as outdated: they are fetched again at the next use."""
        for name in names:
            if name in self._topics:
                self._topics[name] = (self._topics[name][0], float("-inf"))

    def doubt(self, names: Iterable[str]) -> None:
        """Mark these topics as doubtful after an error: the next attempt fetches them again.

        Not earlier: the partitions of a topic fail one by one, and one fetch serves them all.
        """
        self._doubted.update(name for name in names if name in self._topics)

    def learn(self, node: Node) -> None:
        """Add a broker's address from another, newer response than Metadata, without a rack."""
        cached = self.nodes.get(node.id)
        rack = None if cached is None else cached.rack
        self.nodes = {**self.nodes, node.id: replace(node, rack=rack)}

    def update(self, response: MetadataResponse, now: float) -> list[Topic]:
        """Store a Metadata response; returns its topics without error."""
        self.cluster_id = response.cluster_id
        self.controller_id = response.controller_id
        self.nodes = {
            broker.node_id: Node(broker.node_id, broker.host, broker.port, broker.rack)
            for broker in response.brokers
        }
        topics = [_topic(row) for row in response.topics if row.error_code == 0]
        for topic in topics:
            self._topics[topic.name] = (topic, now)
            self._doubted.discard(topic.name)
        return topics


def _topic(row: MetadataResponse.MetadataResponseTopic) -> Topic:
    assert row.name is not None, "a topic without error has a name"
    partitions = [
        PartitionInfo(
            partition.partition_index,
            partition.leader_id,
            partition.leader_epoch,
            tuple(partition.replica_nodes),
            tuple(partition.isr_nodes),
            ErrorCode(partition.error_code),
        )
        for partition in row.partitions
    ]
    partitions.sort(key=lambda partition: partition.index)
    return Topic(row.name, row.topic_id, row.is_internal, tuple(partitions))
