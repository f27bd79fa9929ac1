"""Three brokers: what a producer committed is read, in order, whichever broker stops meanwhile."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio
from logfleet.client.cluster import Client
from logfleet.client.errors import ClientError
from logfleet.client.fetcher import Fetcher
from logfleet.client.offsets import IsolationLevel, TopicPartition
from logfleet.client.transactions.producer import TransactionalProducer
from logfleet.client.transactions.version import FinalizedFeatures
from logfleet.node.transactions.enlisting import Enlisting

from broker_image.tests.unit.node.replication.fleet_rig import Fleet, fleet_of, until

pytestmark = pytest.mark.asyncio

TOPICS = ("x", "y", "z")
both_protocols = pytest.mark.parametrize("version", [1, 2])


@pytest_asyncio.fixture
async def fleet(tmp_path: Path) -> AsyncIterator[Fleet]:
    async with fleet_of(tmp_path / "fleet", 1, 2, 3, transactions=True) as made:
        for first, topic in enumerate(TOPICS):
            await made.create_topic(topic, *(1 + (first + other) % 3 for other in range(3)))
        yield made


def bootstrap(fleet: Fleet) -> str:
    ports = [each.opened.listeners.all[0].port for each in fleet.brokers.values()]
    return ",".join(f"127.0.0.1:{port}" for port in ports)


async def transaction(producer: TransactionalProducer, number: int) -> bool:
    """One that writes its number to all topics, twice; whether it is committed: the odd ones."""
    await producer.begin()
    try:
        value = b"%d" % number
        sent = [await producer.send(topic, value, partition=0) for topic in TOPICS * 2]
        await asyncio.gather(*sent)
        if number % 2:
            await producer.commit()
            return True
    except ClientError:
        pass
    await producer.abort()
    return False


async def committed(client: Client, topic: str, count: int) -> list[bytes | None]:
    fetcher = Fetcher(client, isolation=IsolationLevel.READ_COMMITTED)
    fetcher.assign({TopicPartition(topic, 0): 0})
    values: list[bytes | None] = []
    async with asyncio.timeout(20):
        while len(values) < count:
            for fetched in await fetcher.poll(200):
                values += [record.value for record in fetched.records()]
    return values


@both_protocols
async def test_what_is_committed_is_read_though_brokers_stop(
    fleet: Fleet, monkeypatch: pytest.MonkeyPatch, version: int
) -> None:
    monkeypatch.setattr(FinalizedFeatures, "level", lambda *_: version)
    done = []
    async with Client(bootstrap(fleet)) as client, TransactionalProducer(client, "a") as producer:
        await producer.init()
        for number in range(12):
            if number in {4, 8}:
                await fleet.stop(number // 4)
                await fleet.start(number // 4)
            if await transaction(producer, number):
                done.append(number)
        wanted = [b"%d" % number for number in done for _ in range(2)]
        assert len(done) >= 4
        for topic in TOPICS:
            assert await committed(client, topic, len(wanted)) == wanted
    await until(lambda: all(is_stable(fleet, topic) for topic in TOPICS))


def is_stable(fleet: Fleet, topic: str) -> bool:
    leader = fleet.leader(topic)
    return leader is not None and leader.last_stable_offset == leader.log_end_offset


async def test_nothing_is_asked_of_a_coordinator_after_the_first_batch(
    fleet: Fleet, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = 0
    enlist = Enlisting.enlist

    async def counting(self: Enlisting, *given: object) -> object:
        nonlocal asked
        asked += 1
        return await enlist(self, *given)  # type: ignore[arg-type]

    monkeypatch.setattr(Enlisting, "enlist", counting)
    async with Client(bootstrap(fleet)) as client, TransactionalProducer(client, "a") as producer:
        await producer.init()
        await producer.begin()
        for _ in range(5):
            await (await producer.send("x", b"v", partition=0))
        await producer.commit()
    assert asked == 1
