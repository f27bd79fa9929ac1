import asyncio
import sys

import pytest
from logfleet.client.batches import Batch
from logfleet.client.cluster import Client
from logfleet.client.errors import ClientError, ConnectionLost, KafkaError, RequestTimedOut
from logfleet.client.partitioner import partition_of_key
from logfleet.client.producer import Producer
from logfleet.records.compression import Codec
from logfleet.records.record import Record, read_records
from logfleet.wire.errors import ErrorCode
from logfleet.wire.messages import (
    MetadataRequest,
    ProduceRequest,
)

from broker_image.tests.unit.client.fake_broker import FakeBroker, Reply
from broker_image.tests.unit.client.fake_log import Log

pytestmark = pytest.mark.asyncio


async def test_records_are_written_in_order_and_say_where_they_are() -> None:
    async with FakeBroker({"t": 2}).running() as broker, Client(broker.bootstrap) as client:
        log = Log(broker)
        async with Producer(client) as producer:
            deliveries = [
                await producer.send("t", b"%d" % i, partition=1, timestamp_ms=i) for i in range(50)
            ]
            written = [await delivery for delivery in deliveries]
        assert [(row.partition, row.offset, row.timestamp_ms) for row in written] == [
            (1, i, i) for i in range(50)
        ]
        assert log.values == {1: [b"%d" % i for i in range(50)]}


async def test_keys_have_their_place_and_the_rest_sticks_together() -> None:
    async with FakeBroker({"t": 5}).running() as broker, Client(broker.bootstrap) as client:
        log = Log(broker)
        async with Producer(client, linger_ms=60_000) as producer:
            for _ in range(20):
                await producer.send("t", b"x")
            delivery = await producer.send("t", b"y", key=b"some key")
            await producer.flush()
            assert (await delivery).partition == partition_of_key(b"some key", 5)
        assert max(len(values) for values in log.values.values()) >= 20


async def test_records_without_keys_go_to_partitions_that_have_a_leader() -> None:
    async with FakeBroker({"t": 5}).running() as broker, Client(broker.bootstrap) as client:
        log = Log(broker)
        broker.leaderless = {("t", index) for index in range(5) if index != 3}
        async with Producer(client) as producer:
            for _ in range(20):  # one choice each
                await (await producer.send("t", b"x"))
        assert log.values == {3: [b"x"] * 20}


