"""A leader whose followers the test plays, on a store whose answers can get lost."""

import asyncio
import re
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest
from logfleet.log.config import LogConfig
from logfleet.log.names import TopicPartition
from logfleet.metadata import attempts
from logfleet.metadata.kinds import topics
from logfleet.metadata.kinds.brokers import ACTIVE, BROKER, FENCE, FENCED, BrokerValue, FenceValue
from logfleet.metadata.kinds.topics import (
    PARTITION,
    READY,
    PartitionValue,
    ReadyValue,
    TopicValue,
)
from logfleet.metadata.store import Put
from logfleet.node.partitions.leader_partition import LeaderPartition
from logfleet.node.partitions.leadership import Leadership
from logfleet.node.replication.isr_writer import IsrWriter
from logfleet.replication import isr_proposals
from logfleet.replication.leader import LeaderReplicas
from logfleet.store.loader import MetadataLoader
from logfleet.telemetry.decisions import Kind, RecordedDecision
from logfleet.types import BrokerEpoch, LeaderEpoch, PartitionEpoch
from logfleet.wire import uuids
from structlog.testing import capture_logs

from broker_image.tests.unit.controller.running.controller_rig import Store, recorded, soon, until
from broker_image.tests.unit.node.handlers.conftest import Host
from broker_image.tests.unit.node.handlers.fetch_rig import append

pytestmark = pytest.mark.asyncio

TOPIC = b"topic-----------"
UUID = uuids.to_text(TOPIC)
LAG_MS = 30_000


class Leader:
    """Broker 1, which leads partitions of brokers 1 and 2. epochs: of their registrations."""

    def __init__(self, host: Host, store: Store) -> None:
        self.epochs: dict[int, BrokerEpoch] = {}
        self.metadata = MetadataLoader(store)
        self.table = host.partitions
        self.lag_ms = LAG_MS
        self.decisions = host.decisions
        self.now_ms = host.now
        self._host = host
        self._store = store

    async def know(self, *, partitions: int = 1, isr: tuple[int, ...] = (1,)) -> None:
        for broker_id in (1, 2):
            await self.register(broker_id)
            await self.fence(broker_id, ACTIVE)
        members = tuple((broker_id, self.epochs[broker_id]) for broker_id in isr)
        state = PartitionValue((1, 2), members, 1, LeaderEpoch(5), PartitionEpoch(3), 1)
        await self._store.write(
            topics.TOPIC.put("topic", TopicValue(UUID)),
            *(Put(self.key(index), PARTITION.encode(state)) for index in range(partitions)),
            READY.put(TOPIC, ReadyValue(partitions)),
        )

    async def register(self, broker_id: int) -> None:
        value = BROKER.encode(BrokerValue("i", ()))
        self.epochs[broker_id] = BrokerEpoch(
            await self._store.write(Put(BROKER.key(broker_id), value))
        )

    async def fence(self, broker_id: int, state: str) -> int:
        value = FENCE.encode(FenceValue(self.epochs[broker_id], state))
        return await self._store.write(Put(FENCE.key(broker_id), value))

    @staticmethod
    def key(index: int = 0) -> str:
        return PARTITION.key((TOPIC, index))

    async def stored(self, index: int = 0) -> PartitionValue:
        item = await self._store.get(self.key(index))
        assert item is not None
        return msgspec.json.decode(item.value, type=PartitionValue)

    def lead(self, index: int = 0) -> LeaderPartition:
        log = self._host._dir.create(TopicPartition("topic", index), UUID, LogConfig(), 0)
        log.start_epoch(LeaderEpoch(5))
        topic = self.metadata.image.topic_by_id(TOPIC)
        assert topic is not None
        state = topic.partitions[index]
        replicas = LeaderReplicas(
            1,
            state,
            state.revision,
            ends=log.ends,
            lag_max_ms=self.lag_ms,
            now_ms=0,
        )
        partition = LeaderPartition(
            "topic", TOPIC, index, log, LeaderEpoch(5), replicas_state=replicas
        )
        self.table.add(partition)
        return partition

    def fetches(self, writer: IsrWriter, partition: LeaderPartition, offset: int) -> None:
        """Broker 2 fetches from there on."""
        assert not partition.fetched(2, self.epochs[2], offset, 0, now_ms=0)
        writer.check(partition)

    @asynccontextmanager
    async def writing(self) -> AsyncIterator[IsrWriter]:
        leadership = Leadership(1, self.table, self._host._flusher, lag_max_ms=self.lag_ms)
        leadership.broker_epoch = self.epochs[1]
        writer = IsrWriter(
            self._store,
            self.metadata,
            self.table,
            leadership,
            self.decisions,
        )
        async with asyncio.TaskGroup() as tasks:
            running = [tasks.create_task(self.metadata.run())]
            await soon(self.metadata.until(lambda image: image.topic_by_id(TOPIC) is not None))
            running.append(tasks.create_task(writer.run()))
            yield writer
            for task in running:
                task.cancel()


