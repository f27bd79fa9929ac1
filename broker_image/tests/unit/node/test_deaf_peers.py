"""Peers that take nothing of what they asked for: they are let go like idle ones, and what was kept for them with them."""

import socket
import struct
from pathlib import Path

import pytest

from broker_image.tests.unit.node.test_connection import framed, running
from broker_image.tests.unit.node.waiting import Until

pytestmark = pytest.mark.asyncio
ANSWER_BYTES = 8 * 1024 * 1024


@pytest.mark.parametrize(
    "request_",
    [b"\0\1B" + struct.pack(">i", ANSWER_BYTES), b"\0\1F" + struct.pack(">ii", 0, ANSWER_BYTES)],
    ids=["bytes", "file"],
)
async def test_a_peer_that_reads_no_answer_is_let_go(
    tmp_path: Path, until: Until, request_: bytes
) -> None:
    async with running(tmp_path, idle_s_max=0.2) as rig:
        (tmp_path / "segment").write_bytes(bytes(ANSWER_BYTES))
        with socket.socket() as deaf:
            deaf.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 16 * 1024)
            deaf.setblocking(False)
            deaf.connect_ex(("127.0.0.1", rig.port))
            await until(lambda: rig.listener.connections)
            (connection,) = rig.listener.connections
            deaf.send(framed(request_))
            await until(lambda: rig.service.seen)
            await until(lambda: not rig.listener.connections)
            assert connection._unsent is None
            assert connection._transport.get_write_buffer_size() == 0
