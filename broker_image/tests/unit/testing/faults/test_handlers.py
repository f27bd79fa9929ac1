"""Faults at a broker in this process, asked over its socket."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
import pytest_asyncio
from logfleet.client.connection import Connection
from logfleet.client.errors import ConnectionLost
from logfleet.node.broker import Broker
from logfleet.node.handlers import all_handlers
from logfleet.records.record import Record, build_batch
from logfleet.testing.faults.handlers import TESTING_CLIENT_ID, forget_repeats, with_faults
from logfleet.testing.faults.rules import Fault, FaultBook
from logfleet.wire.messages import (
    FetchRequest,
    FetchResponse,
    HeartbeatRequest,
    HeartbeatResponse,
    MetadataRequest,
    MetadataResponse,
    ProduceRequest,
    ProduceResponse,
)

from broker_image.tests.unit.node.broker_rig import config, create_topic

pytestmark = pytest.mark.asyncio
Data = ProduceRequest.PartitionProduceData


class Rig:
    """A broker with a topic of two partitions, and the faults that are armed at it."""

    def __init__(self, broker: Broker, book: FaultBook) -> None:
        self.broker, self.book = broker, book
        (self.listener,) = broker.opened.listeners.all
        topic = broker.image.topic("orders")
        assert topic is not None
        self.topic_id = topic.id

    @asynccontextmanager
    async def connected(self, client_id: str = "app") -> AsyncIterator[Connection]:
        connection = await Connection.connect("127.0.0.1", self.listener.port, client_id)
        yield connection
        connection.close()

    def end(self, partition: int = 0) -> int:
        return self.broker.rooms.partitions.by_name["orders"].partitions[partition].log_end_offset

    async def send(self, connection: Connection, *partitions: int, acks: int = -1):
        rows = [
            Data(index=each, records=bytes(build_batch([Record(b"k", b"v", 1)])))
            for each in partitions
        ]
        topic = ProduceRequest.TopicProduceData(topic_id=self.topic_id, partition_data=rows)
        request = ProduceRequest(acks=acks, timeout_ms=1_000, topic_data=[topic])
        if not acks:
            connection.post(request)
            return []
        answer = await connection.request(request, ProduceResponse)
        (responded,) = answer.responses
        return [(row.index, row.error_code) for row in responded.partition_responses]

    async def fetch(
        self,
        connection: Connection,
        *,
        wait_ms: int = 0,
        session_id: int = 0,
        session_epoch: int = -1,
    ) -> FetchResponse:
        topics = []
        if session_epoch <= 0:
            row = FetchRequest.FetchPartition(fetch_offset=0, partition_max_bytes=1 << 20)
            topics = [FetchRequest.FetchTopic(topic_id=self.topic_id, partitions=[row])]
        request = FetchRequest(
            max_wait_ms=wait_ms,
            min_bytes=1,
            max_bytes=1 << 20,
            topics=topics,
            session_id=session_id,
            session_epoch=session_epoch,
        )
        return await connection.request(request, FetchResponse)


@pytest_asyncio.fixture
async def rig(tmp_path):
    book = FaultBook()
    async with Broker(config(tmp_path), handlers=with_faults(all_handlers(), book)) as broker:
        await create_topic(broker, "orders", 2)
        yield Rig(broker, book)


def only_row(response: FetchResponse) -> FetchResponse.PartitionData:
    ((row,),) = (topic.partitions for topic in response.responses)
    return row


async def test_an_error_is_put_into_its_row_and_the_rest_is_carried_out(rig: Rig) -> None:
    fault = Fault(api="Produce", error="NOT_LEADER_OR_FOLLOWER", topic="orders", partition=1)
    armed = rig.book.arm(fault)
    async with rig.connected() as connection:
        assert sorted(await rig.send(connection, 0, 1)) == [(0, 0), (1, 6)]
        assert (rig.end(0), rig.end(1), armed.hits) == (1, 0, 1)
        assert sorted(await rig.send(connection, 0, 1)) == [(0, 0), (1, 0)]
    assert (rig.end(0), rig.end(1), armed.hits) == (2, 1, 1)


async def test_a_repeated_request_is_hit_too(rig: Rig) -> None:
    async with rig.connected() as connection:
        for _ in range(4):
            await rig.send(connection, 0)
        peers = [each.peer for each in rig.listener.connections if each.peer.repeat_end]
        assert len(peers) == 1
        assert peers[0].repeats
        armed = rig.book.arm(Fault(api="Produce", error="NOT_ENOUGH_REPLICAS", times=20))
        for each in rig.listener.connections:
            forget_repeats(each.peer)
        answers = [await rig.send(connection, 0) for _ in range(21)]
    assert answers == [[(0, 19)]] * 20 + [[(0, 0)]]
    assert (armed.hits, rig.end()) == (20, 5)


async def test_a_lost_answer_is_one_to_a_request_that_was_carried_out(rig: Rig) -> None:
    armed = rig.book.arm(Fault(api="Produce", lose_answer=True))
    async with rig.connected() as connection:
        with pytest.raises(ConnectionLost):
            await rig.send(connection, 0)
    assert (armed.hits, rig.end()) == (1, 1)


async def test_a_dropped_request_is_not_carried_out(rig: Rig) -> None:
    armed = rig.book.arm(Fault(api="Produce", drop=True))
    async with rig.connected() as connection:
        with pytest.raises(ConnectionLost):
            await rig.send(connection, 0)
    assert (armed.hits, rig.end()) == (1, 0)


@pytest.mark.parametrize("partitions", [(0,), (0, 1)])
async def test_an_error_without_acks_ends_the_connection(rig: Rig, partitions: tuple[int]) -> None:
    rig.book.arm(Fault(api="Produce", error="NOT_LEADER_OR_FOLLOWER", partition=0))
    async with rig.connected() as connection:
        await rig.send(connection, *partitions, acks=0)
        with pytest.raises(ConnectionLost):
            await rig.fetch(connection)
    assert (rig.end(0), rig.end(1)) == (0, len(partitions) - 1)


async def test_a_late_answer_is_one_to_a_request_that_was_carried_out_at_once(
    rig: Rig, until
) -> None:
    rig.book.arm(Fault(api="Produce", delay_s=0.2))
    async with rig.connected() as connection:
        started = asyncio.get_running_loop().time()
        answer = asyncio.ensure_future(rig.send(connection, 0))
        await until(lambda: rig.end() == 1)
        assert not answer.done()
        assert await answer == [(0, 0)]
        assert asyncio.get_running_loop().time() - started >= 0.2


@pytest.mark.parametrize("api", ["Produce", "Fetch"])
async def test_a_late_answer_comes_at_once_when_the_broker_stops(rig: Rig, until, api) -> None:
    armed = rig.book.arm(Fault(api=api, delay_s=600))
    async with rig.connected() as connection:
        asked = rig.send(connection, 0) if api == "Produce" else rig.fetch(connection, wait_ms=1)
        answer = asyncio.ensure_future(asked)
        await until(lambda: armed.hits)
        await asyncio.wait_for(rig.listener.stop(60), 10)
        assert await answer


async def test_a_parked_fetch_is_answered_late_or_not_at_all(rig: Rig) -> None:
    late = rig.book.arm(Fault(api="Fetch", delay_s=0.05))
    lost = rig.book.arm(Fault(api="Fetch", lose_answer=True))
    async with rig.connected() as connection:
        assert only_row(await rig.fetch(connection, wait_ms=1)).error_code == 0
        with pytest.raises(ConnectionLost):
            await rig.fetch(connection, wait_ms=1)
    assert (late.hits, lost.hits) == (1, 1)


async def test_records_are_torn_where_a_fetch_has_some(rig: Rig) -> None:
    armed = rig.book.arm(Fault(api="Fetch", tear=20, topic="orders"))
    async with rig.connected() as connection:
        assert not only_row(await rig.fetch(connection)).records
        assert armed.hits == 0
        waiting = asyncio.ensure_future(rig.fetch(connection, wait_ms=10_000))
        async with rig.connected() as other:
            await rig.send(other, 0)
        torn = only_row(await waiting)
        whole = only_row(await rig.fetch(connection))
    assert isinstance(torn.records, bytes | memoryview)
    assert isinstance(whole.records, bytes | memoryview)
    assert bytes(torn.records) == bytes(whole.records)[:20]
    assert len(whole.records) > 20
    assert armed.hits == 1


async def test_a_fetch_that_waits_within_its_session_gets_the_error_at_once(rig: Rig) -> None:
    async with rig.connected() as connection:
        first = await rig.fetch(connection, session_epoch=0)
        assert first.session_id
        armed = rig.book.arm(Fault(api="Fetch", error="OFFSET_OUT_OF_RANGE", topic="orders"))
        answer = await rig.fetch(
            connection, wait_ms=60_000, session_id=first.session_id, session_epoch=1
        )
        assert (only_row(answer).error_code, armed.hits) == (1, 1)
        async with rig.connected() as other:
            await rig.send(other, 0)
        again = await rig.fetch(
            connection, wait_ms=60_000, session_id=first.session_id, session_epoch=2
        )
    assert (only_row(again).error_code, bool(only_row(again).records)) == (0, True)


async def test_a_fetch_of_a_session_that_is_gone_keeps_its_own_error(rig: Rig) -> None:
    rig.book.arm(Fault(api="Fetch", error="OFFSET_OUT_OF_RANGE"))
    async with rig.connected() as connection:
        answer = await rig.fetch(connection, session_id=77, session_epoch=3)
    assert (answer.error_code, answer.responses) == (70, [])


async def test_metadata_of_a_topic_has_the_error(rig: Rig) -> None:
    rig.book.arm(Fault(api="Metadata", error="LEADER_NOT_AVAILABLE", topic="orders"))
    async with rig.connected() as connection:
        answers = [
            await connection.request(MetadataRequest(topics=None), MetadataResponse)
            for _ in range(2)
        ]
    assert [answer.topics[0].error_code for answer in answers] == [5, 0]


async def test_an_api_without_rows_is_not_carried_out(rig: Rig) -> None:
    rig.book.arm(Fault(api="Heartbeat", error="REBALANCE_IN_PROGRESS", group="g"))
    async with rig.connected() as connection:
        answers = [
            await connection.request(HeartbeatRequest(group_id=group), HeartbeatResponse)
            for group in "fg"
        ]
    assert [answer.error_code for answer in answers] == [16, 27]


async def test_what_the_test_itself_asks_is_not_hit(rig: Rig) -> None:
    armed = rig.book.arm(Fault(api="Produce", observe=True))
    async with rig.connected(TESTING_CLIENT_ID) as own, rig.connected() as connection:
        await rig.send(own, 0)
        assert armed.hits == 0
        await rig.send(connection, 0)
    assert armed.hits == 1
