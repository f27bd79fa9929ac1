"""Connections over real sockets: the service under them echoes, parks, refuses or sends files."""

import asyncio
import contextlib
import os
import struct
from collections.abc import AsyncIterator, Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from logfleet.net.connection import CloseConnection, Encoded
from logfleet.net.listener import Listener
from logfleet.net.peer import PARKED, Parked, Peer
from logfleet.net.sockets import bind_tcp

REQUEST_BYTES_MAX = 4 * 1024 * 1024
THROTTLES_MS = {b"T": 3_600_000, b"t": 100}
"""By a frame's kind: the long one for what must not happen meanwhile, and it is shortened then."""


def framed(body: bytes) -> bytes:
    return struct.pack(">i", len(body)) + body


class Slice:
    def __init__(self, fd: int, position: int, length: int) -> None:
        self.fd = fd
        self.position = position
        self.length = length

    def __len__(self) -> int:
        return self.length


class ByCall:
    """A parked request whose response is not awaited. It has the methods of a future."""

    def __init__(self, peer: Peer) -> None:
        self._peer = peer

    def set_result(self, answer: Encoded) -> None:
        self._peer.answer(answer)

    def set_exception(self, error: CloseConnection) -> None:
        self._peer.refuse(str(error))

    def cancel(self) -> None:
        """Nothing waits."""


class Service:
    """Echoes frames; a frame's third byte (after a Produce key or not) selects another behaviour.

    by_call: requests are parked without a task.
    """

    def __init__(self, file: Path, *, by_call: bool) -> None:
        self.seen: list[bytes] = []
        self.parked: list[asyncio.Future[Encoded] | ByCall] = []
        self._by_call = by_call
        self.peers: list[Peer] = []
        self.fd = os.open(file, os.O_RDONLY)
        self.arrived = asyncio.Event()

    def __call__(self, peer: Peer, frame: memoryview) -> Encoded | Awaitable[Encoded] | Parked:
        data = bytes(frame)
        self.seen.append(data)
        self.peers.append(peer)
        self.arrived.set()
        kind = data[2:3]
        if kind == b"X":
            raise CloseConnection("told to")
        if kind == b"N":
            return None
        if kind == b"P" and self._by_call:
            self.parked.append(ByCall(peer))
            return PARKED
        if kind == b"P":
            future: asyncio.Future[Encoded] = asyncio.get_running_loop().create_future()
            self.parked.append(future)
            return future
        if kind in THROTTLES_MS:
            peer.throttle(THROTTLES_MS[kind])
        if kind == b"F":
            position, length = struct.unpack_from(">ii", data, 3)
            body = Slice(self.fd, position, length)
            return [struct.pack(">i", 2 + length + 3), b"<<", body, b">>>"]
        if kind == b"B":
            return framed(bytes(struct.unpack_from(">i", data, 3)[0]))
        return framed(data)

    async def until_seen(self, count: int) -> None:
        while len(self.seen) < count:
            self.arrived.clear()
            await self.arrived.wait()


class Client:
    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer

    def send(self, *bodies: bytes) -> None:
        self.writer.write(b"".join(framed(body) for body in bodies))

    async def receive(self) -> bytes:
        (size,) = struct.unpack(">i", await self.reader.readexactly(4))
        return await self.reader.readexactly(size)

    async def is_closed_by_broker(self) -> bool:
        with contextlib.suppress(ConnectionResetError):
            return await self.reader.read() == b""
        return True

    async def close(self) -> None:
        self.writer.close()
        with contextlib.suppress(OSError):
            await self.writer.wait_closed()


class Rig:
    def __init__(self, service: Service, listener: Listener, port: int) -> None:
        self.service = service
        self.listener = listener
        self.port = port

    @contextlib.asynccontextmanager
    async def client(self) -> AsyncIterator[Client]:
        client = Client(*await asyncio.open_connection("127.0.0.1", self.port))
        try:
            yield client
        finally:
            await client.close()

    async def until_no_connection(self) -> None:
        await self.listener._until_empty()


@contextlib.asynccontextmanager
async def running(
    tmp_path: Path,
    idle_s_max: float = 600.0,
    throttle: Callable[[str], int] = lambda _: 0,
    *,
    by_call: bool = False,
    **options: Any,
) -> AsyncIterator[Rig]:
    """options: more of Listener."""
    (tmp_path / "segment").touch()
    service = Service(tmp_path / "segment", by_call=by_call)
    with ThreadPoolExecutor(1) as disk:
        listener = Listener(
            "PLAINTEXT",
            service,
            disk=disk,
            request_bytes_max=REQUEST_BYTES_MAX,
            idle_s_max=idle_s_max,
            throttle=throttle,
            **options,
        )
        port = listener.take("127.0.0.1", bind_tcp("127.0.0.1", 0))
        await listener.serve()
        try:
            yield Rig(service, listener, port)
        finally:
            for future in service.parked:
                future.cancel()
            await listener.stop(grace_s=5)
            os.close(service.fd)


async def send_slowly(client: Client, bodies: list[bytes]) -> None:
    for body in bodies:
        client.send(body)
        await client.writer.drain()