async def test_the_choice_is_given_up_when_its_partition_loses_its_leader(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("logfleet.client.metadata.AGE_MS_MAX", 0)  # each look is a new question
    async with FakeBroker({"t": 2}).running() as broker, Client(broker.bootstrap) as client:
        log = Log(broker)
        async with Producer(client, linger_ms=0) as producer:
            first = await producer.send("t", b"x")
            lost = first._batch.partition
            broker.leaderless = {("t", lost)}
            async with asyncio.timeout(10):
                while (second := await producer.send("t", b"y"))._batch is first._batch:
                    await asyncio.wait([first._batch.written], timeout=0.01)  # until it was tried
                assert (await second).partition == 1 - lost
            broker.leaderless = set()
            assert (await first).partition == lost
        assert log.values[1 - lost] == [b"y"]


async def test_records_without_keys_do_not_queue_behind_a_batch_that_fails() -> None:
    async with FakeBroker({"t": 2}).running() as broker, Client(broker.bootstrap) as client:
        log = Log(broker)
        log.refused = {0: ErrorCode.NOT_LEADER_OR_FOLLOWER}  # though it leads it, say the metadata
        async with Producer(client, linger_ms=0) as producer, asyncio.timeout(10):
            stuck = await producer.send("t", b"x", partition=0)
            while not stuck._batch.attempts:
                await asyncio.wait([stuck._batch.written], timeout=0.01)
            for _ in range(30):  # one choice each
                assert (await (await producer.send("t", b"y"))).partition == 1
            log.refused = {}
            assert (await stuck).partition == 0


async def test_where_no_partition_has_a_leader_records_wait_for_one() -> None:
    async with FakeBroker({"t": 3}).running() as broker, Client(broker.bootstrap) as client:
        log = Log(broker)
        broker.leaderless = {("t", index) for index in range(3)}
        async with Producer(client) as producer:
            delivery = await producer.send("t", b"x")
            broker.leaderless = set()
            await delivery
        assert list(log.values.values()) == [[b"x"]]


async def test_records_without_keys_turn_to_another_partition_when_a_batch_is_full(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    choices = iter([0, 1, 0])
    monkeypatch.setattr("random.choice", lambda among: among[next(choices)])
    async with FakeBroker({"t": 2}).running() as broker, Client(broker.bootstrap) as client:
        log = Log(broker)
        async with Producer(client, linger_ms=60_000, batch_bytes=500) as producer:
            deliveries = [await producer.send("t", b"%d" % i * 100) for i in range(6)]
            await deliveries[0]  # a full batch does not linger, though no other is behind it
            assert log.values == {0: [b"%d" % i * 100 for i in range(4)]}
        assert log.values[1] == [b"4" * 100, b"5" * 100]


@pytest.mark.parametrize("codec", list(Codec))
async def test_batches_are_compressed_with_headers_and_keys(codec: Codec) -> None:
    async with FakeBroker({"t": 1}).running() as broker, Client(broker.bootstrap) as client:
        log = Log(broker)
        async with Producer(client, codec=codec) as producer:
            await producer.send("t", None, key=b"k", headers=[("h", b"v")])
        (header,) = log.headers
        assert header.codec_bits == codec
        (request,) = broker.of(ProduceRequest)
        (record,) = read_records(request.topic_data[0].partition_data[0].records)
        assert (record.key, record.value, record.headers) == (b"k", None, (("h", b"v"),))


async def test_a_batch_fills_while_the_one_before_is_on_its_way() -> None:
    async with FakeBroker({"t": 1}).running() as broker, Client(broker.bootstrap) as client:
        log = Log(broker)
        log.held = asyncio.Event()
        async with Producer(client, linger_ms=0) as producer:
            await producer.send("t", b"first")
            await log.arrived.wait()
            for _ in range(30):
                await producer.send("t", b"more")
            log.held.set()
        assert [header.record_count for header in log.headers] == [1, 30]
        assert [header.base_sequence for header in log.headers] == [0, 1]


async def test_full_batches_do_not_linger() -> None:
    async with FakeBroker({"t": 1}).running() as broker, Client(broker.bootstrap) as client:
        log = Log(broker)
        async with Producer(client, linger_ms=60_000, batch_bytes=500) as producer:
            deliveries = [await producer.send("t", b"x" * 100) for _ in range(5)]
            await deliveries[0]
            assert log.headers[0].record_count == 4


@pytest.mark.parametrize(
    "outcome", [ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.REQUEST_TIMED_OUT, FakeBroker.CLOSE]
)
async def test_a_retry_sends_the_same_batch_with_the_same_sequence(outcome: int | bytes) -> None:
    async with FakeBroker({"t": 1}).running() as broker, Client(broker.bootstrap) as client:
        log = Log(broker)
        log.outcomes = [0, outcome, 0]
        async with Producer(client, linger_ms=0) as producer:
            await (await producer.send("t", b"a"))
            assert (await (await producer.send("t", b"b"))).offset == 1
            assert (await (await producer.send("t", b"c"))).offset == 2
        assert [header.base_sequence for header in log.headers] == [0, 1, 1, 2]
        assert log.headers[1] == log.headers[2]
        assert log.values == {0: [b"a", b"b", b"c"]}


async def test_a_refused_batch_fails_its_records_and_a_new_numbering_begins() -> None:
    async with FakeBroker({"t": 1}).running() as broker, Client(broker.bootstrap) as client:
        log = Log(broker)
        log.outcomes = [ErrorCode.MESSAGE_TOO_LARGE]
        async with Producer(client, linger_ms=0) as producer:
            refused = await producer.send("t", b"a")
            with pytest.raises(KafkaError, match="t-0: MESSAGE_TOO_LARGE"):
                await refused
            await (await producer.send("t", b"b"))
            with pytest.raises(KafkaError, match="MESSAGE_TOO_LARGE"):
                await producer.flush()
            await producer.flush()
        assert [(header.producer_id, header.base_sequence) for header in log.headers] == [
            (1, 0),
            (2, 0),
        ]


@pytest.mark.parametrize("acks", [-1, 1])
async def test_a_batch_that_is_too_large_is_cut_until_its_parts_are_taken(acks: int) -> None:
    values = [b"%03d" % i * 300 for i in range(200)]
    async with FakeBroker({"t": 1}).running() as broker, Client(broker.bootstrap) as client:
        log = Log(broker)
        log.batch_bytes_max = 20_000
        async with Producer(client, acks=acks, idempotent=acks == -1) as producer:
            deliveries = [await producer.send("t", value) for value in values]
            await producer.flush()
            assert log.values == {0: values}
            assert [(await delivery).offset for delivery in deliveries] == list(range(200))
        taken = [header for header in log.headers if header.size <= log.batch_bytes_max]
        if acks == -1:
            # nothing of a refused batch was taken, so its parts have its sequence numbers
            counts = [header.record_count for header in taken]
            sequences = [sum(counts[:i]) for i in range(len(counts))]
            assert [header.base_sequence for header in taken] == sequences
            assert {header.producer_id for header in taken} == {1}


async def test_only_the_record_that_is_too_large_by_itself_fails() -> None:
    values = [b"x" * (5_000 if i == 5 else 10) for i in range(16)]
    async with FakeBroker({"t": 1}).running() as broker, Client(broker.bootstrap) as client:
        log = Log(broker)
        log.batch_bytes_max = 4_000
        async with Producer(client) as producer:
            deliveries = [await producer.send("t", value) for value in values]
            with pytest.raises(KafkaError, match="t-0: MESSAGE_TOO_LARGE"):
                await producer.flush()
            with pytest.raises(KafkaError, match="t-0: MESSAGE_TOO_LARGE"):
                await deliveries.pop(5)
            assert [(await delivery).offset for delivery in deliveries] == list(range(15))
        assert log.values == {0: [b"x" * 10] * 15}


async def test_records_that_were_sent_meanwhile_come_after_the_parts_of_a_cut_batch() -> None:
    async with FakeBroker({"t": 1}).running() as broker, Client(broker.bootstrap) as client:
        log = Log(broker)
        log.batch_bytes_max = 200
        log.held = asyncio.Event()
        async with Producer(client, linger_ms=0) as producer:
            deliveries = [await producer.send("t", b"%d" % i * 100) for i in range(2)]
            await log.arrived.wait()
            deliveries += [await producer.send("t", b"%d" % i * 100) for i in range(2, 5)]
            log.held.set()
            assert [(await delivery).offset for delivery in deliveries] == list(range(5))
        assert log.values == {0: [b"%d" % i * 100 for i in range(5)]}


async def test_leaving_the_block_raises_what_nobody_awaited() -> None:
    async with FakeBroker({"t": 1}).running() as broker, Client(broker.bootstrap) as client:
        Log(broker).outcomes = [ErrorCode.INVALID_RECORD]
        with pytest.raises(KafkaError, match="INVALID_RECORD"):
            async with Producer(client) as producer:
                await producer.send("t", b"a")


async def test_a_failure_is_raised_once_where_it_is_asked_for() -> None:
    async with FakeBroker({"t": 1}).running() as broker, Client(broker.bootstrap) as client:
        Log(broker).outcomes = [ErrorCode.INVALID_RECORD]
        async with Producer(client, linger_ms=0) as producer:
            producer.raise_failure()  # there is none yet
            delivery = await producer.send("t", b"a")
            with pytest.raises(KafkaError, match="INVALID_RECORD"):
                await delivery
            with pytest.raises(KafkaError, match="INVALID_RECORD"):
                producer.raise_failure()
            producer.raise_failure()


async def test_an_exception_in_the_block_goes_on_by_itself() -> None:
    async with FakeBroker({"t": 1}).running() as broker, Client(broker.bootstrap) as client:
        Log(broker)
        deliveries = []

        async def fail() -> None:
            async with Producer(client, linger_ms=60_000) as producer:
                deliveries.append(await producer.send("t", b"a"))
                raise ZeroDivisionError

        with pytest.raises(ZeroDivisionError):
            await fail()
        with pytest.raises(ConnectionLost, match="the producer was closed"):
            await deliveries[0]


async def test_a_record_that_cannot_be_delivered_in_time_fails() -> None:
    async with FakeBroker({"t": 1}).running() as broker, Client(broker.bootstrap) as client:
        log = Log(broker)
        log.outcomes = [ErrorCode.NOT_ENOUGH_REPLICAS] * 10
        async with Producer(client, linger_ms=0, delivery_timeout_ms=200) as producer:
            delivery = await producer.send("t", b"a")
            with pytest.raises(KafkaError, match="NOT_ENOUGH_REPLICAS"):
                await delivery
            with pytest.raises(ClientError):
                await producer.flush()


async def test_partitions_without_leader_share_the_questions_about_their_topic() -> None:
    async with FakeBroker({"t": 50}).running() as broker, Client(broker.bootstrap) as client:
        broker.leaderless = {("t", index) for index in range(50)}
        async with Producer(client, linger_ms=0, delivery_timeout_ms=200) as producer:
            for index in range(50):
                await producer.send("t", b"a", partition=index)
            with pytest.raises(KafkaError, match="LEADER_NOT_AVAILABLE"):
                await producer.flush()
        assert len(broker.of(MetadataRequest)) < 10  # a few rounds, each of 50 partitions


async def test_without_acknowledgement_nothing_is_waited_for() -> None:
    async with FakeBroker({"t": 1}).running() as broker, Client(broker.bootstrap) as client:
        log = Log(broker)
        async with Producer(client, acks=0, idempotent=False) as producer:
            assert (await (await producer.send("t", b"a"))).offset == -1
        await log.arrived.wait()
        assert log.headers[0].producer_id == -1
    with pytest.raises(ValueError, match="acks=-1"):
        Producer(client, acks=1)


MUCH = [b"x" * 1_000_000] * 60  # more than the sockets of a connection take


async def test_without_acknowledgement_all_arrives_at_a_broker_that_reads_slowly() -> None:
    async with FakeBroker({"t": 1}).running() as broker:
        log = Log(broker)
        log.held = asyncio.Event()
        async with asyncio.timeout(60):
            async with (
                Client(broker.bootstrap) as client,
                Producer(client, acks=0, idempotent=False, buffer_bytes=2**30) as producer,
            ):
                deliveries = [await producer.send("t", value) for value in MUCH]
                await log.arrived.wait()
                log.held.set()
                assert (await deliveries[-1]).offset == -1
            while len(log.values[0]) < len(MUCH):
                log.taken.clear()
                await log.taken.wait()
        assert log.values == {0: MUCH}


async def test_without_acknowledgement_a_broker_that_reads_nothing_is_an_error_in_time() -> None:
    async with FakeBroker({"t": 1}).running() as broker, Client(broker.bootstrap) as client:
        Log(broker).held = asyncio.Event()
        async with (
            asyncio.timeout(30),
            Producer(
                client, acks=0, idempotent=False, buffer_bytes=2**30, delivery_timeout_ms=300
            ) as producer,
        ):
            for value in MUCH:
                await producer.send("t", value)
            with pytest.raises(RequestTimedOut, match="does not read what is sent to it"):
                await producer.flush()


async def test_sending_waits_while_the_buffer_is_full() -> None:
    async with FakeBroker({"t": 1}).running() as broker, Client(broker.bootstrap) as client:
        log = Log(broker)
        log.held = asyncio.Event()
        async with Producer(client, linger_ms=0, buffer_bytes=100) as producer:
            await producer.send("t", b"x" * 200)
            waiting = asyncio.ensure_future(producer.send("t", b"y"))
            await log.arrived.wait()
            assert not waiting.done()
            log.held.set()
            await (await waiting)
        assert log.values == {0: [b"x" * 200, b"y"]}


async def test_a_batch_that_the_caller_filled_takes_its_turn_among_records() -> None:
    async with FakeBroker({"t": 2}).running() as broker, Client(broker.bootstrap) as client:
        log = Log(broker)
        async with Producer(client, linger_ms=60_000) as producer:
            await producer.send("t", b"a", partition=1)
            filled = Batch("t", 1, asyncio.get_running_loop().time())
            for value in (b"b", b"c"):
                filled.add(Record(None, value, 1), 20)
            await producer.put(filled)
            await producer.send("t", b"d", partition=1)
            await producer.flush()
            assert await filled.written == (1, -1)
        assert log.values == {1: [b"a", b"b", b"c", b"d"]}


async def test_a_partition_that_is_not_known_yet_is_asked_for_once() -> None:
    async with FakeBroker({"t": 1}).running() as broker, Client(broker.bootstrap) as client:
        log = Log(broker)
        async with Producer(client) as producer:
            await (await producer.send("t", b"a"))
            broker.topics["t"] = 2  # CreatePartitions
            await (await producer.send("t", b"b", partition=1))
            assert log.values == {0: [b"a"], 1: [b"b"]}
            asked = len(broker.of(MetadataRequest))
            for wrong, questions in ((2, 1), (-1, 0)):
                with pytest.raises(KafkaError, match=f"t-{wrong}"):
                    await producer.send("t", b"c", partition=wrong)
                asked += questions
                assert len(broker.of(MetadataRequest)) == asked


async def test_a_delivery_holds_no_bytes_of_what_is_written() -> None:
    value = b"x" * 100
    async with FakeBroker({"t": 1}).running() as broker, Client(broker.bootstrap) as client:
        log = Log(broker)
        log.batch_bytes_max = 350  # the four of them are cut in two
        async with Producer(client) as producer:
            held = sys.getrefcount(value)
            deliveries = [await producer.send("t", value, timestamp_ms=i) for i in range(4)]
            assert sys.getrefcount(value) > held
            await producer.flush()
            assert sys.getrefcount(value) == held
            written = [await delivery for delivery in deliveries]
        assert [(row.offset, row.timestamp_ms) for row in written] == [(i, i) for i in range(4)]


async def test_a_topic_that_is_not_there_is_an_error_after_a_while(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("logfleet.client.producer.NEW_TOPIC_MS", 50)
    async with FakeBroker({"t": 1}).running() as broker, Client(broker.bootstrap) as client:
        Log(broker)
        async with Producer(client) as producer:
            with pytest.raises(KafkaError, match="topic nope"):
                await producer.send("nope", b"x")
            with pytest.raises(KafkaError, match="t-1"):
                await producer.send("t", b"x", partition=1)
        assert not any(request.allow_auto_topic_creation for request in broker.of(MetadataRequest))


async def test_brokers_that_are_away_are_waited_for_longer_than_a_topic_that_nobody_knows(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("logfleet.client.producer.NEW_TOPIC_MS", 0)
    away = 2

    def metadata(request: MetadataRequest) -> Reply:
        return broker.CLOSE if len(broker.of(MetadataRequest)) <= away else known(request)

    async with FakeBroker({"t": 1}).running() as broker, Client(broker.bootstrap) as client:
        log = Log(broker)
        known = broker.answers[MetadataRequest]
        broker.answers[MetadataRequest] = metadata
        async with Producer(client, linger_ms=0) as producer:
            await producer.send("t", b"a")
        assert log.values == {0: [b"a"]}


async def test_brokers_that_stay_away_are_waited_for_as_long_as_a_delivery_may_take(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("logfleet.client.producer.NEW_TOPIC_MS", 600_000)
    async with FakeBroker({"t": 1}).running() as broker:
        bootstrap = broker.bootstrap
    async with (
        asyncio.timeout(60),
        Client(bootstrap) as client,
        Producer(client, delivery_timeout_ms=200) as producer,
    ):
        with pytest.raises(ConnectionLost):
            await producer.send("t", b"a")
