import asyncio
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio
from logfleet.client.errors import (
    AbortRequired,
    KafkaError,
    ProducerFailed,
)
from logfleet.client.offsets import TopicPartition
from logfleet.client.transactions.calls import Member
from logfleet.wire.errors import ErrorCode
from logfleet.wire.messages import (
    AddOffsetsToTxnRequest,
    AddPartitionsToTxnRequest,
    EndTxnRequest,
    FindCoordinatorRequest,
    InitProducerIdRequest,
    ProduceRequest,
    TxnOffsetCommitRequest,
)

from broker_image.tests.unit.client.fake_broker import FakeBroker
from broker_image.tests.unit.client.transactions.fake_coordinator import (
    PRODUCER_ID,
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
async def test_what_is_committed_is_written_once_under_the_transactional_id(
    broker: FakeBroker, version: int
) -> None:
    log = Coordinator(broker, version)
    async with producing(broker) as producer:
        for value in (b"a", b"b"):
            await producer.begin()
            await producer.send("t", value, partition=0)
            await producer.send("t", value, partition=1)
            await producer.commit()
    assert log.values == {0: [b"a", b"b"], 1: [b"a", b"b"]}
    assert log.ends() == [True, True]
    assert {request.transactional_id for request in broker.of(ProduceRequest)} == {"id"}
    assert all(header.is_transactional for header in log.headers)
    (init,) = broker.of(InitProducerIdRequest)
    assert (init.transactional_id, init.transaction_timeout_ms) == ("id", 60_000)
    assert {request.key_type for request in broker.of(FindCoordinatorRequest)} == {1}


async def test_by_the_first_version_partitions_are_added_and_the_epoch_stays(
    broker: FakeBroker,
) -> None:
    log = Coordinator(broker, 1)
    async with producing(broker) as producer:
        for _ in range(2):
            await producer.begin()
            for _ in range(2):
                await write(producer)
            await producer.commit()
    stamps = [(each.producer_epoch, each.base_sequence) for each in log.headers]
    assert stamps == [(0, 0), (0, 1), (0, 2), (0, 3)]
    added = broker.of(AddPartitionsToTxnRequest)
    assert [row.v3_and_below_topics[0].partitions for row in added] == [[0], [0]]
    assert log.versions(ProduceRequest) == {11}
    assert log.versions(EndTxnRequest) == {4}
    assert log.versions(AddPartitionsToTxnRequest) == {3}


async def test_by_the_second_version_each_transaction_has_an_epoch_and_nothing_is_added(
    broker: FakeBroker,
) -> None:
    log = Coordinator(broker, 2)
    async with producing(broker) as producer:
        for _ in range(2):
            await producer.begin()
            for _ in range(2):
                await write(producer)
            await producer.commit()
    stamps = [(each.producer_epoch, each.base_sequence) for each in log.headers]
    assert stamps == [(0, 0), (0, 1), (1, 0), (1, 1)]
    assert broker.of(AddPartitionsToTxnRequest) == []
    assert min(log.versions(ProduceRequest)) >= 12
    assert log.versions(EndTxnRequest) == {5}


async def test_partitions_that_wait_for_a_request_are_added_by_the_next_one_together(
    broker: FakeBroker,
) -> None:
    log = Coordinator(broker, 1)
    log.faults[AddPartitionsToTxnRequest] = [ErrorCode.CONCURRENT_TRANSACTIONS] * 2
    async with producing(broker, linger_ms=0) as producer:
        await producer.begin()
        for partition in range(3):
            await producer.send("t", b"v", partition=partition)
        await producer.commit()
    added = [
        sorted(row.v3_and_below_topics[0].partitions)
        for row in broker.of(AddPartitionsToTxnRequest)
    ]
    assert added[0] == added[1] == added[2], "the last transaction was ending twice"
    assert len(added) <= 4
    assert sorted(index for indexes in added[2:] for index in indexes) == [0, 1, 2]
    assert log.ends() == [True]


async def test_a_protocol_changes_between_transactions_and_the_new_one_gets_an_epoch(
    broker: FakeBroker,
) -> None:
    log = Coordinator(broker, 1)
    async with producing(broker) as producer:
        await producer.begin()
        await write(producer)
        # as another connection would report it, in the middle of a transaction
        producer.client.finalized.learn(2, {"transaction.version": 2})
        await write(producer, partition=1)
        await producer.commit()
        assert log.versions(EndTxnRequest) == {4}
        log.version = 2
        await producer.begin()
        await write(producer)
        await producer.commit()
    first, second = broker.of(InitProducerIdRequest)
    assert (first.producer_id, first.producer_epoch) == (-1, -1)
    assert (second.producer_id, second.producer_epoch) == (PRODUCER_ID, 0)
    assert log.versions(EndTxnRequest) == {4, 5}
    assert [each.producer_epoch for each in log.headers] == [0, 0, 1]


async def test_levels_with_an_older_epoch_change_no_protocol(broker: FakeBroker) -> None:
    log = Coordinator(broker, 2)
    async with producing(broker) as producer:
        producer.client.finalized.learn(0, {"transaction.version": 1})
        await producer.begin()
        await write(producer)
        await producer.commit()
    assert log.versions(EndTxnRequest) == {5}


@both_protocols
async def test_an_abort_ends_the_transaction_and_drops_what_was_not_sent(
    broker: FakeBroker, version: int
) -> None:
    log = Coordinator(broker, version)
    async with producing(broker, linger_ms=60_000) as producer:
        await producer.begin()
        sent = await producer.send("t", b"sent", partition=0)
        await producer._producer.flush()
        kept = await producer.send("t", b"kept", partition=1)
        await producer.abort()
        assert (await sent).offset == 0
        with pytest.raises(AbortRequired, match="the transaction is aborted"):
            await kept
        await producer.begin()
        await producer.send("t", b"next", partition=1)
        await producer.commit()
    assert log.values == {0: [b"sent"], 1: [b"next"]}
    assert log.ends() == [False, True]


@both_protocols
async def test_a_transaction_without_anything_costs_no_request(
    broker: FakeBroker, version: int
) -> None:
    log = Coordinator(broker, version)
    async with producing(broker) as producer:
        for end in (producer.commit, producer.abort, producer.commit):
            await producer.begin()
            await end()
    assert log.ends() == []


@both_protocols
async def test_an_error_of_a_record_lets_nothing_but_an_abort_through_and_then_it_goes_on(
    broker: FakeBroker, version: int
) -> None:
    log = Coordinator(broker, version)
    async with producing(broker) as producer:
        await producer.begin()
        await write(producer, b"a")
        log.outcomes = [ErrorCode.INVALID_PRODUCER_EPOCH]
        delivery = await producer.send("t", b"b", partition=0)
        with pytest.raises(KafkaError, match="t-0: INVALID_PRODUCER_EPOCH"):
            await delivery
        for call in (
            lambda: producer.send("t", b"c"),
            lambda: producer.add_offsets("g", {T0: 1}),
            producer.commit,
        ):
            with pytest.raises(AbortRequired, match="t-0: INVALID_PRODUCER_EPOCH"):
                await call()
        await producer.abort()
        await producer.begin()
        await write(producer, b"d")
        await producer.commit()
    assert log.ends() == [False, True]
    # the sequence after b is uncertain: a new epoch begins a new one
    assert [(each.producer_epoch, each.base_sequence) for each in log.headers] == [
        (0, 0),
        (0, 1),
        (1, 0),
    ]
    assert len(broker.of(InitProducerIdRequest)) == (2 if version == 1 else 1)


@both_protocols
async def test_records_behind_one_that_failed_are_not_sent(
    broker: FakeBroker, version: int
) -> None:
    log = Coordinator(broker, version)
    async with producing(broker, linger_ms=0) as producer:
        await producer.begin()
        log.held = asyncio.Event()
        log.outcomes = [ErrorCode.INVALID_RECORD]
        first = await producer.send("t", b"a", partition=0)
        await log.arrived.wait()
        second = await producer.send("t", b"b", partition=0)
        log.held.set()
        with pytest.raises(KafkaError, match="INVALID_RECORD"):
            await first
        with pytest.raises(AbortRequired, match="INVALID_RECORD"):
            await second
        with pytest.raises(AbortRequired, match="INVALID_RECORD"):
            await producer.commit()
        await producer.abort()
    assert len(log.headers) == 1
    assert log.ends() == [False]


async def test_a_call_that_no_new_transaction_can_mend_fails_the_producer(
    broker: FakeBroker,
) -> None:
    log = Coordinator(broker, 2)
    async with producing(broker) as producer:
        await producer.begin()
        log.outcomes = [FENCED]
        await producer.send("t", b"b", partition=0)
        for call in (producer.commit, producer.abort, producer.begin):
            with pytest.raises(ProducerFailed, match="t-0: PRODUCER_FENCED"):
                await call()
    assert log.ends() == []


@both_protocols
async def test_a_topic_that_is_not_there_requires_an_abort(
    broker: FakeBroker, version: int
) -> None:
    Coordinator(broker, version)
    async with producing(broker, delivery_timeout_ms=200) as producer:
        await producer.begin()
        with pytest.raises(KafkaError, match="UNKNOWN_TOPIC_OR_PARTITION"):
            await producer.send("missing", b"x")
        with pytest.raises(AbortRequired, match="UNKNOWN_TOPIC_OR_PARTITION"):
            await producer.commit()
        await producer.abort()


@both_protocols
@pytest.mark.parametrize(
    "code",
    [
        ErrorCode.CONCURRENT_TRANSACTIONS,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NOT_COORDINATOR,
    ],
)
async def test_what_passes_at_the_coordinator_is_retried(
    broker: FakeBroker, version: int, code: int
) -> None:
    log = Coordinator(broker, version)
    log.faults = {
        kind: [code]
        for kind in (
            InitProducerIdRequest,
            AddPartitionsToTxnRequest,
            AddOffsetsToTxnRequest,
            TxnOffsetCommitRequest,
            EndTxnRequest,
        )
    }
    async with producing(broker) as producer:
        await producer.begin()
        await write(producer)
        await producer.add_offsets("g", {T0: 5})
        await producer.commit()
    assert log.ends() == [True, True]
    assert log.offsets == {"t": {0: 5}}


async def test_an_added_partition_without_an_answer_makes_the_next_epoch_due(
    broker: FakeBroker,
) -> None:
    log = Coordinator(broker, 1)
    log.faults[AddPartitionsToTxnRequest] = [FakeBroker.CLOSE] * 20
    async with producing(broker, timeout_ms=300) as producer:
        await producer.begin()
        delivery = await producer.send("t", b"a", partition=0)
        with pytest.raises(AbortRequired):
            await delivery
        log.faults.clear()
        await producer.abort()
        assert log.ends() == [], "the coordinator may have nothing to abort"
        await producer.begin()
        await write(producer, b"b")
        await producer.commit()
    assert [request.producer_epoch for request in broker.of(InitProducerIdRequest)] == [-1, 0]
    assert log.values == {0: [b"b"]}


async def test_a_partition_that_may_not_be_added_is_named(broker: FakeBroker) -> None:
    log = Coordinator(broker, 1)
    log.faults[AddPartitionsToTxnRequest] = [ErrorCode.TOPIC_AUTHORIZATION_FAILED]
    async with producing(broker) as producer:
        await producer.begin()
        await producer.send("t", b"a", partition=0)
        await producer.send("t", b"a", partition=1)
        with pytest.raises(AbortRequired, match="TOPIC_AUTHORIZATION_FAILED"):
            await producer.commit()
        await producer.abort()
    assert log.values == {}


@pytest.mark.parametrize(
    "code", [FENCED, ErrorCode.INVALID_PRODUCER_ID_MAPPING, ErrorCode.INVALID_TXN_STATE]
)
async def test_a_refusal_of_the_coordinator_fails_the_producer(
    broker: FakeBroker, code: int
) -> None:
    log = Coordinator(broker, 1)
    log.faults[AddPartitionsToTxnRequest] = [code]
    async with producing(broker) as producer:
        await producer.begin()
        await producer.send("t", b"a", partition=0)
        for call in (producer.commit, producer.abort, producer.begin):
            with pytest.raises(ProducerFailed, match=ErrorCode(code).name):
                await call()


# --- offsets


@both_protocols
async def test_offsets_are_added_with_member_and_generation(
    broker: FakeBroker, version: int
) -> None:
    log = Coordinator(broker, version)
    async with producing(broker) as producer:
        await producer.begin()
        await producer.add_offsets("g", {T0: 5, TopicPartition("t", 1): 6}, Member("m", 3, "i"))
        await producer.commit()
    assert log.offsets == {"t": {0: 5, 1: 6}}
    assert log.ends() == [True]
    (staged,) = broker.of(TxnOffsetCommitRequest)
    assert (staged.transactional_id, staged.group_id) == ("id", "g")
    assert (staged.member_id, staged.generation_id_or_member_epoch) == ("m", 3)
    assert (staged.group_instance_id, staged.producer_id) == ("i", PRODUCER_ID)
    assert log.versions(TxnOffsetCommitRequest) == {5 if version == 2 else 4}
    assert [row.group_id for row in broker.of(AddOffsetsToTxnRequest)] == ["g"] * (2 - version)


@both_protocols
@pytest.mark.parametrize("code", [ErrorCode.ILLEGAL_GENERATION, ErrorCode.UNKNOWN_MEMBER_ID])
async def test_a_member_that_the_group_has_dropped_has_its_transaction_aborted(
    broker: FakeBroker, version: int, code: int
) -> None:
    log = Coordinator(broker, version)
    log.faults[TxnOffsetCommitRequest] = [code]
    async with producing(broker) as producer:
        await producer.begin()
        name = ErrorCode(code).name
        with pytest.raises(AbortRequired, match=f"group g, t-0: {name}"):
            await producer.add_offsets("g", {T0: 5}, Member("m", 3))
        with pytest.raises(AbortRequired, match=name):
            await producer.commit()
        await producer.abort()
    assert log.ends() == [False]
