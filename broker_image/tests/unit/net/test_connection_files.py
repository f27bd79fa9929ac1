"""Answers that hold slices of files, over real sockets."""

import asyncio
import contextlib
import os
import select
import socket
import struct
from pathlib import Path

import pytest
from logfleet.net.file_sender import INLINE_BYTES_MAX
from logfleet.net.plain_transport import PlainTransport
from logfleet.net.transport import UNSENT_BYTES_MAX

from broker_image.tests.unit.net.connection_rig import (
    Slice,
    framed,
    running,
    send_slowly,
)
from broker_image.tests.unit.waiting import Until

pytestmark = pytest.mark.asyncio


@pytest.fixture
def content(tmp_path: Path) -> bytes:
    data = os.urandom(1024 * 1024) * 8
    (tmp_path / "segment").write_bytes(data)
    return data


@pytest.mark.parametrize(
    "position, length",
    [(0, 1), (17, INLINE_BYTES_MAX), (5, INLINE_BYTES_MAX + 1), (1000, 7_000_000)],
)
async def test_slices_of_files_are_sent_in_their_place(
    tmp_path: Path, content: bytes, position: int, length: int
) -> None:
    expected = b"<<" + content[position : position + length] + b">>>"
    async with running(tmp_path) as rig, rig.client() as client:
        for _ in range(2):
            client.send(b"\0\1F" + struct.pack(">ii", position, length), b"\0\1after")
            assert await client.receive() == expected
            assert await client.receive() == b"\0\1after"


async def test_a_file_waits_for_the_answers_before_it(tmp_path: Path, content: bytes) -> None:
    async with running(tmp_path) as rig, rig.client() as client:
        large = UNSENT_BYTES_MAX - 1000
        bodies = [b"\0\1e" + bytes([number]) * large for number in range(40)]
        file = b"\0\1F" + struct.pack(">ii", 0, 3_000_000)
        requests = [request for body in bodies for request in (body, file)]
        sending = asyncio.ensure_future(send_slowly(client, requests))
        for body in bodies:
            assert await client.receive() == body
            assert await client.receive() == b"<<" + content[:3_000_000] + b">>>"
        await sending


async def test_a_file_does_not_overtake_what_the_transport_keeps(
    tmp_path: Path, content: bytes, until: Until
) -> None:
    """Its sender writes past the transport.

    Here the peer has made room of which the transport does not know yet.
    """
    answer = framed(bytes(30_000))
    ask = framed(b"\0\1B" + struct.pack(">i", 30_000))
    file = [struct.pack(">i", 1_000_000)]
    async with running(tmp_path) as rig:
        with socket.socket() as sock:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1)  # the least that there is
            sock.connect(("127.0.0.1", rig.port))
            sock.setblocking(False)
            await until(lambda: rig.listener.connections)
            (connection,) = rig.listener.connections
            transport = connection._transport
            assert isinstance(transport, PlainTransport)
            while not transport.unsent_bytes:
                sock.send(ask)
                await rig.service.until_seen(len(rig.service.seen) + 1)
                for _ in range(2):  # a loop may write at the end of its step
                    await asyncio.sleep(0)
            expected = answer * len(rig.service.seen) + file[0] + content[:1_000_000]
            sock.send(framed(b"\0\1P"))
            await rig.service.until_seen(len(rig.service.seen) + 1)
            received = bytearray()
            while not select.select([], [transport._raw.get_extra_info("socket")], [], 0)[1]:
                with contextlib.suppress(BlockingIOError):
                    received += sock.recv(len(answer))
            rig.service.parked[0].set_result([*file, Slice(rig.service.fd, 0, 1_000_000)])
            while len(received) < len(expected):
                received += await asyncio.get_running_loop().sock_recv(sock, len(answer))
            assert received == expected


async def test_a_slow_reader_of_files_is_not_served_further(
    tmp_path: Path, content: bytes, until: Until
) -> None:
    async with running(tmp_path) as rig:
        sock = socket.create_connection(("127.0.0.1", rig.port))
        request = framed(b"\0\1F" + struct.pack(">ii", 0, len(content)))
        sock.sendall(request * 5)
        await rig.service.until_seen(1)
        (connection,) = rig.listener.connections
        transport = connection._transport
        assert isinstance(transport, PlainTransport)
        await until(lambda: transport._sender and transport._sender._watching)
        assert len(rig.service.seen) == 1
        sock.close()
        await rig.until_no_connection()


async def test_a_file_shorter_than_its_slice_cuts_the_connection(
    tmp_path: Path, content: bytes
) -> None:
    async with running(tmp_path) as rig, rig.client() as client:
        client.send(b"\0\1F" + struct.pack(">ii", len(content) - 10, 1_000_000))
        with pytest.raises((asyncio.IncompleteReadError, ConnectionResetError)):
            await client.receive()
