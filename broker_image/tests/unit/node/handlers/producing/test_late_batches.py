"""Transactional batches around the markers of their transactions (KIP-890)."""

import pytest
from logfleet.wire.errors import ErrorCode

from broker_image.tests.unit.node.handlers.conftest import Host
from broker_image.tests.unit.node.handlers.producing.transactional_rig import (
    PRODUCER,
    Producer,
    batch,
    end,
    stored,
)


@pytest.fixture
def producer(host: Host) -> Producer:
    return Producer(host)


@pytest.mark.asyncio
async def test_a_plain_batch_of_a_producer_with_an_open_transaction_is_refused(
    host: Host, producer: Producer
) -> None:
    partition = host.host()
    await producer.send(("topic", 0, batch()))
    plain = batch(1, transactional=False)
    for transactional_id in ("t", None):
        errors = await producer.errors(
            ("topic", 0, bytearray(plain)), transactional_id=transactional_id
        )
        assert errors == [ErrorCode.INVALID_TXN_STATE]
    assert stored(partition) == [b"v"]
    end(partition)
    assert await producer.errors(("topic", 0, plain), transactional_id=None) == [0]


@pytest.mark.asyncio
async def test_a_late_batch_finds_its_transaction_over(host: Host, producer: Producer) -> None:
    """The marker comes between question and answer; the batch would never be ended."""
    partition = host.host()
    producer.at_the_coordinator(lambda: end(partition))
    assert await producer.errors(("topic", 0, batch()), version=11) == [ErrorCode.INVALID_TXN_STATE]
    assert partition.log.producers.states.is_open(PRODUCER, 0) is False


@pytest.mark.asyncio
async def test_a_late_batch_of_an_epoch_that_a_marker_ended_is_out_of_epoch(
    host: Host, producer: Producer
) -> None:
    partition = host.host()
    producer.at_the_coordinator(lambda: end(partition, 1, version=2))
    assert await producer.errors(("topic", 0, batch())) == [ErrorCode.INVALID_PRODUCER_EPOCH]
    assert not partition.log.producers.states.is_open(PRODUCER, 0)


@pytest.mark.asyncio
async def test_the_last_transactions_marker_comes_while_the_next_one_begins(
    host: Host, producer: Producer
) -> None:
    partition = host.host()
    await producer.send(("topic", 0, batch()))
    producer.coordinator.errors = [ErrorCode.CONCURRENT_TRANSACTIONS] * 2

    def end_the_last() -> None:
        if not producer.coordinator.errors:
            end(partition, 1, version=2)

    producer.at_the_coordinator(end_the_last)
    assert await producer.errors(("topic", 0, batch(0, epoch=1))) == [ErrorCode.NONE]
    assert len(producer.coordinator.asked) == 4


@pytest.mark.asyncio
async def test_a_batch_that_is_sent_again_is_answered_before_all_else(
    host: Host, producer: Producer
) -> None:
    """Also when its transaction is over: TV1 keeps the epoch."""
    partition = host.host()
    (first,) = await producer.send(("topic", 0, batch()), version=11)
    end(partition)
    (again,) = await producer.send(("topic", 0, batch()), version=11)
    assert (again.error_code, again.base_offset) == (0, first.base_offset)
    assert len(producer.coordinator.asked) == 1


@pytest.mark.asyncio
async def test_a_marker_between_the_question_whether_it_is_open_and_the_append_is_seen(
    host: Host, producer: Producer
) -> None:
    """The batch for the other partition makes the request wait for a later step of the loop."""
    partition = host.host()
    host.host("other")
    await producer.send(("topic", 0, batch()), version=11)
    answer = producer.start(("topic", 0, batch(1)), ("other", 0, batch()), version=11)
    end(partition)
    rows = [row for topic in (await answer).responses for row in topic.partition_responses]
    assert [row.error_code for row in rows] == [ErrorCode.INVALID_TXN_STATE, ErrorCode.NONE]
    assert not partition.log.producers.states.is_open(PRODUCER, 0)


@pytest.mark.asyncio
async def test_verification_can_be_turned_off_for_older_clients(host: Host) -> None:
    off = {"transaction.partition.verification.enable": "false"}
    producer = Producer(host, static=off)
    partition = host.host()
    assert await producer.errors(("topic", 0, batch()), version=11) == [ErrorCode.NONE]
    assert not producer.coordinator.asked
    end(partition)
    assert await producer.errors(("topic", 0, batch(1)), version=12) == [ErrorCode.NONE]
    assert len(producer.coordinator.asked) == 1
