"""A second kind of transport: each byte is changed on its way, through memory, as TLS does it.

It keeps what a connection may rely on (`net.transport`), and none of what only a plain socket has.
"""

import asyncio
import os
from typing import cast

from logfleet.net.file_sender import Part
from logfleet.net.transport import UNSENT_BYTES_MAX, Receiver, Sending

KEY = 0x5A
RECEIVED_BYTES = 5_000
"""Of its buffer: less than the connection's, so that frames come in pieces."""
CHUNK_BYTES = 16 * 1024
_TABLE = bytes(byte ^ KEY for byte in range(256))


def xor(data: bytes | bytearray | memoryview) -> bytes:
    return bytes(data).translate(_TABLE)


class XorTransport(asyncio.BufferedProtocol):
    is_direct = False
    certificate: bytes | None = None

    def __init__(self, connection: Receiver, _sending: Sending) -> None:
        self._connection = connection
        self._raw = cast("asyncio.Transport", None)
        self._received = bytearray(RECEIVED_BYTES)
        self._plain = b""  # received, and not handed over yet
        self._rest = b""  # of the response that is being sent
        self._is_reading = True
        self._is_full = False

    # --- for asyncio

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._raw = cast("asyncio.Transport", transport)
        self._raw.set_write_buffer_limits(high=UNSENT_BYTES_MAX)
        self._connection.connection_made(self)

    def connection_lost(self, exc: Exception | None) -> None:
        self._plain = self._rest = b""
        self._connection.connection_lost(exc)

    def get_buffer(self, sizehint: int) -> memoryview:
        del sizehint
        return memoryview(self._received)

    def buffer_updated(self, nbytes: int) -> None:
        self._plain += xor(memoryview(self._received)[:nbytes])
        self._hand_over()

    def _hand_over(self) -> None:
        while self._plain and self._is_reading and not self._raw.is_closing():
            buffer = self._connection.get_buffer(-1)
            count = min(len(buffer), len(self._plain))
            buffer[:count], self._plain = self._plain[:count], self._plain[count:]
            self._connection.buffer_updated(count)

    def eof_received(self) -> bool:
        return self._connection.eof_received()

    def pause_writing(self) -> None:
        self._is_full = True
        self._connection.pause_writing()

    def resume_writing(self) -> None:
        self._is_full = False
        if self._rest and self._send_some():
            self._connection.sent()
        if not self._is_full:
            self._connection.resume_writing()

    # --- for the connection

    @property
    def unsent_bytes(self) -> int:
        return self._raw.get_write_buffer_size() + len(self._rest)

    def write(self, data: bytes) -> None:
        self._raw.write(xor(data))

    def send(self, parts: list[Part]) -> bool:
        for part in parts:
            if isinstance(part, bytes | bytearray | memoryview):
                self._rest += bytes(part)
                continue
            data = os.pread(part.fd, len(part), part.position)
            if len(data) < len(part):
                self._raw.abort()
                return False
            self._rest += data
        return self._send_some()

    def _send_some(self) -> bool:
        while self._rest and not self._is_full:
            chunk, self._rest = self._rest[:CHUNK_BYTES], self._rest[CHUNK_BYTES:]
            self.write(chunk)
        return not self._rest

    def pause_reading(self) -> None:
        self._is_reading = False
        self._raw.pause_reading()

    def resume_reading(self) -> None:
        self._is_reading = True
        self._raw.resume_reading()
        asyncio.get_running_loop().call_soon(self._hand_over)

    def close(self) -> None:
        self._raw.close()

    def abort(self) -> None:
        self._raw.abort()
