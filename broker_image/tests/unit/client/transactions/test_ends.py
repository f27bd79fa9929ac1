import asyncio
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio
from logfleet.client.cluster import Client
from logfleet.client.errors import (
    AbortRequired,
    ClientError,
    ConnectionLost,
    KafkaError,
    OutcomeUnknown,
    ProducerFailed,
)
from logfleet.client.offsets import TopicPartition
from logfleet.client.transactions.producer import TransactionalProducer
from logfleet.wire.errors import ErrorCode
from logfleet.wire.messages import (
    EndTxnRequest,
    InitProducerIdRequest,
)

from broker_image.tests.unit.client.fake_broker import FakeBroker
from broker_image.tests.unit.client.transactions.fake_coordinator import (
    Coordinator,
    both_protocols,
    producing,
    write,
)

pytestmark = pytest.mark.asyncio
T0 = TopicPartition("t", 0)
FENCED = ErrorCode.PRODUCER_FENCED


@pytest_asyncio.fixture
async def broker() -> AsyncIterator[FakeBroker]:
    async with FakeBroker({"t": 3}).running() as running:
        yield running


@both_protocols
async def test_a_commit_whose_answer_was_lost_is_repeated(broker: FakeBroker, version: int) -> None:
    log = Coordinator(broker, version)
    log.faults[EndTxnRequest] = [FakeBroker.CLOSE]
    async with producing(broker) as producer:
        await producer.begin()
        await write(producer)
        await producer.commit()
        await producer.begin()
        await write(producer)
        await producer.commit()
    first, again, _ = broker.of(EndTxnRequest)
    assert first == again, "under the epoch of the transaction"
    assert [each.producer_epoch for each in log.headers] == [0, version - 1]


@both_protocols
async def test_a_commit_that_nobody_answers_is_unknown_and_only_repeated(
    broker: FakeBroker, version: int
) -> None:
    log = Coordinator(broker, version)
    log.faults[EndTxnRequest] = [FakeBroker.CLOSE] * 20
    async with producing(broker, timeout_ms=300) as producer:
        await producer.begin()
        await write(producer)
        with pytest.raises(OutcomeUnknown, match="the commit was sent, and not answered"):
            await producer.commit()
        with pytest.raises(OutcomeUnknown, match="commit again"):
            await producer.abort()
        log.faults.clear()
        await producer.commit()
        await producer.begin()
    assert set(log.ends()) == {True}


async def test_a_refusal_after_a_lost_answer_does_not_say_that_it_is_not_committed(
    broker: FakeBroker,
) -> None:
    log = Coordinator(broker, 2)
    log.faults[EndTxnRequest] = [ErrorCode.COORDINATOR_NOT_AVAILABLE, FENCED]
    async with producing(broker) as producer:
        await producer.begin()
        await write(producer)
        for call in (producer.commit, producer.abort, producer.begin):
            with pytest.raises(OutcomeUnknown, match="refused when it was repeated"):
                await call()


async def test_a_refusal_after_codes_that_begin_nothing_is_certain(broker: FakeBroker) -> None:
    log = Coordinator(broker, 2)
    log.faults[EndTxnRequest] = [
        ErrorCode.CONCURRENT_TRANSACTIONS,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.INVALID_TXN_STATE,
    ]
    async with producing(broker) as producer:
        await producer.begin()
        await write(producer)
        with pytest.raises(ProducerFailed, match="transactional id id: INVALID_TXN_STATE"):
            await producer.commit()


async def test_a_commit_that_never_reached_the_coordinator_may_be_aborted(
    broker: FakeBroker,
) -> None:
    log = Coordinator(broker, 2)
    log.faults[EndTxnRequest] = [ErrorCode.CONCURRENT_TRANSACTIONS] * 100
    async with producing(broker, timeout_ms=200) as producer:
        await producer.begin()
        await write(producer)
        with pytest.raises(KafkaError, match="CONCURRENT_TRANSACTIONS"):
            await producer.commit()
        log.faults.clear()
        await producer.abort()
    assert log.ends()[-1] is False


