"""Brokers that campaign for controller, on an embedded store with answers that fail or are late."""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any, TypeVar

import msgspec
from logfleet.controller.changes.election_writes import LogEndsByPartition, ReplicasToAsk
from logfleet.controller.changes.topics import (
    NewTopic,
    TopicCreation,
    create_topic,
)
from logfleet.controller.running.loop import ControllerLoop
from logfleet.controller.terms.operations import TermDecision
from logfleet.io.sqlite import SqliteStore
from logfleet.metadata.image import ClusterImage, Partition
from logfleet.metadata.kinds.brokers import BROKER, BrokerValue
from logfleet.metadata.kinds.cluster import ControllerValue
from logfleet.metadata.kinds.topics import (
    PARTITION,
    READY,
    TOPIC,
    TOPIC_ID,
    PartitionValue,
    ReadyValue,
    TopicValue,
    partitions_of,
)
from logfleet.metadata.store import (
    DeletePrefix,
    Operation,
    Put,
    StoreRefused,
    StoreUnavailable,
    Txn,
    TxnResult,
    UnknownOutcome,
)
from logfleet.replication.longest_log import SILENT
from logfleet.store.loader import MetadataLoader
from logfleet.telemetry.decisions import Decisions, Kind, Query, RecordedDecision, parse
from logfleet.types import BrokerEpoch, LeaderEpoch, PartitionEpoch
from logfleet.wire import uuids
from logfleet.wire.refusal import Refusal

PATIENCE_S = 20
_ODD = "AAECAwQFBgcICQoLDA0ODw"
WHAT_NO_CONTROLLER_EXPECTS = (
    TOPIC.put("odd", TopicValue(_ODD, {"min.insync.replicas": "odd"})),
    Put(TOPIC_ID.key(uuids.from_text(_ODD)), b"odd"),
    PARTITION.put(
        (uuids.from_text(_ODD), 0),
        PartitionValue((9,), ((9, BrokerEpoch(1)),), 9, LeaderEpoch(0), PartitionEpoch(0), 1),
    ),
    READY.put(uuids.from_text(_ODD), ReadyValue(1)),
)
"""A configuration that no broker accepts."""
MENDING = (
    TOPIC.delete("odd"),
    TOPIC_ID.delete(uuids.from_text(_ODD)),
    READY.delete(uuids.from_text(_ODD)),
    DeletePrefix(partitions_of(uuids.from_text(_ODD))),
)
T = TypeVar("T")


async def soon(awaitable: Awaitable[T]) -> T:
    async with asyncio.timeout(PATIENCE_S):
        return await awaitable


async def until(condition: Callable[[], object]) -> None:
    async with asyncio.timeout(PATIENCE_S):
        while not condition():  # noqa: ASYNC110  what is waited for has no event
            await asyncio.sleep(0)


class Store(SqliteStore):
    """The embedded store, with answers that get lost: `losses` has the fate of each coming txn.

    One that begins with "late" is answered once `answering` is set; unanswered: how many have
    waited for that. answered: transactions that got an answer. others: revisions of other writers
    in the same etcd, under another prefix.
    """

    def __init__(self, *arguments) -> None:
        super().__init__(*arguments)
        self.losses: list[str] = []
        self.flowing = asyncio.Event()  # cleared, the watch holds back what it has
        self.flowing.set()
        self.held = 0
        self.answering = asyncio.Event()
        self.unanswered = self.answered = self.others = 0
        self.compacted: list[int] = []
        self.compact_errors: list[Exception] = []

    async def txn(self, txn: Txn) -> TxnResult:
        loss = self.losses.pop(0) if self.losses else ""
        try:
            result = await self._txn(txn, loss.removeprefix("late").lstrip())
            self.answered += 1
            if result.succeeded:
                return result
            return msgspec.structs.replace(result, revision=result.revision + self.others)
        finally:
            if loss.startswith("late"):
                self.unanswered += 1
                await self.answering.wait()

    async def _txn(self, txn: Txn, loss: str) -> TxnResult:
        match loss:
            case "before":
                raise UnknownOutcome("not done, but who knows")
            case "after":
                await super().txn(txn)
                raise UnknownOutcome("done, but who knows")
            case "away":
                raise StoreUnavailable("away")
            case "refused":
                raise StoreRefused("permission denied")
        return await super().txn(txn)

    async def watch(self, prefix: str = "", *, after_revision: int | None = None):
        async for item in super().watch(prefix, after_revision=after_revision):
            self.held += not self.flowing.is_set()
            await self.flowing.wait()
            yield item

    async def write(self, *operations: Operation) -> int:
        """What others do; answered always."""
        return (await super().txn(Txn(success=operations))).revision

    async def compact(self, revision: int) -> None:
        if self.compact_errors:
            raise self.compact_errors.pop()
        self.compacted.append(revision)


async def nobody_answers(_image: ClusterImage, asked: ReplicasToAsk) -> LogEndsByPartition:
    """No broker can be reached."""
    return {
        place: {(broker.id, broker.epoch): SILENT for broker in brokers}
        for place, brokers in asked.items()
    }


class Node:
    def __init__(
        self, store: Store, broker_id: int, static=None, query_log_ends=nobody_answers, **options
    ) -> None:
        self.follower = MetadataLoader(store)
        value = ControllerValue(broker_id, f"incarnation-{broker_id}")
        self.decisions = Decisions(broker_id, lambda: 0)
        self.loop = ControllerLoop(
            store,
            self.follower,
            value,
            static or {},
            self.decisions,
            query_log_ends=query_log_ends,
            **options,
        )

    async def elected(self) -> None:
        await until(lambda: self.loop.is_controller)

    async def create(
        self, name: str, partitions: int = 1, replicas: int = 1
    ) -> TopicCreation | Refusal:
        new = NewTopic(name, name.encode().ljust(16, b"-")[:16], 0, partitions, replicas)

        def decide(image, epoch, layers):
            creation = create_topic(image, epoch, new, layers)
            return (
                creation if isinstance(creation, Refusal) else TermDecision(creation.txns, creation)
            )

        return await soon(self.loop.submit(decide))

    def partition(self, name: str, index: int = 0):
        topic = self.follower.image.topic(name)
        assert topic is not None
        return topic.partitions[index]


@asynccontextmanager
async def running(store: Store, broker_id: int = 1, **options):
    node = Node(store, broker_id, **options)
    async with asyncio.TaskGroup() as tasks:
        follow = tasks.create_task(node.follower.run())
        control = tasks.create_task(node.loop.run())
        yield node
        control.cancel()
        await asyncio.wait([control])
        follow.cancel()


def recorded(decisions: Decisions, kind: Kind) -> list[RecordedDecision]:
    """The recorded decisions of that kind."""
    lines = decisions.select(Query(kind=(kind,)))
    return [decision for decision, _ in parse(b"".join(lines))]


async def start_broker(store: Store, broker_id: int, **fields: Any) -> int:
    value = BROKER.encode(BrokerValue(f"incarnation-{broker_id}", (), **fields))
    return await store.write(Put(BROKER.key(broker_id), value))


async def stop_broker(store: Store, broker_id: int) -> None:
    await store.write(BROKER.delete(broker_id))


async def until_leader(node: Node, name: str, leader: int) -> Partition:
    def holds(image):
        topic = image.topic(name)
        return topic is not None and topic.partitions[0].leader == leader

    await soon(node.follower.until(holds))
    partition: Partition = node.partition(name)
    return partition
