"""A fleet of three brokers as a case sees it: what it asks goes to the broker that it names, and topics have their replicas where it says.

Broker 1 is never stopped: what is not asked of a named one is asked of it.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Final

import msgspec
from logfleet.wire import messages as m
from logfleet.wire.apis import api_of
from logfleet.wire.errors import ErrorCode

from e2e.compare.side import (
    MadeTopic,
    Side,
    barrier_question,
    config_rows,
)
from e2e.harness.wire_connection import WireConnection, fit

NODES: Final = (1, 2, 3)
RACKS: Final = ("a", "b", "c")
FOLLOWERS_READ_SINCE: Final = 11
"""Version of Fetch (KIP-392)."""
Layout = Sequence[Sequence[int]]
"""Brokers of each partition's replicas; the first is preferred."""


def at(node: int, name: str = "main") -> str:
    """The connection of that name to a broker."""
    return f"{name}@{node}"


def metadata_of(*topics: MadeTopic) -> m.MetadataRequest:
    rows = [m.MetadataRequest.MetadataRequestTopic(name=topic.name) for topic in topics]
    return m.MetadataRequest(topics=rows, allow_auto_topic_creation=False)


class FleetSide(Side):
    """Brokers that listen on `ports`, by their ids. alive: those that are meant to serve now."""

    def __init__(self, product: str, ports: Mapping[int, int]) -> None:
        self.ports = dict(ports)
        self.alive = set(ports)
        self.lasting: dict[str, MadeTopic] = {}
        super().__init__(product, self.ports[1], "")

    def begin(self, name: str, now_from_ms: int, *, exact_texts: bool = False) -> None:
        super().begin(name, now_from_ms, exact_texts=exact_texts)
        for node, port in self.ports.items():
            self._names.known["port", port] = f"<port of {node}>"
            # a broker of Kafka names any as the controller, as it takes what is meant for that one
            self._names.known["controller", node] = "<some broker>"
        for topic in self.lasting.values():
            self._know(topic.name, topic.id)

    def get_of(self, node: int, request: msgspec.Struct, version: int | None = None) -> Any:
        """Ask that broker without comparing."""
        version = api_of(type(request)).max_version if version is None else version
        with WireConnection(self.ports[node]) as connection:
            return connection.call(fit(request, version), version)

    # --- topics

    def replicated(
        self,
        layout: Layout = ((1, 2, 3),),
        config: Mapping[str, str] | None = None,
        name: str = "t",
    ) -> MadeTopic:
        """A topic of the case's own, led by the preferred replicas and all in sync, as every broker says."""
        full = self.own_name(name)
        return self._replicated(full, layout, config or {})

    def keep(
        self, name: str, layout: Layout = ((1, 2, 3),), config: Mapping[str, str] | None = None
    ) -> MadeTopic:
        """As `replicated`, of that very name, for all cases that come."""
        self.lasting[name] = made = self._replicated(name, layout, config or {})
        return made

    def _replicated(self, name: str, layout: Layout, config: Mapping[str, str]) -> MadeTopic:
        kind = m.CreateTopicsRequest
        rows = [
            kind.CreatableReplicaAssignment(partition_index=index, broker_ids=list(ids))
            for index, ids in enumerate(layout)
        ]
        topic = kind.CreatableTopic(
            name=name,
            num_partitions=-1,
            replication_factor=-1,
            assignments=rows,
            configs=config_rows(config),
        )
        made = MadeTopic(name, self._made(topic))
        self._know(made.name, made.id)
        self.await_state(made, [ids[0] for ids in layout])
        return made

    def await_state(self, topic: MadeTopic, leaders: Sequence[int]) -> None:
        """Return when every broker names these leaders of its partitions (-1: none), all replicas that are there are in sync, and the leaders serve."""
        for _ in self.patiently(f"{topic.name} to be led by {leaders}"):
            if all(self._is_led(node, topic, leaders) for node in self.alive):
                break
        for index, leader in enumerate(leaders):
            if leader in self.alive:
                self._await_served(topic, index, leader)

    def await_moved(self, topic: MadeTopic, ids: Sequence[int]) -> None:
        """Return when every broker says that its partition 0 has these replicas, all in sync."""
        for _ in self.patiently(f"{topic.name} to be on {ids}"):
            rows = [self._partition(node, topic) for node in self.alive]
            if all(
                each.replica_nodes == list(ids) and set(each.isr_nodes) == set(ids) for each in rows
            ):
                return

    def await_replicas(self, topic: MadeTopic, node: int) -> None:
        """Return when that broker tells of the same replicas of partition 0 as the first one that is there."""
        wanted = self._partition(min(self.alive), topic)
        for _ in self.patiently(f"{node} to know the replicas of {topic.name}"):
            if self._partition(node, topic) == wanted:
                return

    def _partition(self, node: int, topic: MadeTopic) -> Any:
        (row,) = self.get_of(node, metadata_of(topic), 12).topics
        return next(each for each in row.partitions if each.partition_index == 0)

    def _is_led(self, node: int, topic: MadeTopic, leaders: Sequence[int]) -> bool:
        (row,) = self.get_of(node, metadata_of(topic), 12).topics
        found = {each.partition_index: each for each in row.partitions}
        return found.keys() == set(range(len(leaders))) and all(
            found[index].leader_id == leader
            and (leader < 0 or set(found[index].isr_nodes) == self._there(found[index]))
            for index, leader in enumerate(leaders)
        )

    def _there(self, partition: Any) -> set[int]:
        """Replicas whose brokers are."""
        return self.alive.intersection(partition.replica_nodes)

    def _await_served(self, topic: MadeTopic, index: int, leader: int) -> None:
        kind = m.ListOffsetsRequest
        row = kind.ListOffsetsPartition(partition_index=index, timestamp=-1)
        asked = kind(topics=[kind.ListOffsetsTopic(name=topic.name, partitions=[row])])
        for _ in self.patiently(f"{leader} to lead {topic.name}-{index}"):
            (answer,) = self.get_of(leader, asked).topics
            if answer.partitions[0].error_code == ErrorCode.NONE:
                return

    def await_read(
        self, topic: MadeTopic, high_watermark: int, *nodes: int, index: int = 0
    ) -> None:
        """Return when these brokers give consumers all below that offset."""
        kind = m.FetchRequest
        row = kind.FetchPartition(partition=index, fetch_offset=0, partition_max_bytes=1)
        asked = kind(topics=[kind.FetchTopic(topic=topic.name, partitions=[row])], max_bytes=1)
        for node in nodes:
            for _ in self.patiently(f"{node} to know of {high_watermark} in {topic.name}-{index}"):
                (answer,) = self.get_of(node, asked, FOLLOWERS_READ_SINCE).responses
                if answer.partitions[0].high_watermark == high_watermark:
                    break

    def await_brokers(self) -> None:
        """Return when all that are alive say that these, and no others, are."""
        for _ in self.patiently(f"the brokers {self.alive}"):
            if all(self._brokers(node) == self.alive for node in self.alive):
                return

    def _brokers(self, node: int) -> set[int]:
        answer = self.get_of(node, m.MetadataRequest(topics=[]), 12)
        return {each.node_id for each in answer.brokers}

    def fill(self, topic: MadeTopic, *batches: bytes, leader: int = 1, index: int = 0) -> None:
        """Produce the batches, one per request, for all in sync to have; not compared."""
        kind = m.ProduceRequest
        for each in batches:
            row = kind.PartitionProduceData(index=index, records=each)
            data = kind.TopicProduceData(name=topic.name, partition_data=[row])
            answer = self.get_of(leader, kind(acks=-1, timeout_ms=30_000, topic_data=[data]), 9)
            assert answer.responses[0].partition_responses[0].error_code == 0, answer

    # --- what a fleet does otherwise

    def await_leaders(self, name: str, partitions: int) -> None:
        """Topics here are waited for in `await_state`; of others a case sees no more than what it asks."""

    def _port_of(self, on: str) -> int:
        node = on.partition("@")[2]
        return self.ports[int(node)] if node else self.port

    def _shows_barrier(self, value: str) -> bool:
        answers = [self.get_of(node, barrier_question()) for node in self.alive]
        return all(answer.results[0].configs[0].value == value for answer in answers)

    def _warm_up(self) -> None:
        """No case asks for coordinators."""
