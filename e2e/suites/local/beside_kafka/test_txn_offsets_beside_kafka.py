"""TxnOffsetCommit in every version, on a broker of ours and on Apache Kafka 4.4.0: the same steps, the same outcome."""

import asyncio
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import msgspec
import pytest
from logfleet.config.broker import broker_config
from logfleet.controller.brokers.feature_level import TRANSACTIONS
from logfleet.node.broker import Broker
from logfleet.wire import messages as m
from logfleet.wire.apis import api_of
from logfleet.wire.errors import ErrorCode

from e2e.harness.kafka import KafkaBroker
from e2e.harness.wire_connection import TRY_AGAIN, WireConnection

pytestmark = [pytest.mark.xdist_group("beside-kafka"), pytest.mark.timeout(600)]
CONFIG = {
    "transaction.state.log.num.partitions": "1",
    "offsets.topic.num.partitions": "1",
    "group.initial.rebalance.delay.ms": "0",
}
NO_ID = b"id of no topic.."
Commit = m.TxnOffsetCommitRequest
Fetch = m.OffsetFetchRequest


class Client:
    """A transactional producer, and a consumer of the group. version: of TxnOffsetCommit."""

    def __init__(self, port: int, version: int, topic_id: bytes, name: str = "") -> None:
        self.connection = WireConnection(port)
        self.version = version
        self.adds = version < 5
        self.group = f"v{version}"
        self.name = self.group + name
        self.topic_id = topic_id
        self.pair = (-1, -1)
        self.member_id, self.generation = "", -1

    def call(self, request: msgspec.Struct, version: int) -> Any:
        """The answer, once it is no passing error."""
        while True:
            answer = self.connection.call(request, version)
            if not set(errors(answer)) & {error.name for error in TRY_AGAIN}:
                return answer

    def begin(self) -> None:
        for kind, key in ((0, self.group), (1, self.name)):
            find = m.FindCoordinatorRequest(key_type=kind, coordinator_keys=[key])
            while self.connection.call(find, 4).coordinators[0].error_code:
                pass
        request = m.InitProducerIdRequest(transactional_id=self.name, transaction_timeout_ms=60_000)
        answer = self.call(request, 4 if self.adds else 5)
        self.pair = (answer.producer_id, answer.producer_epoch)

    def add(self) -> str:
        producer_id, epoch = self.pair
        request = m.AddOffsetsToTxnRequest(
            transactional_id=self.name,
            group_id=self.group,
            producer_id=producer_id,
            producer_epoch=epoch,
        )
        return ErrorCode(self.call(request, 3).error_code).name

    def commit(
        self, offsets: Mapping[Any, int], *, metadata: str | None = "m", **given: Any
    ) -> list[str]:
        """Commit offsets of partitions of t, or of (topic, partition)."""
        topics: dict[str, Any] = {}
        for at, offset in offsets.items():
            name, index = at if isinstance(at, tuple) else ("t", at)
            topic_id = self.topic_id if name == "t" else NO_ID
            topic = Commit.TxnOffsetCommitRequestTopic(name=name, topic_id=topic_id)
            row = Commit.TxnOffsetCommitRequestPartition(
                partition_index=index, committed_offset=offset, committed_metadata=metadata
            )
            topics.setdefault(name, topic).partitions.append(row)
        fields: dict[str, Any] = {
            "transactional_id": self.name,
            "group_id": self.group,
            "producer_id": self.pair[0],
            "producer_epoch": self.pair[1],
            "topics": list(topics.values()),
        }
        if self.version >= 3:
            fields["member_id"] = self.member_id
            fields["generation_id_or_member_epoch"] = self.generation
        answer = self.call(Commit(**fields | given), self.version)
        return sorted(
            f"{topic.name or topic.topic_id == NO_ID} {row.partition_index} "
            + ErrorCode(row.error_code).name
            for topic in answer.topics
            for row in topic.partitions
        )

    def plain(self, offset: int) -> list[str]:
        kind = m.OffsetCommitRequest
        partition = kind.OffsetCommitRequestPartition(
            partition_index=0, committed_offset=offset, committed_metadata=""
        )
        topic = kind.OffsetCommitRequestTopic(name="t", partitions=[partition])
        return errors(self.call(kind(group_id=self.group, topics=[topic]), 8))

    def fetch(self, *, stable: bool = True, everything: bool = False) -> list[str]:
        topics = [Fetch.OffsetFetchRequestTopics(name="t", partition_indexes=[0, 1])]
        group = Fetch.OffsetFetchRequestGroup(
            group_id=self.group, topics=None if everything else topics
        )
        (answer,) = self.call(Fetch(groups=[group], require_stable=stable), 8).groups
        return sorted(
            f"{row.partition_index} {ErrorCode(row.error_code).name} {row.committed_offset}"
            for topic in answer.topics
            for row in topic.partitions
        )

    def fetch_all(self) -> tuple[list[str], ...]:
        return self.fetch(), self.fetch(stable=False), self.fetch(everything=True)

    def stage(self, offsets: Mapping[Any, int]) -> tuple[str, list[str]]:
        """Commit offsets, and add the group before where the client does that."""
        return self.add() if self.adds else "", self.commit(offsets)

    def end(self, *, commit: bool) -> tuple[str, list[str]]:
        """How it was answered, and what is committed once the marker is there."""
        producer_id, epoch = self.pair
        request = m.EndTxnRequest(
            transactional_id=self.name,
            producer_id=producer_id,
            producer_epoch=epoch,
            committed=commit,
        )
        answer = self.call(request, 4 if self.adds else 5)
        if not self.adds and not answer.error_code:
            self.pair = (answer.producer_id, answer.producer_epoch)
        describe = m.DescribeTransactionsRequest(transactional_ids=[self.name])
        state = ""
        while not state.startswith("Complete"):
            state = self.call(describe, 0).transaction_states[0].transaction_state
        return ErrorCode(answer.error_code).name, self.fetch()

    def join(self) -> str:
        protocol = m.JoinGroupRequest.JoinGroupRequestProtocol(name="range", metadata=b"m")
        request = m.JoinGroupRequest(
            group_id=self.group,
            session_timeout_ms=60_000,
            rebalance_timeout_ms=60_000,
            protocol_type="consumer",
            protocols=[protocol],
        )
        answer = self.call(request, 3)
        self.member_id, self.generation = answer.member_id, answer.generation_id
        return ErrorCode(answer.error_code).name

    def delete_group(self) -> list[str]:
        return errors(self.call(m.DeleteGroupsRequest(groups_names=[self.group]), 2))

    def delete_offset(self) -> list[str]:
        kind = m.OffsetDeleteRequest
        partition = kind.OffsetDeleteRequestPartition(partition_index=0)
        topic = kind.OffsetDeleteRequestTopic(name="t", partitions=[partition])
        return errors(self.call(kind(group_id=self.group, topics=[topic]), 0))


