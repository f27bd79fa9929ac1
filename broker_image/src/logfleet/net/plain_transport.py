"""The transport of listeners without encryption: the kernel moves records, Python does not."""

import asyncio
from collections.abc import Callable
from time import perf_counter
from typing import cast

import structlog

from logfleet.net.file_sender import FileSender, Part, read_inline
from logfleet.net.transport import UNSENT_BYTES_MAX, Receiver, Sending

log = structlog.get_logger(__name__)


class PlainTransport(asyncio.BufferedProtocol):
    """See `net.transport.Transport`.

    get_buffer, buffer_updated and write are those of the connection and of asyncio's transport
    themselves, so that nothing stands between them.
    """

    __slots__ = (
        "_connection",
        "_raw",
        "_sender",
        "_sending",
        "_sending_since",
        "_unsent",
        "buffer_updated",
        "get_buffer",
        "write",
    )

    is_direct = True
    certificate: bytes | None = None
    # A loop passes the one argument by position.
    get_buffer: Callable[[int], memoryview]  # type: ignore[assignment]
    buffer_updated: Callable[[int], None]  # type: ignore[assignment]
    write: Callable[[bytes], None]

    def __init__(self, connection: Receiver, sending: Sending) -> None:
        self._connection = connection
        self._sending = sending
        self._raw = cast("asyncio.Transport", None)
        self._sender: FileSender | None = None
        self._unsent: list[Part] | None = None  # a response that waits until the earlier ones left
        self._sending_since = 0.0
        self.get_buffer = connection.get_buffer
        self.buffer_updated = connection.buffer_updated

    # --- for asyncio

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._raw = cast("asyncio.Transport", transport)
        self._raw.set_write_buffer_limits(high=UNSENT_BYTES_MAX)
        self.write = self._raw.write
        self._connection.connection_made(self)

    def connection_lost(self, exc: Exception | None) -> None:
        self._unsent = None
        if self._sender is not None:
            self._sender.close()
            self._sender = None
        self._connection.connection_lost(exc)
        # Nothing is called any more; without this circle of references both are freed at once.
        del self._connection, self.get_buffer, self.buffer_updated

    def eof_received(self) -> bool:
        return self._connection.eof_received()

    def pause_writing(self) -> None:
        self._connection.pause_writing()

    def resume_writing(self) -> None:
        parts, self._unsent = self._unsent, None
        if parts is not None:
            self._raw.set_write_buffer_limits(high=UNSENT_BYTES_MAX)
            if self._send_files(parts):
                self._connection.sent()
        self._connection.resume_writing()

    # --- for the connection

    @property
    def unsent_bytes(self) -> int:
        unsent = self._raw.get_write_buffer_size()
        return unsent if self._sender is None else unsent + self._sender.unsent_bytes

    def pause_reading(self) -> None:
        self._raw.pause_reading()

    def resume_reading(self) -> None:
        self._raw.resume_reading()

    def close(self) -> None:
        self._raw.close()

    def abort(self) -> None:
        self._raw.abort()

    def send(self, parts: list[Part]) -> bool:
        pieces = read_inline(parts)
        if pieces is not None:
            self._raw.writelines(pieces)
            return True
        if self._raw.get_write_buffer_size():
            # Earlier responses go first: resume_writing is called once all of them are sent.
            self._unsent = parts
            self._raw.set_write_buffer_limits(high=0)
            return False
        return self._send_files(parts)

    def _send_files(self, parts: list[Part]) -> bool:
        if self._sender is None:
            try:
                self._sender = FileSender(
                    self._raw.get_extra_info("socket").fileno(),
                    disk=self._sending.disk,
                    on_done=self._files_sent,
                    on_error=self._files_failed,
                )
            except OSError as error:  # no file descriptor for it: the client reconnects
                peer = self._connection.peer
                log.warning("answer_not_sent", peer=peer.host, error=str(error))
                self._raw.abort()
                return False
        self._sending_since = perf_counter()
        is_sent = self._sender.send(parts)
        if is_sent:
            self._measure()
        return is_sent

    def _files_sent(self) -> None:
        self._measure()
        self._connection.sent()

    def _measure(self) -> None:
        self._sending.send_time.observe(perf_counter() - self._sending_since)

    def _files_failed(self, error: OSError) -> None:
        if not isinstance(error, ConnectionError):
            log.error("segment_read_failed", error=str(error))
        self._raw.abort()
