import asyncio

import pytest
from logfleet.client import metadata
from logfleet.client.cluster import Client
from logfleet.client.errors import ClientError, KafkaError
from logfleet.client.fetcher import Fetcher
from logfleet.client.offsets import IsolationLevel, OffsetSpec, TopicPartition
from logfleet.records.errors import CorruptRecords
from logfleet.records.record import ProducerStamp, Record, build_batch
from logfleet.wire.errors import ErrorCode
from logfleet.wire.messages import (
    FetchRequest,
    FetchResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    MetadataRequest,
    MetadataResponse,
)

from broker_image.tests.unit.client.fake_broker import TOPIC_ID, FakeBroker

pytestmark = pytest.mark.asyncio

BATCH_RECORDS = 10
T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)


def batch(base_offset: int, **kwargs) -> bytes:
    records = [Record(None, b"%d" % (base_offset + i), 1000) for i in range(BATCH_RECORDS)]
    return bytes(build_batch(records, base_offset=base_offset, **kwargs))


class Log:
    """Answers Fetch from partitions with `batches` batches each; errors: codes to answer first, by partition."""

    def __init__(self, broker: FakeBroker, batches: int = 3) -> None:
        self.broker, self.batches = broker, batches
        self.errors: dict[int, list[int]] = {}
        self.throttle_ms = 0
        self.idle = asyncio.Event()
        broker.answers[FetchRequest] = self.fetch

    async def fetch(self, request: FetchRequest) -> FetchResponse:
        topics = []
        for topic in request.topics:
            known = topic.topic_id == self.broker.topic_id
            rows = [self.row(each) if known else unknown(each) for each in topic.partitions]
            if not any(row.records or row.error_code for row in rows):
                self.idle.set()
                await asyncio.sleep(request.max_wait_ms / 1000)
            answer = FetchResponse.FetchableTopicResponse(
                topic=topic.topic, topic_id=topic.topic_id, partitions=rows
            )
            topics.append(answer)
        return FetchResponse(throttle_time_ms=self.throttle_ms, responses=topics)

    def row(self, asked: FetchRequest.FetchPartition) -> FetchResponse.PartitionData:
        row = FetchResponse.PartitionData(partition_index=asked.partition)
        if self.errors.get(asked.partition):
            row.error_code = self.errors[asked.partition].pop(0)
            return row
        row.high_watermark = self.batches * BATCH_RECORDS
        if asked.fetch_offset < row.high_watermark:
            row.records = batch(asked.fetch_offset - asked.fetch_offset % BATCH_RECORDS)
        elif asked.fetch_offset > row.high_watermark:
            row.error_code = ErrorCode.OFFSET_OUT_OF_RANGE
        return row


def unknown(asked: FetchRequest.FetchPartition) -> FetchResponse.PartitionData:
    code = ErrorCode.UNKNOWN_TOPIC_ID
    return FetchResponse.PartitionData(partition_index=asked.partition, error_code=code)