def errors(answer: Any) -> list[str]:
    """All error codes of an answer."""
    if isinstance(answer, list | tuple):
        return [error for each in answer for error in errors(each)]
    if not isinstance(answer, msgspec.Struct):
        return []
    found = []
    for field in msgspec.structs.fields(answer):
        value = getattr(answer, field.name)
        if field.name == "error_code":
            found.append(ErrorCode(value).name)
        else:
            found += errors(value)
    return found


def alone(client: Client) -> Iterator[tuple[str, Any]]:
    """What a producer without a group may do, and what comes of it."""
    producer_id, epoch = client.pair
    if client.adds:
        yield "not added", client.commit({0: 5})
        yield "add", client.add()
    yield "unknown things", client.commit({0: 1, 7: 1, ("no", 0): 1})
    yield "nothing known", client.commit({("no", 0): 1})
    yield "metadata", client.commit({0: 1}, metadata="m" * 5000)
    yield "no metadata", client.commit({1: 1}, metadata=None)
    yield "no group", client.commit({0: 1}, group_id="")
    yield "no transactional id", client.commit({0: 1}, transactional_id="")
    yield "another id", client.commit({0: 1}, transactional_id="unknown")
    yield "another producer", client.commit({0: 1}, producer_id=producer_id + 1000)
    yield "a newer epoch", client.commit({0: 1}, producer_epoch=epoch + 1)
    if client.version >= 3:
        gone: dict[str, Any] = {"group_id": "unknown", "generation_id_or_member_epoch": 3}
        yield "unknown group", client.commit({0: 1}, **gone)
        yield "not a member", client.commit({0: 1}, generation_id_or_member_epoch=3)
        yield "an instance", client.commit({0: 1}, group_instance_id="i")
    yield "staged", client.commit({0: 5})
    yield "fetch", client.fetch_all()
    yield "plain", client.plain(6)
    yield "fetch", client.fetch_all()
    yield "commit", client.end(commit=True)
    if client.adds:
        yield "ended", client.commit({0: 5})


