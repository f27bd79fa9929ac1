"""Producer.send keeps the order of its calls in each partition, however long each of them waits."""

import asyncio

import pytest
from logfleet.client.batches import Batch
from logfleet.client.cluster import Client
from logfleet.client.errors import ClientError, ConnectionLost, KafkaError
from logfleet.client.producer import Producer
from logfleet.records.record import Record
from logfleet.wire.errors import ErrorCode
from logfleet.wire.messages import MetadataRequest, MetadataResponse

from broker_image.tests.unit.client.fake_broker import FakeBroker
from broker_image.tests.unit.client.fake_log import Log

pytestmark = pytest.mark.asyncio


class SlowMetadata:
    """Holds each Metadata answer back until `answer` allows it. errors: codes of the first answers."""

    def __init__(self, broker: FakeBroker, *errors: ErrorCode) -> None:
        self.asked = asyncio.Event()
        self._broker = broker
        self._errors = iter(errors)
        self._may_answer = asyncio.Semaphore(0)
        broker.answers[MetadataRequest] = self._answered

    def answer(self, times: int = 1) -> None:
        for _ in range(times):
            self._may_answer.release()

    async def _answered(self, request: MetadataRequest) -> MetadataResponse:
        self.asked.set()
        await self._may_answer.acquire()
        answer = self._broker.metadata(request)
        if error := next(self._errors, None):
            for topic in answer.topics:
                topic.error_code = error
        return answer


@pytest.mark.parametrize("chosen_by", ["caller", "key", "partitioner"])
async def test_calls_that_wait_for_the_first_metadata_keep_their_order(chosen_by: str) -> None:
    count = 1 if chosen_by == "partitioner" else 3  # it chooses by chance
    async with FakeBroker({"t": count}).running() as broker, Client(broker.bootstrap) as client:
        log, metadata = Log(broker), SlowMetadata(broker)
        async with Producer(client, linger_ms=0) as producer:

            async def send(number: int) -> None:
                place = {
                    "caller": {"partition": number % 3},
                    "key": {"key": b"%d" % (number % 5)},
                    "partitioner": {},
                }[chosen_by]
                await producer.send("t", b"%d" % number, **place)  # type: ignore[arg-type]

            waiting = [asyncio.create_task(send(number)) for number in range(8)]
            await metadata.asked.wait()
            metadata.answer()
            await waiting[0]
            later = [asyncio.create_task(send(number)) for number in range(8, 14)]
            metadata.answer(100)
            await asyncio.gather(*waiting, *later)
        assert sum(map(len, log.values.values())) == 14
        for values in log.values.values():
            assert values == sorted(values, key=int)  # type: ignore[arg-type]


async def test_a_call_whose_metadata_failed_at_first_is_not_overtaken() -> None:
    async with FakeBroker({"t": 1}).running() as broker, Client(broker.bootstrap) as client:
        log = Log(broker)
        metadata = SlowMetadata(broker, ErrorCode.LEADER_NOT_AVAILABLE)
        async with Producer(client, linger_ms=0) as producer:
            first = asyncio.create_task(producer.send("t", b"0"))
            await metadata.asked.wait()
            metadata.answer(100)
            asked = len(broker.of(MetadataRequest))
            second = asyncio.create_task(producer.send("t", b"1"))
            await asyncio.gather(first, second)
            assert asked == 1
        assert log.values == {0: [b"0", b"1"]}


@pytest.mark.parametrize("cancelled", [0, 2, 4])
async def test_a_call_that_is_cancelled_while_it_waits_lets_the_others_keep_their_order(
    cancelled: int,
) -> None:
    async with FakeBroker({"t": 1}).running() as broker, Client(broker.bootstrap) as client:
        log, metadata = Log(broker), SlowMetadata(broker)
        async with Producer(client, linger_ms=0) as producer:
            calls = [asyncio.create_task(producer.send("t", b"%d" % i)) for i in range(5)]
            await metadata.asked.wait()
            calls[cancelled].cancel()
            await asyncio.wait([calls[cancelled]])
            metadata.answer(2)  # the first question may have been given up with its caller
            rest = [call for call in calls if call is not calls[cancelled]]
            await rest[0]
            last = asyncio.create_task(producer.send("t", b"5"))
            metadata.answer(100)
            await asyncio.gather(*rest, last)
        assert log.values == {0: [b"%d" % i for i in range(6) if i != cancelled]}


async def test_a_call_for_a_partition_that_is_not_there_fails_alone() -> None:
    async with FakeBroker({"t": 1}).running() as broker, Client(broker.bootstrap) as client:
        log = Log(broker)
        async with Producer(client, linger_ms=0) as producer:
            calls = [
                asyncio.create_task(producer.send("t", b"%d" % i, partition=int(i == 1)))
                for i in range(4)
            ]
            await asyncio.wait(calls)
            with pytest.raises(KafkaError, match="t-1"):
                await calls[1]
        assert log.values == {0: [b"0", b"2", b"3"]}