async def test_partitions_without_leader_share_one_question_about_their_topic(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # longer than a busy machine takes for 50 partitions
    monkeypatch.setattr(metadata, "DOUBTED_AGE_MS_MAX", 60_000)
    async with FakeBroker({"t": 50}).running() as broker, Client(broker.bootstrap) as client:
        broker.leaderless = {("t", index) for index in range(50)}
        fetcher = Fetcher(client)
        fetcher.assign({TopicPartition("t", index): 0 for index in range(50)})
        assert await fetcher.poll(timeout_ms=0) == []
        assert len(broker.of(MetadataRequest)) == 1


async def read(fetcher: Fetcher, records: int) -> dict[TopicPartition, list[int]]:
    offsets: dict[TopicPartition, list[int]] = {}
    while sum(map(len, offsets.values())) < records:
        for fetched in await fetcher.poll():
            found = [record.offset for record in fetched.records()]
            offsets.setdefault(fetched.partition, []).extend(found)
    return offsets


async def test_records_come_in_order_from_the_offset_asked_for() -> None:
    async with FakeBroker({"t": 2}).running() as broker, Client(broker.bootstrap) as client:
        Log(broker)
        fetcher = Fetcher(client)
        fetcher.assign({T0: 4, T1: 20})
        assert await read(fetcher, 36) == {T0: list(range(4, 30)), T1: list(range(20, 30))}
        assert fetcher.positions() == {T0: 30, T1: 30}
        assert {request.topics[0].topic_id for request in broker.of(FetchRequest)} == {TOPIC_ID}


async def test_a_leader_that_throttles_is_left_alone_and_does_not_hold_up_a_poll() -> None:
    async with FakeBroker({"t": 1}).running() as broker, Client(broker.bootstrap) as client:
        Log(broker).throttle_ms = 60_000
        fetcher = Fetcher(client)
        fetcher.assign({T0: 0})
        assert len(await fetcher.poll()) == 1
        async with asyncio.timeout(10):
            assert await fetcher.poll(timeout_ms=20) == []
        assert len(broker.of(FetchRequest)) == 1


async def test_a_leader_is_asked_again_when_its_throttling_is_over() -> None:
    async with FakeBroker({"t": 1}).running() as broker, Client(broker.bootstrap) as client:
        Log(broker).throttle_ms = 20
        fetcher = Fetcher(client)
        fetcher.assign({T0: 0})
        assert await read(fetcher, 30) == {T0: list(range(30))}


async def test_polling_an_idle_partition_waits_and_gives_nothing() -> None:
    async with FakeBroker({"t": 1}).running() as broker, Client(broker.bootstrap) as client:
        log = Log(broker, batches=0)
        fetcher = Fetcher(client, max_wait_ms=20)
        fetcher.assign({T0: 0})
        assert await fetcher.poll(1) == []
        await log.idle.wait()
        log.batches = 1
        assert await read(fetcher, 10) == {T0: list(range(10))}
        fetcher.assign({})
        assert await fetcher.poll(1) == []


async def test_what_was_asked_for_before_a_seek_is_dropped() -> None:
    async with FakeBroker({"t": 1}).running() as broker, Client(broker.bootstrap) as client:
        log = Log(broker)
        fetcher = Fetcher(client, max_wait_ms=20)
        fetcher.assign({T0: 30})
        assert await fetcher.poll(1) == []
        await log.idle.wait()
        fetcher.seek(T0, 25)
        assert await read(fetcher, 5) == {T0: list(range(25, 30))}


async def test_a_moved_leader_is_looked_up_anew() -> None:
    async with FakeBroker({"t": 2}).running() as broker, Client(broker.bootstrap) as client:
        log = Log(broker)
        log.errors = {0: [ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.UNKNOWN_LEADER_EPOCH]}
        fetcher = Fetcher(client)
        fetcher.assign({T0: 20, T1: 20})
        assert await read(fetcher, 20) == {T0: list(range(20, 30)), T1: list(range(20, 30))}
        assert len(broker.of(MetadataRequest)) == 2


async def test_a_lost_connection_is_made_anew() -> None:
    async with FakeBroker({"t": 1}).running() as broker, Client(broker.bootstrap) as client:
        log = Log(broker)
        fetcher = Fetcher(client, max_wait_ms=5_000)
        fetcher.assign({T0: 30})
        assert await fetcher.poll(1) == []
        await log.idle.wait()
        broker.disconnect()
        log.batches = 4
        assert await read(fetcher, 10) == {T0: list(range(30, 40))}


async def test_an_offset_out_of_range_is_raised_or_reset() -> None:
    async with FakeBroker({"t": 2}).running() as broker, Client(broker.bootstrap) as client:
        Log(broker)
        fetcher = Fetcher(client)
        fetcher.assign({T0: 31})
        with pytest.raises(KafkaError, match="t-0: OFFSET_OUT_OF_RANGE"):
            await fetcher.poll()
        found = ListOffsetsResponse.ListOffsetsPartitionResponse(partition_index=0, offset=10)
        topic = ListOffsetsResponse.ListOffsetsTopicResponse(name="t", partitions=[found])
        broker.answers[ListOffsetsRequest] = lambda _: ListOffsetsResponse(topics=[topic])
        fetcher = Fetcher(client, reset=OffsetSpec.EARLIEST)
        fetcher.assign({T0: 31})
        assert await read(fetcher, 20) == {T0: list(range(10, 30))}


OTHER_ID = b"fedcba9876543210"


async def test_an_offset_of_a_topic_made_anew_is_raised_or_reset() -> None:
    async with FakeBroker({"t": 1}).running() as broker, Client(broker.bootstrap) as client:
        Log(broker, batches=2)
        begin = ListOffsetsResponse.ListOffsetsPartitionResponse(partition_index=0, offset=0)
        topic = ListOffsetsResponse.ListOffsetsTopicResponse(name="t", partitions=[begin])
        broker.answers[ListOffsetsRequest] = lambda _: ListOffsetsResponse(topics=[topic])
        strict, lenient = Fetcher(client), Fetcher(client, reset=OffsetSpec.EARLIEST)
        for fetcher in (strict, lenient):
            fetcher.assign({T0: 0})
            assert await read(fetcher, 10) == {T0: list(range(10))}
            assert fetcher.topic_ids() == {"t": TOPIC_ID}
        broker.topic_id = OTHER_ID
        with pytest.raises(
            KafkaError, match="t-0: the topic was deleted and created again"
        ) as refused:
            await read(strict, 10)
        assert refused.value.code == ErrorCode.OFFSET_OUT_OF_RANGE
        assert await read(lenient, 20) == {T0: list(range(20))}
        assert lenient.topic_ids() == {"t": OTHER_ID}


async def test_a_broker_whose_metadata_lag_moves_no_position() -> None:
    async with FakeBroker({"t": 1}).running() as broker, Client(broker.bootstrap) as client:
        Log(broker, batches=2)
        fetcher = Fetcher(client)
        fetcher.assign({T0: 0})
        assert await read(fetcher, 10) == {T0: list(range(10))}
        former = iter([OTHER_ID])

        def lagging(request: MetadataRequest) -> MetadataResponse:
            answer = broker.metadata(request)
            for topic in answer.topics:
                topic.topic_id = next(former, TOPIC_ID)
            return answer

        broker.answers[MetadataRequest] = lagging
        client.metadata.forget(["t"])
        assert await read(fetcher, 10) == {T0: list(range(10, 20))}
        assert next(former, None) is None


async def test_a_position_that_no_leader_answered_for_belongs_to_no_topic_yet() -> None:
    async with FakeBroker({"t": 1}).running() as broker, Client(broker.bootstrap) as client:
        Log(broker)
        await client.topic("t")
        broker.topic_id = OTHER_ID
        fetcher = Fetcher(client)
        fetcher.assign({T0: 10})
        assert await read(fetcher, 10) == {T0: list(range(10, 20))}


async def test_what_arrived_comes_before_the_error_of_another_partition() -> None:
    async with FakeBroker({"t": 2}).running() as broker, Client(broker.bootstrap) as client:
        log = Log(broker)
        log.errors = {1: [ErrorCode.TOPIC_AUTHORIZATION_FAILED]}
        fetcher = Fetcher(client)
        fetcher.assign({T0: 0, T1: 0})
        assert await read(fetcher, 10) == {T0: list(range(10))}
        with pytest.raises(KafkaError, match="t-1: TOPIC_AUTHORIZATION_FAILED"):
            await fetcher.poll()


async def test_records_come_from_the_replica_that_the_leader_names_for_as_long_as_it_has_them() -> (
    None
):
    """KIP-392."""
    async with (
        FakeBroker({"t": 1}).running() as leader,
        FakeBroker({"t": 1}).running() as follower,
        Client(leader.bootstrap) as client,
    ):
        with_both = MetadataResponse.MetadataResponseBroker(
            node_id=2, host="127.0.0.1", port=follower.port
        )

        def metadata_of_both(request: MetadataRequest) -> MetadataResponse:
            answer = leader.metadata(request)
            answer.brokers.append(with_both)
            return answer

        leader.answers[MetadataRequest] = metadata_of_both
        elsewhere = FetchResponse.PartitionData(partition_index=0, preferred_read_replica=2)
        topic = FetchResponse.FetchableTopicResponse(topic_id=TOPIC_ID, partitions=[elsewhere])
        leader.answers[FetchRequest] = lambda _: FetchResponse(responses=[topic])
        log = Log(follower)
        fetcher = Fetcher(client, rack="b")
        fetcher.assign({T0: 0})
        assert await read(fetcher, 20) == {T0: list(range(20))}
        assert [request.rack_id for request in leader.of(FetchRequest)] == ["b"]
        assert len(follower.of(FetchRequest)) == 2
        log.errors = {0: [ErrorCode.OFFSET_OUT_OF_RANGE]}
        Log(leader)
        assert await read(fetcher, 10) == {T0: list(range(20, 30))}
        assert [len(one.of(FetchRequest)) for one in (leader, follower)] == [2, 3]


async def test_what_does_not_pass_is_raised_in_the_end() -> None:
    async with (
        FakeBroker({"t": 1}).running() as broker,
        Client(broker.bootstrap, timeout_ms=150) as client,
    ):
        log = Log(broker)
        log.errors = {0: [ErrorCode.KAFKA_STORAGE_ERROR] * 10}
        fetcher = Fetcher(client)
        fetcher.assign({T0: 0})
        with pytest.raises(ClientError, match="KAFKA_STORAGE_ERROR"):
            await fetcher.poll(10_000)


async def test_control_batches_and_half_batches_are_not_records() -> None:
    async with FakeBroker({"t": 1}).running() as broker, Client(broker.bootstrap) as client:
        row = FetchResponse.PartitionData(
            records=batch(0, control=True) + batch(10) + batch(20)[:-5]
        )
        topic = FetchResponse.FetchableTopicResponse(topic_id=TOPIC_ID, partitions=[row])
        broker.answers[FetchRequest] = lambda _: FetchResponse(responses=[topic])
        fetcher = Fetcher(client)
        fetcher.assign({T0: 0})
        (fetched,) = await fetcher.poll()
        assert [record.offset for record in fetched.records()] == list(range(10, 20))
        assert fetched.end_offset == 20


async def test_a_wrong_checksum_is_not_a_record() -> None:
    async with FakeBroker({"t": 1}).running() as broker, Client(broker.bootstrap) as client:
        damaged = bytearray(batch(0))
        damaged[-3] ^= 1
        row = FetchResponse.PartitionData(records=damaged)
        topic = FetchResponse.FetchableTopicResponse(topic_id=TOPIC_ID, partitions=[row])
        broker.answers[FetchRequest] = lambda _: FetchResponse(responses=[topic])
        fetcher = Fetcher(client)
        fetcher.assign({T0: 0})
        (fetched,) = await fetcher.poll()
        with pytest.raises(CorruptRecords, match="t-0: checksum at offset 0"):
            list(fetched.records())
        row.records = b"x" * 100
        fetcher.seek(T0, 0)
        with pytest.raises(KafkaError, match="t-0: no batch"):
            await fetcher.poll()


def with_an_aborted_transaction(broker: FakeBroker) -> None:
    """Offsets 0-9 aborted, 10-19 committed; the broker names both, whoever reads."""
    aborted, committed = ProducerStamp(7, 0, 0, True), ProducerStamp(8, 0, 0, True)
    row = FetchResponse.PartitionData(
        records=batch(0, producer=aborted) + batch(10, producer=committed),
        high_watermark=30,
        last_stable_offset=20,
        aborted_transactions=[FetchResponse.AbortedTransaction(producer_id=7, first_offset=0)],
    )
    topic = FetchResponse.FetchableTopicResponse(topic_id=TOPIC_ID, partitions=[row])
    broker.answers[FetchRequest] = lambda _: FetchResponse(responses=[topic])


async def test_a_reader_of_committed_records_gets_none_of_an_aborted_transaction() -> None:
    async with FakeBroker({"t": 1}).running() as broker, Client(broker.bootstrap) as client:
        with_an_aborted_transaction(broker)
        fetcher = Fetcher(client, isolation=IsolationLevel.READ_COMMITTED)
        fetcher.assign({T0: 0})
        (fetched,) = await fetcher.poll()
        assert [record.offset for record in fetched.records()] == list(range(10, 20))
        assert (fetched.high_watermark, fetched.last_stable_offset) == (30, 20)
        assert [request.isolation_level for request in broker.of(FetchRequest)] == [1]


async def test_the_position_moves_over_batches_without_visible_records() -> None:
    async with FakeBroker({"t": 1}).running() as broker, Client(broker.bootstrap) as client:
        stamp = ProducerStamp(7, 0, 0, True)
        row = FetchResponse.PartitionData(
            records=batch(0, producer=stamp),
            aborted_transactions=[FetchResponse.AbortedTransaction(producer_id=7, first_offset=0)],
        )
        topic = FetchResponse.FetchableTopicResponse(topic_id=TOPIC_ID, partitions=[row])
        broker.answers[FetchRequest] = lambda _: FetchResponse(responses=[topic])
        fetcher = Fetcher(client, isolation=IsolationLevel.READ_COMMITTED)
        fetcher.assign({T0: 0})
        (fetched,) = await fetcher.poll()
        assert list(fetched.records()) == []
        assert fetcher.positions() == {T0: 10}


async def test_a_reader_of_uncommitted_records_gets_all_even_if_a_broker_lists_aborted_ones() -> (
    None
):
    async with FakeBroker({"t": 1}).running() as broker, Client(broker.bootstrap) as client:
        with_an_aborted_transaction(broker)
        fetcher = Fetcher(client)
        fetcher.assign({T0: 0})
        (fetched,) = await fetcher.poll()
        assert [record.offset for record in fetched.records()] == list(range(20))
        assert [request.isolation_level for request in broker.of(FetchRequest)] == [0]


async def test_a_reader_of_committed_records_is_reset_to_the_last_stable_offset() -> None:
    async with FakeBroker({"t": 1}).running() as broker, Client(broker.bootstrap) as client:
        Log(broker)
        end = ListOffsetsResponse.ListOffsetsPartitionResponse(partition_index=0, offset=20)
        topic = ListOffsetsResponse.ListOffsetsTopicResponse(name="t", partitions=[end])
        broker.answers[ListOffsetsRequest] = lambda _: ListOffsetsResponse(topics=[topic])
        committed = IsolationLevel.READ_COMMITTED
        fetcher = Fetcher(client, reset=OffsetSpec.LATEST, isolation=committed)
        fetcher.assign({T0: 31})
        assert await read(fetcher, 10) == {T0: list(range(20, 30))}
        assert [request.isolation_level for request in broker.of(ListOffsetsRequest)] == [1]
