"""Three brokers: a copier commits what it read with what it wrote, so each record is copied once.

The group coordinator is stopped, with the coordinator of its transactions and with leaders of both
topics, between staging and marker; some transactions are aborted.
"""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio
from logfleet.client.cluster import Client
from logfleet.client.errors import ClientError
from logfleet.client.fetcher import Fetcher
from logfleet.client.groups import Groups
from logfleet.client.offsets import IsolationLevel, TopicPartition
from logfleet.client.producer import Producer
from logfleet.client.transactions.producer import TransactionalProducer
from logfleet.client.transactions.version import FinalizedFeatures

from broker_image.tests.unit.node.replication.fleet_rig import Fleet, fleet_of

pytestmark = pytest.mark.asyncio

INPUT, OUTPUT = TopicPartition("in", 0), TopicPartition("out", 0)
RECORDS = 60
AT_ONCE = 5
END = b"end"
"""What is written behind all copies."""
STOPS = {10: 1, 30: 2, 45: 3}
"""Copied records after which a broker is stopped, with the number of the broker."""


@pytest_asyncio.fixture
async def fleet(tmp_path: Path) -> AsyncIterator[Fleet]:
    async with fleet_of(tmp_path / "fleet", 1, 2, 3, transactions=True) as made:
        await made.create_topic(INPUT.topic, 1, 2, 3)
        await made.create_topic(OUTPUT.topic, 2, 3, 1)
        yield made


def bootstrap(fleet: Fleet) -> str:
    ports = [each.opened.listeners.all[0].port for each in fleet.brokers.values()]
    return ",".join(f"127.0.0.1:{port}" for port in ports)


async def read(client: Client, partition: TopicPartition, start: int, count: int) -> list[bytes]:
    """Committed records from an offset on, once there are so many."""
    fetcher = Fetcher(client, isolation=IsolationLevel.READ_COMMITTED)
    fetcher.assign({partition: start})
    values: list[bytes] = []
    async with asyncio.timeout(30):
        while len(values) < count:
            for fetched in await fetcher.poll(200):
                values += [record.value or b"" for record in fetched.records()]
    return values


class Copier:
    """Copies INPUT to OUTPUT; its position is the offset of group g."""

    def __init__(self, fleet: Fleet) -> None:
        self._fleet = fleet
        self._stops = dict(STOPS)
        self.transactions = 0

    async def run(self) -> None:
        """Copy all records; after an error that ends a producer, with another one."""
        while True:
            async with (
                Client(bootstrap(self._fleet)) as client,
                TransactionalProducer(client, "copier") as producer,
            ):
                with contextlib.suppress(ClientError):
                    await producer.init()
                    while (position := await self._position(client)) < RECORDS:
                        await self._copy(client, producer, position)
                    await producer.begin()
                    await producer.send(OUTPUT.topic, END, partition=OUTPUT.partition)
                    await producer.commit()
                    return

    async def _position(self, client: Client) -> int:
        found = await Groups(client).committed("g", [INPUT])
        return found[INPUT].offset if INPUT in found else 0

    async def _copy(self, client: Client, producer: TransactionalProducer, position: int) -> None:
        values = await read(client, INPUT, position, 1)
        self.transactions += 1
        await producer.begin()
        sent = [
            await producer.send(OUTPUT.topic, value, partition=OUTPUT.partition)
            for value in values[:AT_ONCE]
        ]
        await producer.add_offsets("g", {INPUT: position + len(sent)})
        stopped = self._stops.pop(position, None)
        if stopped is not None:
            await self._fleet.stop(stopped)
            await self._fleet.start(stopped)
        if self.transactions % 4 == 3:
            await producer.abort()
        else:
            await producer.commit()


@pytest.mark.parametrize("version", [1, 2])
async def test_each_record_is_copied_once_though_brokers_stop(
    fleet: Fleet, monkeypatch: pytest.MonkeyPatch, version: int
) -> None:
    monkeypatch.setattr(FinalizedFeatures, "level", lambda *_: version)
    values = [b"%d" % number for number in range(RECORDS)]
    async with Client(bootstrap(fleet)) as client, Producer(client) as producer:
        for sent in [await producer.send(INPUT.topic, value, partition=0) for value in values]:
            await sent
    copier = Copier(fleet)
    async with asyncio.timeout(90):
        await copier.run()
    assert copier.transactions > RECORDS // AT_ONCE
    assert not copier._stops
    async with Client(bootstrap(fleet)) as client:
        assert await read(client, OUTPUT, 0, RECORDS + 1) == [*values, END]
