"""Peers that take nothing of what they asked for.

They are let go like idle ones, and what was kept for them with them.
"""

import asyncio
import socket
import struct
from pathlib import Path

import pytest
from logfleet.net.connection import IDLE
from logfleet.net.listener import Listener
from logfleet.net.plain_transport import PlainTransport

from broker_image.tests.unit.net.connection_rig import framed, running
from broker_image.tests.unit.net.listening import stop_ticking
from broker_image.tests.unit.waiting import Until

pytestmark = pytest.mark.asyncio
ANSWER_BYTES = 8 * 1024 * 1024


LARGE_ANSWER = pytest.mark.parametrize(
    "request_",
    [b"\0\1B" + struct.pack(">i", ANSWER_BYTES), b"\0\1F" + struct.pack(">ii", 0, ANSWER_BYTES)],
    ids=["bytes", "file"],
)


async def sweep(listener: Listener) -> None:
    """Look for idle connections when it is later by more than the idle limit."""
    listener.now += 601
    await listener._close_idle()


@LARGE_ANSWER
async def test_a_peer_that_reads_no_answer_is_let_go(
    tmp_path: Path, until: Until, request_: bytes
) -> None:
    async with running(tmp_path) as rig:
        stop_ticking(rig.listener)
        (tmp_path / "segment").write_bytes(bytes(ANSWER_BYTES))
        with socket.socket() as deaf:
            deaf.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 16 * 1024)
            deaf.setblocking(False)
            deaf.connect_ex(("127.0.0.1", rig.port))
            await until(lambda: rig.listener.connections)
            (connection,) = rig.listener.connections
            deaf.send(framed(request_))
            await until(lambda: rig.service.seen)
            while rig.listener.connections:
                await sweep(rig.listener)
            assert connection.end_reason == IDLE
            transport = connection._transport
            assert isinstance(transport, PlainTransport)
            assert transport._unsent is None
            assert transport.unsent_bytes == 0


@LARGE_ANSWER
async def test_a_peer_that_reads_slowly_is_served_as_long_as_it_reads(
    tmp_path: Path, until: Until, request_: bytes
) -> None:
    """Each step exceeds the idle limit, and in each the peer receives a part of its response."""
    async with running(tmp_path) as rig:
        stop_ticking(rig.listener)
        (tmp_path / "segment").write_bytes(bytes(ANSWER_BYTES))
        slow = socket.socket()
        slow.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 16 * 1024)
        slow.connect(("127.0.0.1", rig.port))
        reader, writer = await asyncio.open_connection(sock=slow, limit=16 * 1024)
        writer.write(framed(request_))
        await until(lambda: rig.service.seen)
        (connection,) = rig.listener.connections
        for _ in range(3):
            await sweep(rig.listener)
            before = connection._transport.unsent_bytes
            while before == connection._transport.unsent_bytes:
                assert await reader.read(64 * 1024)
        assert connection.end_reason != IDLE
        await sweep(rig.listener)  # notes what was read last
        await sweep(rig.listener)
        assert connection.end_reason == IDLE
        writer.transport.abort()
        await until(lambda: not rig.listener.connections)
