"""A broker whose clients speak through another kind of transport: records go in and out by it."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from logfleet.net.file_sender import INLINE_BYTES_MAX
from logfleet.net.listener import Listener
from logfleet.node import listening
from logfleet.node.broker import Broker
from logfleet.node.handlers.admin.topics import create_one
from logfleet.records.batch import iterate_headers
from logfleet.records.record import Record, build_batch
from logfleet.wire.apis import api_of
from logfleet.wire.frame import decode_response, encode_request
from logfleet.wire.messages import FetchRequest, ProduceRequest

from broker_image.tests.unit.net.xor_transport import XorTransport, xor
from broker_image.tests.unit.node.broker_rig import config

pytestmark = pytest.mark.asyncio
VALUE = b"in clear " * 1_000
BATCHES = 40


class Client:
    """encrypted: what came from the socket, as it came."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer
        self.encrypted = b""

    async def ask(self, request: Any, version: int) -> Any:
        sent = b"".join(bytes(part) for part in encode_request(request, version, 1, "test"))  # type: ignore[arg-type]
        self._writer.write(xor(sent))
        size = int.from_bytes(xor(await self._reader.readexactly(4)), "big")
        self.encrypted = await self._reader.readexactly(size)
        return decode_response(api_of(type(request)), version, memoryview(xor(self.encrypted)))[1]


@contextlib.asynccontextmanager
async def connected(broker: Broker) -> AsyncIterator[Client]:
    (listener,) = broker.opened.listeners.all
    reader, writer = await asyncio.open_connection("127.0.0.1", listener.port)
    with contextlib.closing(writer):
        yield Client(reader, writer)


@pytest.fixture(autouse=True)
def transport(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(listening, "Listener", partial(Listener, transport=XorTransport))


async def produce(client: Client, topic: str) -> int:
    batch = bytes(build_batch([Record(None, VALUE, 1_700_000_000_000)]))
    data = ProduceRequest.TopicProduceData(
        name=topic,
        partition_data=[ProduceRequest.PartitionProduceData(index=0, records=batch)],
    )
    answer = await client.ask(ProduceRequest(acks=-1, timeout_ms=5_000, topic_data=[data]), 9)
    (row,) = answer.responses[0].partition_responses
    assert row.error_code == 0
    return int(row.base_offset)


async def fetch(client: Client, topic: str, max_bytes: int) -> list[int]:
    """Offsets of the batches in one response."""
    wanted = FetchRequest.FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=max_bytes)
    request = FetchRequest(
        max_wait_ms=5_000,
        min_bytes=1,
        max_bytes=max_bytes,
        topics=[FetchRequest.FetchTopic(topic=topic, partitions=[wanted])],
    )
    answer = await client.ask(request, 12)
    (row,) = answer.responses[0].partitions
    assert row.error_code == 0
    return [header.base_offset for _, header in iterate_headers(bytes(row.records))]


async def test_produce_and_fetch_work_and_no_record_passes_in_clear(tmp_path: Path) -> None:
    async with Broker(config(tmp_path)) as broker:
        assert await create_one(broker.rooms.control.access, "t", 1, 1, {}) is None
        async with connected(broker) as client:
            for number in range(BATCHES):
                assert await produce(client, "t") == number
            assert await fetch(client, "t", len(VALUE)) == [0]
            assert VALUE[:20] not in client.encrypted
            assert len(VALUE) * BATCHES > 3 * INLINE_BYTES_MAX
            assert await fetch(client, "t", 1 << 20) == list(range(BATCHES))
            assert VALUE[:20] not in client.encrypted
            assert VALUE[:20] in xor(client.encrypted)


async def test_a_consumer_that_waits_gets_what_comes(tmp_path: Path) -> None:
    async with Broker(config(tmp_path)) as broker:
        assert await create_one(broker.rooms.control.access, "t", 1, 1, {}) is None
        async with connected(broker) as reader, connected(broker) as writer:
            waiting = asyncio.ensure_future(fetch(reader, "t", 1 << 20))
            await produce(writer, "t")
            assert await waiting == [0]
