"""Three brokers: a decided transaction ends at all its partitions, whichever broker stops."""

import asyncio
from pathlib import Path
from typing import Any

import pytest
from logfleet.io.clock import now_ms
from logfleet.net.connection import CloseConnection
from logfleet.node.broker import Broker
from logfleet.node.partitions.leader_partition import LeaderPartition
from logfleet.records.batch import iterate_headers
from logfleet.records.control import Marker, read_marker
from logfleet.records.record import ProducerStamp, Record, build_batch
from logfleet.transactions.records import TRANSACTION_STATE_TOPIC
from logfleet.wire.errors import ErrorCode
from logfleet.wire.messages import (
    AddPartitionsToTxnRequest,
    DeleteTopicsRequest,
    DescribeTransactionsRequest,
    EndTxnRequest,
    FindCoordinatorRequest,
    InitProducerIdRequest,
)

from broker_image.tests.unit.node.broker_rig import ask_broker
from broker_image.tests.unit.node.replication.fleet_rig import Fleet, fleet_of, until

pytestmark = pytest.mark.asyncio

ID = "a"
TRANSACTION = 1
FOR_NOW = {
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.NOT_COORDINATOR,
}


class Producer:
    """A transactional producer of one id, over raw requests."""

    def __init__(self, fleet: Fleet) -> None:
        self.fleet = fleet
        self.pair = (-1, -1)

    async def coordinator(self) -> Broker:
        """The broker that coordinates the id, once there is one."""
        find = FindCoordinatorRequest(key_type=TRANSACTION, coordinator_keys=[ID])
        async with asyncio.timeout(20):
            while True:
                (found,) = (await ask_broker(self.fleet.any, find, 4)).coordinators
                if found.node_id in self.fleet.brokers:
                    return self.fleet.brokers[found.node_id]
                await asyncio.sleep(0.01)

    async def ask(self, request: Any, version: int, error_of: Any) -> Any:
        """The coordinator's answer, once it has one to give."""
        async with asyncio.timeout(20):
            while True:
                answer = await ask_broker(await self.coordinator(), request, version)
                if error_of(answer) not in FOR_NOW:
                    return answer
                await asyncio.sleep(0.01)

    async def init(self) -> None:
        request = InitProducerIdRequest(transactional_id=ID, transaction_timeout_ms=60_000)
        answer = await self.ask(request, 5, lambda each: each.error_code)
        assert answer.error_code == 0
        self.pair = answer.producer_id, answer.producer_epoch

    async def add(self, *topics: str) -> None:
        added = [
            AddPartitionsToTxnRequest.AddPartitionsToTxnTopic(name=each, partitions=[0])
            for each in topics
        ]
        request = AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=ID,
            v3_and_below_producer_id=self.pair[0],
            v3_and_below_producer_epoch=self.pair[1],
            v3_and_below_topics=added,
        )

        def error_of(answer: Any) -> int:
            row = answer.results_by_topic_v3_and_below[0].results_by_partition[0]
            return int(row.partition_error_code)

        assert error_of(await self.ask(request, 3, error_of)) == 0

    async def write(self, topic: str) -> LeaderPartition:
        """A record of the transaction, as its partition's leader appends it."""
        _, partition = await self.fleet.led(topic)
        stamp, now = ProducerStamp(*self.pair, 0, transactional=True), now_ms()
        partition.append(build_batch([Record(None, b"v", now)], producer=stamp), now)
        return partition

    async def commit(self) -> None:
        request = EndTxnRequest(
            transactional_id=ID,
            producer_id=self.pair[0],
            producer_epoch=self.pair[1],
            committed=True,
        )
        answer = await self.ask(request, 5, lambda each: each.error_code)
        assert answer.error_code == 0
        self.pair = answer.producer_id, answer.producer_epoch

    async def state(self) -> str:
        request = DescribeTransactionsRequest(transactional_ids=[ID])
        answer = await self.ask(request, 0, lambda each: each.transaction_states[0].error_code)
        return str(answer.transaction_states[0].transaction_state)

    async def until_complete(self) -> None:
        async with asyncio.timeout(20):
            while await self.state() != "CompleteCommit":  # noqa: ASYNC110  it has no event
                await asyncio.sleep(0.01)


async def begun(fleet: Fleet, *topics: str) -> Producer:
    """A producer whose transaction has a record in each of these topics."""
    producer = Producer(fleet)
    await producer.init()
    await producer.add(*topics)
    for topic in topics:
        await producer.write(topic)
    return producer


def markers_of(fleet: Fleet, topic: str) -> list[Marker]:
    """The markers in the log of the topic's leader."""
    partition = fleet.leader(topic)
    assert partition is not None
    piece: Any = partition.log.read(0, 1 << 20)
    batches = piece.read()
    return [
        marker
        for position, _ in iterate_headers(batches)
        if (marker := read_marker(batches, position)) is not None
    ]