@pytest.fixture
def leader(tmp_path: Path, store: Store, monkeypatch) -> Iterator[Leader]:
    monkeypatch.setattr(isr_proposals, "GATHERING_MS", 0)
    host = Host(tmp_path / "data")
    yield Leader(host, store)
    host.close()


def isr(partition: LeaderPartition) -> list[int]:
    return [broker_id for broker_id, _ in partition.replicas_state.state.isr]


async def test_who_has_caught_up_is_written_into_the_isr(leader) -> None:
    await leader.know()
    async with leader.writing() as writer:
        partition = leader.lead()
        append(partition, b"a")
        leader.fetches(writer, partition, 1)
        await until(lambda: isr(partition) == [1, 2])
        stored = await leader.stored()
        assert stored.isr == ((1, leader.epochs[1]), (2, leader.epochs[2]))
        assert (stored.leader_epoch, stored.partition_epoch) == (5, 4)
        assert (writer.expands, writer.shrinks, writer.failed) == (1, 0, 0)
    assert recorded(leader.decisions, Kind.ISR_EXPAND) == [
        RecordedDecision(
            time_ms=leader.now_ms,
            by=1,
            number=1,
            kind="isr_expand",
            cause="broker 2 has caught up",
            topic="topic",
            partition=0,
            broker=2,
            facts={"isr": [[1], [1, 2]], "leader_epoch": 5},
        )
    ]


async def test_who_has_not_fetched_for_long_leaves_the_isr_and_what_waited_is_committed(
    leader,
) -> None:
    """Nothing asks for it: all partitions are checked periodically."""
    leader.lag_ms = 2
    await leader.know(isr=(1, 2))
    async with leader.writing() as writer:
        partition = leader.lead()
        append(partition, b"a")
        assert partition.high_watermark == 0
        await until(lambda: isr(partition) == [1])
        assert partition.high_watermark == 1
        assert (writer.expands, writer.shrinks) == (0, 1)
    (decision,) = recorded(leader.decisions, Kind.ISR_SHRINK)
    assert re.fullmatch(
        r"broker 2 is behind by 1 records and has not caught up for \d+ ms", decision.cause
    )
    assert (decision.broker, decision.facts["isr"]) == (2, [[1, 2], [1]])


async def test_a_follower_that_has_registered_again_leaves_the_isr_for_that(leader) -> None:
    await leader.know(isr=(1, 2))
    async with leader.writing() as writer:
        partition = leader.lead()
        append(partition, b"a")
        assert not partition.fetched(2, leader.epochs[2] + 1, 0, 0, now_ms=0)
        writer.check(partition)
        await until(lambda: isr(partition) == [1])
    (decision,) = recorded(leader.decisions, Kind.ISR_SHRINK)
    assert decision.cause == "broker 2 has registered again"


@pytest.mark.parametrize("loss", ["before", "after", "away"])
async def test_a_change_without_an_answer_is_written_until_it_has_one(leader, store, loss) -> None:
    await leader.know()
    async with leader.writing() as writer:
        partition = leader.lead()
        store.losses = [loss]
        leader.fetches(writer, partition, 0)
        await until(lambda: isr(partition) == [1, 2])
        assert partition.replicas_state.pending is None
        assert (await leader.stored()).partition_epoch == 4


async def test_a_change_that_the_store_refuses_is_written_once_it_is_allowed(
    leader, store, monkeypatch
) -> None:
    monkeypatch.setattr(attempts, "REFUSED_MS", (1, 60_000))
    await leader.know(partitions=2)
    async with leader.writing() as writer:
        one, other = leader.lead(0), leader.lead(1)
        store.losses = ["refused"] * 3
        with capture_logs() as logs:
            leader.fetches(writer, one, 0)
            await until(lambda: writer.refused)
            leader.fetches(writer, other, 0)
            await until(lambda: isr(one) == isr(other) == [1, 2])
        assert writer.refused == 3
        rows = [row for row in logs if row["event"] == "metadata_write_refused"]
        assert 1 <= len({row["write"] for row in rows}) == len(rows)


