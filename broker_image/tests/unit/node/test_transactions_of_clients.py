"""Transactions of three clients on one broker: librdkafka and aiokafka speak TV1, ours speaks TV2."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import pytest
import pytest_asyncio
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from aiokafka import TopicPartition as AioPartition
from confluent_kafka import Producer
from logfleet.client.cluster import Client
from logfleet.client.transactions.producer import TransactionalProducer
from logfleet.node.broker import Broker

from broker_image.tests.unit.node.broker_rig import create_topic, with_transactions

pytestmark = pytest.mark.asyncio

ROUNDS = 6
"""Transactions per client: those with an odd number are aborted."""
COMMITTED = [str(number).encode() for number in range(0, ROUNDS, 2)]
TIMEOUT_S = 30.0


@pytest_asyncio.fixture
async def broker(tmp_path: Path) -> AsyncIterator[Broker]:
    given = with_transactions(
        tmp_path, offsets_topic_num_partitions="1", group_initial_rebalance_delay_ms="0"
    )
    async with Broker(given) as started:
        await create_topic(started, "t", 2)
        yield started


def address(broker: Broker) -> str:
    (listener,) = broker.opened.listeners.all
    return f"127.0.0.1:{listener.port}"


async def librdkafka(bootstrap: str) -> None:
    def transact() -> None:
        producer = Producer({"bootstrap.servers": bootstrap, "transactional.id": "librdkafka"})
        producer.init_transactions(TIMEOUT_S)
        for number in range(ROUNDS):
            producer.begin_transaction()
            for partition in (0, 1):
                producer.produce("t", str(number).encode(), partition=partition)
            producer.flush(TIMEOUT_S)
            end = producer.abort_transaction if number % 2 else producer.commit_transaction
            end(TIMEOUT_S)

    await asyncio.to_thread(transact)


async def aiokafka(bootstrap: str) -> None:
    async with AIOKafkaProducer(
        bootstrap_servers=bootstrap, transactional_id="aiokafka"
    ) as producer:
        for number in range(ROUNDS):
            await producer.begin_transaction()
            for partition in (0, 1):
                await producer.send_and_wait("t", str(number).encode(), partition=partition)
            await (producer.abort_transaction if number % 2 else producer.commit_transaction)()


async def ours(bootstrap: str) -> None:
    async with Client(bootstrap) as client, TransactionalProducer(client, "ours") as producer:
        await producer.init()
        for number in range(ROUNDS):
            await producer.begin()
            for partition in (0, 1):
                await (await producer.send("t", str(number).encode(), partition=partition))
            await (producer.abort if number % 2 else producer.commit)()


async def values(bootstrap: str, partition: int, isolation: str, count: int) -> list[bytes]:
    """The first values of the partition, as a consumer with this isolation level gets them."""
    consumer = AIOKafkaConsumer(
        bootstrap_servers=bootstrap, isolation_level=isolation, auto_offset_reset="earliest"
    )
    async with consumer:
        consumer.assign([AioPartition("t", partition)])
        async with asyncio.timeout(TIMEOUT_S):
            return [(await consumer.getone()).value for _ in range(count)]


@pytest.mark.parametrize("client", [librdkafka, aiokafka, ours])
async def test_readers_of_committed_records_get_what_was_committed(
    broker: Broker, client: Callable[[str], Awaitable[None]]
) -> None:
    await client(address(broker))
    for partition in (0, 1):
        found = await values(address(broker), partition, "read_committed", len(COMMITTED))
        assert found == COMMITTED
        everything = await values(address(broker), partition, "read_uncommitted", ROUNDS)
        assert everything == [str(number).encode() for number in range(ROUNDS)]
    logs = [replica for replica in broker.rooms.partitions if replica.topic == "t"]
    for replica in logs:
        assert replica.log.log_end_offset == 2 * ROUNDS, "each transaction ends by one marker"
        stable = replica.log.last_stable_offset(replica.high_watermark)
        assert stable == replica.log.log_end_offset, "no transaction is left open"


async def test_offsets_are_committed_with_their_transaction_or_not_at_all(broker: Broker) -> None:
    bootstrap, read = address(broker), AioPartition("t", 0)
    async with AIOKafkaProducer(bootstrap_servers=bootstrap, transactional_id="a") as producer:
        for number in range(ROUNDS):
            await producer.begin_transaction()
            await producer.send_and_wait("t", b"x", partition=1)
            await producer.send_offsets_to_transaction({read: number}, "readers")
            await (producer.abort_transaction if number % 2 else producer.commit_transaction)()
    async with AIOKafkaConsumer(bootstrap_servers=bootstrap, group_id="readers") as consumer:
        async with asyncio.timeout(TIMEOUT_S):
            assert await consumer.committed(read) == ROUNDS - 2