async def until_stable(fleet: Fleet, topic: str) -> None:
    """Readers of committed records get all."""

    def is_stable() -> bool:
        led = fleet.leader(topic)
        return led is not None and led.last_stable_offset == led.log_end_offset

    await until(is_stable)


async def test_each_leader_gets_its_markers_and_the_transaction_is_complete(tmp_path: Path) -> None:
    async with fleet_of(tmp_path, 1, 2, 3, transactions=True) as fleet:
        topics = {broker_id: f"t{broker_id}" for broker_id in (1, 2, 3)}
        for leader, topic in topics.items():
            await fleet.create_topic(topic, leader, *({1, 2, 3} - {leader}))
        producer = await begun(fleet, *topics.values())
        led = fleet.leader("t1")
        assert led is not None
        assert led.last_stable_offset == 0
        producer_id, epoch = producer.pair
        await producer.commit()
        await producer.until_complete()
        coordinator = await producer.coordinator()
        shard = coordinator.rooms.partitions.get(TRANSACTION_STATE_TOPIC, 0)
        assert shard is not None
        for topic in topics.values():
            expected = Marker(producer_id, epoch + 1, True, shard.leader_epoch)
            assert markers_of(fleet, topic) == [expected]
            await until_stable(fleet, topic)
        assert len({fleet.logs("t1")[each] for each in (1, 2, 3)}) == 1


@pytest.mark.parametrize("is_failure", [False, True], ids=["leaves", "fails"])
async def test_a_new_coordinator_ends_what_the_one_before_had_decided(
    tmp_path: Path, monkeypatch, *, is_failure: bool
) -> None:
    async with fleet_of(tmp_path, 1, 2, 3, transactions=True) as fleet:
        producer = Producer(fleet)
        first = await producer.coordinator()
        first_id = first.config.node_id
        others = {1, 2, 3} - {first_id}
        await fleet.create_topic("theirs", *others, first_id)
        await fleet.create_topic("its", first_id, *others)
        producer = await begun(fleet, "theirs", "its")
        monkeypatch.setattr(first.rooms.transactions.markers, "_send", lambda: None)
        await producer.commit()
        assert await producer.state() == "PrepareCommit"
        assert markers_of(fleet, "theirs") == markers_of(fleet, "its") == []
        before = fleet.state(TRANSACTION_STATE_TOPIC).leader_epoch
        if is_failure:  # then it hands nothing over
            first.life.fail("its disk is broken")
        await fleet.stop(first_id)
        await producer.until_complete()
        for topic in ("theirs", "its"):
            (marker,) = markers_of(fleet, topic)
            assert marker.is_commit
            assert marker.coordinator_epoch > before
            await until_stable(fleet, topic)
        await producer.add("theirs")
        assert await producer.state() == "Ongoing", "the producer goes on"


async def test_a_marker_on_its_way_to_a_leader_that_stops_goes_to_the_next_leader(
    tmp_path: Path, monkeypatch
) -> None:
    async with fleet_of(tmp_path, 1, 2, 3, transactions=True) as fleet:
        producer = Producer(fleet)
        coordinator_id = (await producer.coordinator()).config.node_id
        leader_id, other_id = {1, 2, 3} - {coordinator_id}
        await fleet.create_topic("t", leader_id, other_id, coordinator_id)
        await fleet.create_topic("mine", coordinator_id, other_id, leader_id)
        producer = await begun(fleet, "t", "mine")
        arrived = []

        def answer_nothing(markers: Any) -> None:
            arrived.append(markers)
            raise CloseConnection("as if it had died with the request")

        appends = fleet.brokers[leader_id].rooms.transactions.marker_appends
        monkeypatch.setattr(appends, "append", answer_nothing)
        await producer.commit()
        await until(lambda: arrived)
        await until(lambda: markers_of(fleet, "mine"))
        assert await producer.state() == "PrepareCommit"
        await fleet.stop(leader_id)
        await producer.until_complete()
        assert [each.is_commit for each in markers_of(fleet, "t")] == [True]
        await until_stable(fleet, "t")


async def test_a_topic_that_is_deleted_before_its_marker_holds_nothing_up(
    tmp_path: Path, monkeypatch
) -> None:
    async with fleet_of(tmp_path, 1, 2, 3, transactions=True) as fleet:
        coordinator = await Producer(fleet).coordinator()
        for topic in ("kept", "deleted"):
            await fleet.create_topic(topic, 1, 2, 3)
        producer = await begun(fleet, "kept", "deleted")
        markers = coordinator.rooms.transactions.markers
        monkeypatch.setattr(markers, "may_send", lambda: False)
        await producer.commit()
        delete = DeleteTopicsRequest(topic_names=["deleted"], timeout_ms=10_000)
        (deleted,) = (await ask_broker(fleet.any, delete, 5)).responses
        assert deleted.error_code == 0
        monkeypatch.setattr(markers, "may_send", lambda: True)
        await producer.until_complete()
        assert [each.is_commit for each in markers_of(fleet, "kept")] == [True]