def ended_otherwise(client: Client, other: Client) -> Iterator[tuple[str, Any]]:
    """Other ends of transactions than a commit."""
    yield "two producers", (client.stage({0: 7, 1: 7}), other.stage({0: 8}))
    yield "the later one commits", (other.end(commit=True), client.fetch_all())
    yield "the earlier one commits", client.end(commit=True)
    yield "an offset is deleted", (client.stage({0: 9, 1: 9}), client.delete_offset())
    yield "fetch", client.fetch_all()
    yield "commit", client.end(commit=True)
    yield "the group is deleted", (client.stage({0: 10}), client.delete_group())
    yield "fetch", client.fetch_all()
    yield "commit", client.end(commit=True)
    yield "abort", (client.stage({0: 11}), client.end(commit=False))


def as_member(client: Client) -> Iterator[tuple[str, Any]]:
    """What a member of the group may do."""
    yield "join", (client.join(), client.stage({0: 12}))
    if client.version >= 3:
        yield "old generation", client.commit({0: 1}, generation_id_or_member_epoch=0)
        yield "no generation", client.commit({0: 1}, generation_id_or_member_epoch=-1)
        yield "no member", client.commit({0: 1}, member_id="")
        nobody: dict[str, Any] = {"member_id": "", "generation_id_or_member_epoch": -1}
        yield "neither", client.commit({0: 1}, **nobody)
    yield "an older epoch", client.commit({0: 1}, producer_epoch=client.pair[1] - 1)
    yield "commit", client.end(commit=True)


def outcomes(port: int) -> list[tuple[int, str, Any]]:
    """What was done, with which version, and what came of it."""
    topic = m.CreateTopicsRequest.CreatableTopic(name="t", num_partitions=2, replication_factor=1)
    with WireConnection(port) as connection:
        create = m.CreateTopicsRequest(topics=[topic], timeout_ms=30_000)
        topic_id = connection.call(create, 7).topics[0].topic_id
    found: list[tuple[int, str, Any]] = []
    for version in range(api_of(Commit).max_version + 1):
        client, other = (Client(port, version, topic_id, name) for name in ("", "-other"))
        with client.connection, other.connection:
            client.begin()
            other.begin()
            parts = (alone(client), ended_otherwise(client, other), as_member(client))
            found += [(version, *step) for part in parts for step in part]
    return found


def ours(directory: Path) -> list[tuple[int, str, Any]]:
    async def main() -> list[tuple[int, str, Any]]:
        config = broker_config(
            {
                **CONFIG,
                "logfleet.admin.listener": "127.0.0.1:0",
                "listeners": "PLAINTEXT://127.0.0.1:0",
                "log.dirs": str(directory),
            }
        )
        config = msgspec.structs.replace(config, logfleet_feature_level_max=TRANSACTIONS)
        async with Broker(config) as broker:
            (listener,) = broker.opened.listeners.all
            return await asyncio.to_thread(outcomes, listener.port)

    return asyncio.run(main())


def test_offsets_of_transactions_are_committed_as_by_kafka(tmp_path: Path) -> None:
    mine = ours(tmp_path / "ours")
    with KafkaBroker(tmp_path / "kafka", **CONFIG) as kafka:
        theirs = outcomes(kafka.port)
    assert mine == theirs