async def test_calls_that_wait_for_room_keep_their_order() -> None:
    async with FakeBroker({"t": 1}).running() as broker, Client(broker.bootstrap) as client:
        log = Log(broker)
        log.held = asyncio.Event()
        async with Producer(client, linger_ms=0, buffer_bytes=10) as producer:
            await producer.send("t", b"0")
            waiting = [asyncio.create_task(producer.send("t", b"%d" % i)) for i in (1, 2)]
            await log.arrived.wait()

            async def send_when_there_is_room() -> None:
                while producer._buffered:  # noqa: ASYNC110  it must see that first
                    await asyncio.sleep(0)
                await producer.send("t", b"3")

            late = asyncio.create_task(send_when_there_is_room())
            log.held.set()
            await asyncio.gather(*waiting, late)
        assert log.values == {0: [b"0", b"1", b"2", b"3"]}


async def test_a_batch_of_the_callers_takes_its_turn_among_calls_that_wait() -> None:
    async with FakeBroker({"t": 1}).running() as broker, Client(broker.bootstrap) as client:
        log, metadata = Log(broker), SlowMetadata(broker)
        async with Producer(client, linger_ms=0) as producer:
            first = asyncio.create_task(producer.send("t", b"0"))
            await metadata.asked.wait()
            batch = Batch("t", 0, asyncio.get_running_loop().time())
            batch.add(Record(None, b"1", 1), 20)
            second = asyncio.create_task(producer.put(batch))
            metadata.answer(100)
            await asyncio.gather(first, second)
        assert log.values == {0: [b"0", b"1"]}


async def test_calls_that_wait_for_the_same_topic_fail_together(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """One after the other they would wait as many times as long."""
    monkeypatch.setattr("logfleet.client.producer.NEW_TOPIC_MS", 50)
    async with FakeBroker().running() as broker, Client(broker.bootstrap) as client:
        log = Log(broker)
        async with Producer(client) as producer:
            calls = [asyncio.create_task(producer.send("t", b"%d" % i)) for i in range(50)]
            failures = await asyncio.gather(*calls, return_exceptions=True)
            assert {type(failure) for failure in failures} == {KafkaError}
            assert len(broker.of(MetadataRequest)) < 10
            broker.topics["t"] = 1
            await producer.send("t", b"50")  # the topic is asked for again
        assert log.values == {0: [b"50"]}


async def test_without_brokers_calls_fail_together_after_the_time_of_one() -> None:
    async with FakeBroker().running() as broker:
        bootstrap = broker.bootstrap
    loop = asyncio.get_running_loop()
    async with Client(bootstrap) as client, Producer(client, delivery_timeout_ms=200) as producer:
        began = loop.time()
        calls = [asyncio.create_task(producer.send("t", b"x")) for _ in range(200)]
        failures = await asyncio.gather(*calls, return_exceptions=True)
        assert {type(failure) for failure in failures} == {ConnectionLost}
        assert loop.time() - began < 20, "200 times 0.2 s are 40 s"


async def test_calls_for_other_topics_do_not_wait() -> None:
    async with FakeBroker({"t": 1, "u": 1}).running() as broker, Client(broker.bootstrap) as client:
        log = Log(broker)
        async with Producer(client, linger_ms=0) as producer:
            await producer.send("t", b"0")
            await producer.flush()
            metadata = SlowMetadata(broker)
            waiting = asyncio.create_task(producer.send("u", b"1"))
            await metadata.asked.wait()
            await (await producer.send("t", b"2"))
            assert not waiting.done()
            metadata.answer()
            await waiting
        assert log.values == {0: [b"0", b"2", b"1"]}, "the fake log has both topics in one"


async def test_what_failed_for_one_call_is_asked_for_again_by_the_next() -> None:
    async with FakeBroker({"t": 1}).running() as broker, Client(broker.bootstrap) as client:
        log = Log(broker)
        metadata = SlowMetadata(broker, ErrorCode.TOPIC_AUTHORIZATION_FAILED)
        async with Producer(client, linger_ms=0) as producer:
            calls = [asyncio.create_task(producer.send("t", b"%d" % i)) for i in range(3)]
            await metadata.asked.wait()
            metadata.answer(100)
            for call in calls:
                with pytest.raises(ClientError, match="TOPIC_AUTHORIZATION_FAILED"):
                    await call
            await producer.send("t", b"3")
        assert log.values == {0: [b"3"]}
