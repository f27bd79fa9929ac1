"""One fleet, one console and one browser for all walks."""

import asyncio
import os
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final, NamedTuple

import pytest
from confluent_kafka import Consumer
from logfleet.client.admin import Admin, NewTopic
from logfleet.client.cluster import Client
from logfleet.client.groups import Groups
from logfleet.client.offsets import TopicPartition
from logfleet.records.compression import Codec
from logfleet.records.record import Record, build_batch
from logfleet.wire.messages import ProduceRequest, ProduceResponse

from e2e.harness.debian import PackagesMissing
from e2e.harness.processes import Fleet, Rig
from e2e.harness.program import Program
from e2e.suites.local.console.browser import Browser, browser

STUCK_S: Final = 3
ORDERS: Final = 6_000
"""Records of the topic orders."""
MANY_BATCHES: Final = 60
MANY_RECORDS: Final = 20_000
"""In each batch of the topic many: a search of all that decodes takes seconds."""
READY: Final = "ready: "


class Place(NamedTuple):
    """A fleet with topics and groups, and a console of it at `url`."""

    fleet: Fleet
    console: Program
    url: str


def start_console(rig: Rig, bootstrap: str, *options: str) -> tuple[Program, str]:
    """A console and its address."""
    command = [sys.executable, "-m", "logfleet", "console", "-b", bootstrap]
    command += ["--listen", "127.0.0.1:0", "--stuck-after", str(STUCK_S), *options]
    program = rig.program(f"console-{len(options)}", command, dict(os.environ))
    program.launch()
    program.wait_until(lambda: READY in program.said() and "\n" in program.said())
    line = program.said().partition(READY)[2]
    return program, line.split()[0].rstrip("/")


def order(number: int) -> bytes:
    dest = ("LAX", "ORD", "SFO", "JFK")[number % 4]
    return b'{"id": %d, "dest": "%s", "delay": %d, "card": "4000-%04d"}' % (
        number,
        dest.encode(),
        number % 97,
        number % 10_000,
    )


async def produce(client: Client, topic: str, partition: int, batches: Sequence[bytes]) -> None:
    """Append these batches, one request for each."""
    leader = await client.broker(await client.leader_of(topic, partition))
    for batch in batches:
        data = ProduceRequest.PartitionProduceData(index=partition, records=batch)
        row = ProduceRequest.TopicProduceData(
            name=topic,
            topic_id=(await client.topic(topic)).topic_id,
            partition_data=[data],
        )
        request = ProduceRequest(acks=-1, timeout_ms=30_000, topic_data=[row])
        response = await leader.request(request, ProduceResponse)
        assert response.responses[0].partition_responses[0].error_code == 0, response


async def fill(bootstrap: str) -> None:
    """Topics orders (6 partitions), payments and many (1 partition), and a group that has read some."""
    async with Client(bootstrap) as client:
        for name, partitions in (("orders", 6), ("payments", 3), ("many", 1)):
            await Admin(client).create_topic(NewTopic(name, partitions, 3))
        at_ms = 1_795_000_000_000
        for partition in range(6):
            numbers = range(partition, ORDERS, 6)
            records = [Record(b"k%d" % n, order(n), at_ms + n * 250) for n in numbers]
            await produce(client, "orders", partition, [bytes(build_batch(records))])
        some = [Record(None, order(n), at_ms + n) for n in range(MANY_RECORDS)]
        batch = bytes(build_batch(some, codec=Codec.LZ4))
        await produce(client, "many", 0, [batch] * MANY_BATCHES)
        read = {TopicPartition("orders", index): 700 for index in range(6)}
        await Groups(client).commit("billing", read)


def stuck_consumer(bootstrap: str) -> Consumer:
    """A member of the group shipping that has read all orders and commits nothing."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "shipping",
            "client.id": "shipping-app",
            "enable.auto.commit": False,
            "auto.offset.reset": "earliest",
        }
    )
    consumer.subscribe(["orders"])
    for _ in range(300):
        if (message := consumer.poll(0.2)) is not None and message.error() is None:
            consumer.commit(message=message, asynchronous=False)
            return consumer
    raise AssertionError("the consumer got no record")


@pytest.fixture(scope="session")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    rig = Rig(tmp_path_factory.mktemp("console"))
    try:
        fleet = rig.fleet(3, zones=["a", "b", "c"])
        asyncio.run(fill(fleet.bootstrap))
        console, url = start_console(rig, fleet.bootstrap)
        yield Place(fleet, console, url)
    finally:
        rig.close()


@pytest.fixture(scope="session")
def chromium() -> Iterator[Browser]:
    """Skips if the browser cannot be installed here; under continuous integration that fails."""
    try:
        with browser() as opened:
            yield opened
    except PackagesMissing as missing:
        if os.environ.get("CI") == "true":
            raise
        pytest.skip(str(missing))


@pytest.fixture
def window(chromium: Browser) -> Iterator[Browser]:
    """The browser as a new visitor has it; what the pages log as an error fails the test."""
    chromium.prefer("light")
    chromium.resize()
    chromium.scripts(allowed=True)
    chromium.complaints()
    yield chromium
    assert chromium.complaints() == []


@pytest.fixture(scope="session")
def pictures() -> Path | None:
    """Where pictures of the screens go, if they are wanted: CONSOLE_PICTURES=docs/images."""
    given = os.environ.get("CONSOLE_PICTURES")
    return Path(given) if given else None
