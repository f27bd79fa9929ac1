"""Connections over real sockets."""

import asyncio
import contextlib
import itertools
import os
import re
import socket
import struct
from pathlib import Path
from typing import Any

import pytest
from logfleet.net.connection import (
    SMALL_FRAME_BYTES_MAX,
    SMALL_RESPONSE_BYTES_MAX,
    WRITE_PAUSED,
    CloseConnection,
    Connection,
    Encoded,
)
from logfleet.net.transport import UNSENT_BYTES_MAX
from logfleet.net.turns import REQUESTS_PER_STEP_MAX
from structlog.testing import capture_logs

from broker_image.tests.unit.net.connection_rig import (
    REQUEST_BYTES_MAX,
    framed,
    running,
    send_slowly,
)
from broker_image.tests.unit.waiting import Until

pytestmark = pytest.mark.asyncio

TICK_S = 0.005
"""As exactly as a loop keeps time: uvloop in whole milliseconds."""

BY_TASK_AND_BY_CALL = pytest.mark.parametrize("by_call", [False, True], ids=["task", "call"])


async def test_a_request_is_answered(tmp_path: Path) -> None:
    async with running(tmp_path) as rig, rig.client() as client:
        client.send(b"\0\x12hello")
        assert await client.receive() == b"\0\x12hello"
        assert rig.service.peers[0].listener == "PLAINTEXT"
        assert rig.service.peers[0].host == "127.0.0.1"


@pytest.mark.parametrize("size", [0, 1, 100, SMALL_FRAME_BYTES_MAX, SMALL_FRAME_BYTES_MAX + 1])
async def test_pipelined_frames_of_one_size_are_answered_in_order(
    tmp_path: Path, size: int
) -> None:
    bodies = [b"\0\1e" + bytes([number]) * size for number in range(20)]
    async with running(tmp_path) as rig, rig.client() as client:
        client.send(*bodies)
        assert [await client.receive() for _ in bodies] == bodies