async def test_who_is_fenced_joins_once_it_is_active(leader) -> None:
    """It fetches nothing more, as there is nothing new."""
    await leader.know()
    await leader.fence(2, FENCED)
    async with leader.writing() as writer:
        partition = leader.lead()
        leader.fetches(writer, partition, 0)
        await until(lambda: not partition.replicas_state.isr_change_due)
        assert isr(partition) == [1]
        await leader.fence(2, ACTIVE)
        await until(lambda: isr(partition) == [1, 2])


async def test_who_was_fenced_meanwhile_does_not_join(leader, store) -> None:
    """The image is behind; the transaction compares what the store says."""
    await leader.know()
    async with leader.writing() as writer:
        partition = leader.lead()
        store.flowing.clear()
        await leader.fence(2, FENCED)
        leader.fetches(writer, partition, 0)
        await until(lambda: store.held and partition.replicas_state.pending is not None)
        store.flowing.set()
        await until(lambda: partition.replicas_state.pending is None)
        assert isr(partition) == [1]
        assert (await leader.stored()).partition_epoch == 3
        assert writer.failed == 1
    assert recorded(leader.decisions, Kind.ISR_EXPAND) == []


async def test_a_change_is_lost_once_though_the_image_shows_nothing_of_the_reason(
    leader, store
) -> None:
    await leader.know()
    async with leader.writing() as writer:
        partition = leader.lead()
        store.flowing.clear()
        await leader.fence(2, FENCED)
        for _ in range(20):
            leader.fetches(writer, partition, 0)
            await until(lambda: store.answered == 1)
            await asyncio.sleep(0.001)
        assert store.answered == 1
        store.flowing.set()
        await until(lambda: partition.replicas_state.pending is None)


@pytest.mark.parametrize("what", ["is fenced", "is gone"])
async def test_a_lost_change_waits_for_no_revision_of_another_tenant_of_the_same_etcd(
    leader, store, what
) -> None:
    await leader.know()
    store.others = 1
    async with leader.writing() as writer:
        partition = leader.lead()
        store.flowing.clear()
        if what == "is fenced":
            await leader.fence(2, FENCED)
        else:
            await store.write(BROKER.delete(2))
        for _ in range(20):
            leader.fetches(writer, partition, 0)
            await until(lambda: store.answered == 1)
            await asyncio.sleep(0.001)
        assert store.answered == 1, "the image does not show the reason yet"
        store.flowing.set()
        await until(lambda: partition.replicas_state.pending is None)
        assert isr(partition) == [1]


async def test_what_the_controller_wrote_meanwhile_is_adopted_and_the_rest_is_written_alone(
    leader, store
) -> None:
    await leader.know(partitions=2)
    async with leader.writing() as writer:
        one, other = leader.lead(0), leader.lead(1)
        store.flowing.clear()
        changed = one.replicas_state.state.changed(min_isr=2)
        await store.write(Put(leader.key(0), PARTITION.encode(changed)))
        for partition in (one, other):
            leader.fetches(writer, partition, 0)
        await until(lambda: isr(other) == [1, 2])
        store.flowing.set()
        await until(lambda: one.replicas_state.state.min_isr == 2)
        leader.fetches(writer, one, 0)
        await until(lambda: isr(one) == [1, 2])
        stored: Any = await leader.stored(0)
        assert (stored.min_isr, stored.partition_epoch) == (2, 5)


async def test_a_leader_that_learns_that_its_epoch_has_ended_leads_no_more(leader, store) -> None:
    await leader.know()
    async with leader.writing() as writer:
        partition = leader.lead()
        store.flowing.clear()
        state = partition.replicas_state.state
        elected = state.changed(leader=2, leader_epoch=6, isr=((2, leader.epochs[2]),))
        await store.write(Put(leader.key(), PARTITION.encode(elected)))
        leader.fetches(writer, partition, 0)
        await until(lambda: partition.replicas_state.pending is not None)
        store.flowing.set()
        await until(lambda: not partition.is_leading)
