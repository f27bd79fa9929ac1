"""A transport of another kind takes the plain one's place: frames, files, pauses and ends."""

import asyncio
import contextlib
import os
import struct
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from logfleet.net.file_sender import INLINE_BYTES_MAX
from logfleet.net.transport import UNSENT_BYTES_MAX

from broker_image.tests.unit.net.connection_rig import Client, Rig, framed, running
from broker_image.tests.unit.net.xor_transport import XorTransport, xor
from broker_image.tests.unit.waiting import Until

pytestmark = pytest.mark.asyncio


class XorClient(Client):
    def send(self, *bodies: bytes) -> None:
        self.writer.write(xor(b"".join(framed(body) for body in bodies)))

    async def receive(self) -> bytes:
        (size,) = struct.unpack(">i", xor(await self.reader.readexactly(4)))
        return xor(await self.reader.readexactly(size))


@contextlib.asynccontextmanager
async def connected(rig: Rig) -> AsyncIterator[XorClient]:
    client = XorClient(*await asyncio.open_connection("127.0.0.1", rig.port))
    try:
        yield client
    finally:
        await client.close()


@pytest.fixture
def content(tmp_path: Path) -> bytes:
    data = os.urandom(3_000_000)
    (tmp_path / "segment").write_bytes(data)
    return data


@pytest.mark.parametrize("size", [0, 1, 4_990, 20_000, 3_000_000])
async def test_frames_of_all_sizes_are_served_in_their_order(tmp_path: Path, size: int) -> None:
    bodies = [b"\0\1e%d" % number + bytes(size) for number in range(5)]
    async with running(tmp_path, transport=XorTransport) as rig, connected(rig) as client:
        for _ in range(2):
            client.send(*bodies)
            for body in bodies:
                assert await client.receive() == body


@pytest.mark.parametrize("length", [1, INLINE_BYTES_MAX + 1, 2_900_000])
async def test_slices_of_files_go_through_it(tmp_path: Path, content: bytes, length: int) -> None:
    async with running(tmp_path, transport=XorTransport) as rig, connected(rig) as client:
        for _ in range(2):
            client.send(b"\0\1F" + struct.pack(">ii", 17, length), b"\0\1after")
            assert await client.receive() == b"<<" + content[17 : 17 + length] + b">>>"
            assert await client.receive() == b"\0\1after"


async def test_nothing_is_served_while_a_request_is_in_progress(tmp_path: Path) -> None:
    async with running(tmp_path, transport=XorTransport) as rig, connected(rig) as client:
        client.send(b"\0\1P", *[b"\0\1e%d" % number for number in range(200)])
        await rig.service.until_seen(1)
        for _ in range(20):
            await asyncio.sleep(0)
        assert len(rig.service.seen) == 1
        rig.service.parked[0].set_result(framed(b"late"))
        assert await client.receive() == b"late"
        for number in range(200):
            assert await client.receive() == b"\0\1e%d" % number


async def test_a_peer_that_does_not_read_is_not_served_further(
    tmp_path: Path, content: bytes, until: Until
) -> None:
    async with running(tmp_path, transport=XorTransport) as rig, connected(rig) as client:
        asked = b"\0\1F" + struct.pack(">ii", 0, len(content))
        client.send(*[asked] * 20)
        await until(lambda: rig.listener.connections)
        (connection,) = rig.listener.connections
        await until(lambda: connection._transport.unsent_bytes > UNSENT_BYTES_MAX)
        before = len(rig.service.seen)
        for _ in range(50):
            await asyncio.sleep(0)
        assert len(rig.service.seen) == before < 20
        for _ in range(20):
            assert await client.receive() == b"<<" + content + b">>>"


async def test_a_file_shorter_than_its_slice_cuts_the_connection(
    tmp_path: Path, content: bytes
) -> None:
    async with running(tmp_path, transport=XorTransport) as rig, connected(rig) as client:
        client.send(b"\0\1F" + struct.pack(">ii", len(content) - 10, 1_000_000))
        assert await client.is_closed_by_broker()
        await rig.until_no_connection()


async def test_a_refused_request_closes_it_after_the_answers_before(tmp_path: Path) -> None:
    async with running(tmp_path, transport=XorTransport) as rig, connected(rig) as client:
        client.send(b"\0\1e", b"\0\1X", b"\0\1e")
        assert await client.receive() == b"\0\1e"
        assert await client.is_closed_by_broker()
        await rig.until_no_connection()
        assert len(rig.service.seen) == 2


async def test_what_speaks_without_it_is_refused(tmp_path: Path) -> None:
    async with running(tmp_path, transport=XorTransport) as rig, rig.client() as client:
        client.send(b"\0\1e")
        assert await client.is_closed_by_broker()
        assert rig.service.seen == []


async def test_a_stop_ends_it_once_its_request_is_answered(tmp_path: Path) -> None:
    async with running(tmp_path, transport=XorTransport) as rig, connected(rig) as client:
        client.send(b"\0\1P")
        await rig.service.until_seen(1)
        stopping = asyncio.ensure_future(rig.listener.stop(grace_s=5))
        await asyncio.sleep(0)
        rig.service.parked[0].set_result(framed(b"answer"))
        assert await client.receive() == b"answer"
        assert await client.is_closed_by_broker()
        await stopping