@pytest.fixture
def sent(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many bytes each call of a connection has sent."""
    sizes: list[int] = []
    made = Connection.connection_made

    def connection_made(self: Connection, transport: Any) -> None:
        counting: Any = Counting(transport, sizes)
        made(self, counting)

    monkeypatch.setattr(Connection, "connection_made", connection_made)
    return sizes


class Counting:
    """A transport that notes the sizes of what is written."""

    def __init__(self, transport: Any, sizes: list[int]) -> None:
        self._transport = transport
        self._sizes = sizes

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)

    def write(self, data: bytes) -> None:
        self._sizes.append(len(data))
        self._transport.write(data)


async def test_small_answers_to_requests_that_came_together_go_out_together(
    tmp_path: Path, sent: list[int]
) -> None:
    bodies = [b"\0\1e%d" % number for number in range(5)]
    async with running(tmp_path) as rig, rig.client() as client:
        client.send(*bodies)
        assert [await client.receive() for _ in bodies] == bodies
        assert sent == [sum(len(framed(body)) for body in bodies)]
        client.send(b"\0\1e")
        await client.receive()
        assert len(sent) == 2


async def test_what_is_answered_otherwise_comes_behind_the_answers_before_it(
    tmp_path: Path, sent: list[int]
) -> None:
    large = SMALL_RESPONSE_BYTES_MAX
    asked = [
        b"\0\1one",
        b"\0\1B" + struct.pack(">i", large),
        b"\0\1two",
        b"\0\1F" + struct.pack(">ii", 0, 1),
        b"\0\1three",
        b"\0\1P",
        b"\0\1four",
    ]
    answers = [b"\0\1one", bytes(large), b"\0\1two", b"<<x>>>", b"\0\1three", b"late", b"\0\1four"]
    async with running(tmp_path, by_call=True) as rig, rig.client() as client:
        (tmp_path / "segment").write_bytes(b"x")
        client.send(*asked)
        await rig.service.until_seen(6)
        for answer in answers[:5]:
            assert await client.receive() == answer
        rig.service.parked[0].set_result(framed(answers[5]))
        for answer in answers[5:]:
            assert await client.receive() == answer


async def test_answers_are_sent_though_the_next_request_is_incomplete_or_refused(
    tmp_path: Path,
) -> None:
    async with running(tmp_path) as rig, rig.client() as client:
        client.writer.write(framed(b"\0\1one") + framed(b"\0\1two")[:5])
        assert await client.receive() == b"\0\1one"
        client.writer.write(framed(b"\0\1two")[5:] + framed(b"\0\1three") + framed(b"\0\1X"))
        assert await client.receive() == b"\0\1two"
        assert await client.receive() == b"\0\1three"
        assert await client.is_closed_by_broker()


async def test_a_peer_that_pipelines_gives_way_to_others_and_loses_nothing(tmp_path: Path) -> None:
    count = 20 * REQUESTS_PER_STEP_MAX + 3
    async with running(tmp_path) as rig, rig.client() as greedy:
        served: list[int] = []

        def each_step() -> None:
            served.append(len(rig.service.seen))
            if served[-1] < count:
                asyncio.get_running_loop().call_soon(each_step)

        greedy.writer.write(b"".join(framed(b"\0\1e%d" % number) for number in range(count)))
        greedy.writer.write_eof()
        each_step()
        answers = [await greedy.receive() for _ in range(count)]
        assert answers == [b"\0\1e%d" % number for number in range(count)]
        steps = [now - before for before, now in itertools.pairwise(served)]
        assert max(steps) == REQUESTS_PER_STEP_MAX


async def test_frames_of_mixed_sizes_are_answered_in_order(tmp_path: Path) -> None:
    sizes = [5, 70_000, 0, 1, 65_536, 300_000, 3, 2_000_000, 17_000, 16_384, 131_072, 9] * 2
    bodies = [b"\0\0e" + os.urandom(size) for size in sizes]
    async with running(tmp_path) as rig, rig.client() as client:
        sending = asyncio.ensure_future(send_slowly(client, bodies))
        assert [await client.receive() for _ in bodies] == bodies
        await sending


async def test_frames_split_at_each_byte_are_put_together(tmp_path: Path) -> None:
    stream = framed(b"\0\1first") + framed(b"") + framed(b"\0\1second one")
    async with running(tmp_path) as rig:
        for cut in range(1, len(stream)):
            async with rig.client() as client:
                seen = len(rig.service.seen)
                sock: socket.socket = client.writer.get_extra_info("socket")
                sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                client.writer.write(stream[:cut])
                whole = sum(cut >= end for end in (11, 15))
                await rig.service.until_seen(seen + whole)
                client.writer.write(stream[cut:])
                assert await client.receive() == b"\0\1first"
                assert await client.receive() == b""
                assert await client.receive() == b"\0\1second one"


async def test_a_large_frame_may_come_byte_by_byte_at_its_ends(tmp_path: Path) -> None:
    body = b"\0\0e" + os.urandom(100_000)
    stream = framed(body)
    async with running(tmp_path) as rig, rig.client() as client:
        for _ in range(2):
            for piece in (stream[:1], stream[1:3], stream[3:9], stream[9:-1], stream[-1:]):
                client.writer.write(piece)
                await client.writer.drain()
                await asyncio.sleep(0)
            assert await client.receive() == body


@pytest.mark.parametrize("size", [-1, -(2**31), REQUEST_BYTES_MAX + 1, 2**31 - 1])
async def test_a_frame_of_impossible_size_closes_the_connection(tmp_path: Path, size: int) -> None:
    async with running(tmp_path) as rig, rig.client() as client:
        client.send(b"\0\1before")
        client.writer.write(struct.pack(">i", size) + b"rest")
        assert await client.receive() == b"\0\1before"
        assert await client.is_closed_by_broker()
        assert rig.service.seen == [b"\0\1before"]


@pytest.mark.parametrize(
    "stranger, reason",
    [
        (b"GET / HTTP/1.1\r\nHost: h\r\n\r\n", "the client speaks HTTP, .*logfleet.admin.listener"),
        (b"PRI * HTTP/2.0\r\n\r\n", "the client speaks HTTP"),
        (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", "the client speaks TLS, .*PLAINTEXT"),
        (b"\xff\xff\xff\xff", "frame of -1 bytes"),
    ],
)
async def test_a_client_of_another_protocol_is_named(
    tmp_path: Path, stranger: bytes, reason: str
) -> None:
    with capture_logs() as logs:
        async with running(tmp_path) as rig, rig.client() as client:
            client.writer.write(stranger)
            assert await client.is_closed_by_broker()
    (refused,) = (entry for entry in logs if entry["event"] == "connection_refused")
    assert re.match(reason, refused["reason"])


async def test_a_frame_of_the_largest_size_is_served(tmp_path: Path) -> None:
    async with running(tmp_path) as rig, rig.client() as client:
        body = b"\0\0e" + bytes(REQUEST_BYTES_MAX - 3)
        sending = asyncio.ensure_future(send_slowly(client, [body, body]))
        assert await client.receive() == body
        assert await client.receive() == body
        await sending


async def test_an_announced_size_allocates_little_before_the_bytes_come(
    tmp_path: Path, until: Until
) -> None:
    async with running(tmp_path) as rig, rig.client() as client:
        client.writer.write(struct.pack(">i", REQUEST_BYTES_MAX) + b"\0\0e")
        client.send(b"")
        await client.writer.drain()
        await until(lambda: rig.listener.connections)
        (connection,) = rig.listener.connections
        await until(lambda: connection._frame is not None)
        assert len(connection._frame or b"") <= 256 * 1024


async def test_a_refused_request_closes_the_connection_after_earlier_answers(
    tmp_path: Path,
) -> None:
    async with running(tmp_path) as rig, rig.client() as client:
        client.send(b"\0\1one", b"\0\1X", b"\0\1two")
        assert await client.receive() == b"\0\1one"
        assert await client.is_closed_by_broker()
        assert b"\0\1two" not in rig.service.seen


async def test_a_request_without_answer_lets_the_next_one_pass(tmp_path: Path) -> None:
    async with running(tmp_path) as rig, rig.client() as client:
        client.send(b"\0\0N", b"\0\1one")
        assert await client.receive() == b"\0\1one"


@BY_TASK_AND_BY_CALL
async def test_a_parked_request_holds_back_those_behind_it(
    tmp_path: Path, *, by_call: bool
) -> None:
    async with running(tmp_path, by_call=by_call) as rig, rig.client() as client:
        client.send(b"\0\1P", b"\0\1two", b"\0\0e" + bytes(100_000))
        await rig.service.until_seen(1)
        client.send(b"\0\1three")
        await client.writer.drain()
        assert len(rig.service.seen) == 1
        rig.service.parked[0].set_result(framed(b"first"))
        assert await client.receive() == b"first"
        assert await client.receive() == b"\0\1two"
        assert len(await client.receive()) == 100_003
        assert await client.receive() == b"\0\1three"


@BY_TASK_AND_BY_CALL
async def test_a_parked_request_may_end_without_answer_or_by_closing(
    tmp_path: Path, *, by_call: bool
) -> None:
    async def refuse() -> Encoded:
        raise CloseConnection("changed my mind")

    async with running(tmp_path, by_call=by_call) as rig, rig.client() as client:
        client.send(b"\0\1P", b"\0\1two", b"\0\1P", b"\0\1never")
        await rig.service.until_seen(1)
        rig.service.parked[0].set_result(None)
        assert await client.receive() == b"\0\1two"
        await rig.service.until_seen(3)
        rig.service.parked[1].set_exception(CloseConnection("changed my mind"))
        assert await client.is_closed_by_broker()


@BY_TASK_AND_BY_CALL
async def test_while_a_request_is_parked_little_is_read(
    tmp_path: Path, until: Until, *, by_call: bool
) -> None:
    async with running(tmp_path, by_call=by_call) as rig, rig.client() as client:
        client.send(b"\0\1P")
        await rig.service.until_seen(1)
        sock: socket.socket = client.writer.get_extra_info("socket")
        client.writer.transport.set_write_buffer_limits(high=0)
        client.send(b"\0\0e" + bytes(REQUEST_BYTES_MAX - 10), b"\0\1x" + bytes(8 * 1024 * 1024))
        (connection,) = rig.listener.connections
        await until(lambda: connection._read_paused)
        assert len(connection._head) <= 64 * 1024
        assert connection._frame is None
        assert sock.fileno() > 0
        rig.service.parked[0].set_result(framed(b"\0\1answer"))
        client.writer.transport.abort()


@BY_TASK_AND_BY_CALL
async def test_a_client_that_leaves_ends_its_parked_request(
    tmp_path: Path, *, by_call: bool
) -> None:
    async with running(tmp_path, by_call=by_call) as rig:
        async with rig.client() as client:
            client.send(b"\0\1P")
            await rig.service.until_seen(1)
            left = asyncio.Event()
            rig.service.peers[0].on_leave = left.set
        await left.wait()
        rig.service.parked[0].set_result(framed(b"nobody reads this"))
        await rig.until_no_connection()


@BY_TASK_AND_BY_CALL
async def test_a_client_that_closed_its_sending_side_gets_its_answer(
    tmp_path: Path, until: Until, *, by_call: bool
) -> None:
    async with running(tmp_path, by_call=by_call) as rig, rig.client() as client:
        client.send(b"\0\1P")
        client.writer.write_eof()
        await rig.service.until_seen(1)
        (connection,) = rig.listener.connections
        await until(lambda: connection.finishing)
        rig.service.parked[0].set_result(framed(b"answer"))
        assert await client.receive() == b"answer"
        assert await client.is_closed_by_broker()


async def test_a_client_that_never_reads_stops_being_served(tmp_path: Path, until: Until) -> None:
    async with running(tmp_path) as rig:
        sock = socket.create_connection(("127.0.0.1", rig.port))
        sock.setblocking(False)
        request = framed(b"\0\1B" + struct.pack(">i", 256 * 1024))
        await until(lambda: rig.listener.connections)
        (connection,) = rig.listener.connections
        while not connection._held & WRITE_PAUSED:
            with contextlib.suppress(BlockingIOError):
                sock.send(request)
            await asyncio.sleep(0)
        served = len(rig.service.seen)
        for _ in range(200):
            with contextlib.suppress(BlockingIOError):
                sock.send(request)
            await asyncio.sleep(0)
        assert len(rig.service.seen) == served
        unsent = connection._transport.unsent_bytes
        assert unsent <= UNSENT_BYTES_MAX + 256 * 1024 + 4
        sock.close()
        await rig.until_no_connection()


@pytest.mark.parametrize("size", [0, 100_000])
async def test_a_throttled_connection_is_answered_at_once_and_read_later(
    tmp_path: Path, size: int
) -> None:
    loop = asyncio.get_running_loop()
    async with running(tmp_path) as rig, rig.client() as client:
        client.send(b"\0\1T" + bytes(size), b"\0\1e" + bytes(size))
        assert (await client.receive())[:3] == b"\0\1T"
        assert len(rig.service.seen) == 1
        client.send(b"\0\1t")  # what comes meanwhile is kept
        start_s = loop.time()
        rig.service.peers[0].throttle(100)
        assert (await client.receive())[:3] == b"\0\1e"
        assert loop.time() - start_s >= 0.1 - TICK_S
        assert await client.receive() == b"\0\1t"
        client.send(b"\0\1e")
        assert await client.receive() == b"\0\1e"
        assert loop.time() - start_s >= 0.2 - 2 * TICK_S


@BY_TASK_AND_BY_CALL
async def test_an_answer_that_comes_late_is_not_held_back(tmp_path: Path, *, by_call: bool) -> None:
    async with running(tmp_path, by_call=by_call) as rig, rig.client() as client:
        client.send(b"\0\1P", b"\0\1e")
        await rig.service.until_seen(1)
        rig.service.peers[0].throttle(3_600_000)
        rig.service.parked[0].set_result(framed(b"answer"))
        assert await client.receive() == b"answer"
        assert len(rig.service.seen) == 1
        rig.service.peers[0].throttle(100)  # the newest counts
        assert await client.receive() == b"\0\1e"


async def test_a_throttled_connection_can_be_lost(tmp_path: Path) -> None:
    async with running(tmp_path) as rig:
        async with rig.client() as client:
            client.send(b"\0\1e")
            await client.receive()
            (connection,) = rig.listener.connections
            rig.service.peers[0].throttle(3_600_000)
        await rig.until_no_connection()
        assert connection._release is not None
        assert connection._release.cancelled()
        connection.throttle(5)
        rig.service.peers[0].throttle(5)


async def test_a_connection_too_many_is_not_served_and_closed_after_a_while(tmp_path: Path) -> None:
    loop = asyncio.get_running_loop()
    start_s = loop.time()
    async with running(tmp_path, throttle=lambda _: 100) as rig, rig.client() as client:
        client.send(b"\0\1e")
        assert await client.is_closed_by_broker()
        assert loop.time() - start_s >= 0.1 - TICK_S
        assert rig.service.seen == []
        assert rig.listener.accepted == 1