async def test_a_commit_that_is_abortable_is_aborted_and_the_next_one_committed(
    broker: FakeBroker,
) -> None:
    log = Coordinator(broker, 2)
    log.faults[EndTxnRequest] = [ErrorCode.TRANSACTION_ABORTABLE]
    async with producing(broker) as producer:
        await producer.begin()
        await write(producer)
        with pytest.raises(AbortRequired, match="TRANSACTION_ABORTABLE"):
            await producer.commit()
        await producer.abort()
        await producer.begin()
        await write(producer)
        await producer.commit()
    assert log.ends() == [True, False, True]


async def test_a_commit_that_is_cancelled_may_only_be_repeated(broker: FakeBroker) -> None:
    log = Coordinator(broker, 2)
    arrived = asyncio.Event()

    def silent(_: EndTxnRequest) -> None:
        arrived.set()

    broker.answers[EndTxnRequest] = silent
    async with producing(broker) as producer:
        await producer.begin()
        await write(producer)
        commit = asyncio.create_task(producer.commit())
        await arrived.wait()
        commit.cancel()
        with pytest.raises(asyncio.CancelledError):
            await commit
        with pytest.raises(OutcomeUnknown):
            await producer.abort()
        broker.answers[EndTxnRequest] = log.end
        broker.disconnect()
        await producer.commit()


async def test_an_init_that_is_refused_may_be_called_again(broker: FakeBroker) -> None:
    log = Coordinator(broker, 2)
    log.faults[InitProducerIdRequest] = [ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED]
    async with (
        Client(broker.bootstrap) as client,
        TransactionalProducer(client, "id") as producer,
    ):
        with pytest.raises(KafkaError, match="TRANSACTIONAL_ID_AUTHORIZATION_FAILED"):
            await producer.init()
        await producer.init()
        await producer.begin()


@pytest.mark.parametrize(
    "code, kind",
    [(FENCED, ProducerFailed), (ErrorCode.TRANSACTION_ABORTABLE, KafkaError)],
)
async def test_an_epoch_that_is_refused_before_a_transaction_is_raised_by_begin(
    broker: FakeBroker, code: int, kind: type[ClientError]
) -> None:
    log = Coordinator(broker, 1)
    async with producing(broker) as producer:
        producer.client.finalized.learn(2, {"transaction.version": 2})
        log.faults[InitProducerIdRequest] = [code]
        with pytest.raises(kind, match=ErrorCode(code).name):
            await producer.begin()
        if kind is KafkaError:
            await producer.begin()


@both_protocols
async def test_leaving_aborts_what_is_open(broker: FakeBroker, version: int) -> None:
    log = Coordinator(broker, version)
    async with producing(broker) as producer:
        await producer.begin()
        await write(producer)
    assert log.ends() == [False]


async def test_leaving_does_not_wait_for_a_coordinator_that_is_gone(
    broker: FakeBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("logfleet.client.transactions.producer.EXIT_SECONDS", 0.05)
    Coordinator(broker, 2)
    broker.answers[EndTxnRequest] = lambda _: None
    async with asyncio.timeout(5), producing(broker) as producer:
        await producer.begin()
        await write(producer)


async def test_an_abort_waits_for_what_is_on_its_way_and_retries_nothing(
    broker: FakeBroker,
) -> None:
    log = Coordinator(broker, 2)
    log.held = asyncio.Event()
    log.outcomes = [ErrorCode.NOT_ENOUGH_REPLICAS]
    async with producing(broker, linger_ms=0) as producer:
        await producer.begin()
        first = await producer.send("t", b"a", partition=0)
        await log.arrived.wait()
        abort = asyncio.create_task(producer.abort())
        done, _ = await asyncio.wait([abort], timeout=0.05)
        assert not done
        assert log.ends() == []
        log.held.set()
        await abort
        with pytest.raises(KafkaError, match="NOT_ENOUGH_REPLICAS"):
            await first
    assert len(log.headers) == 1
    assert log.ends() == [False]


async def test_a_producer_without_a_broker_is_told_at_init() -> None:
    async with (
        Client("127.0.0.1:1", timeout_ms=50) as client,
        TransactionalProducer(client, "id") as producer,
    ):
        with pytest.raises(ConnectionLost):
            await producer.init()
