"""Frames of the control channel, and its end in the test process (see the package)."""

import itertools
import socket
import struct
import threading
from typing import Any, Final

import msgspec

from logfleet.testing.errors import OrderFailed, ProcessEnded

LENGTH: Final = struct.Struct(">I")
STARTED: Final = 0
"""The id of the first frame, by which a child reports that it serves or why it cannot."""

encode: Final = msgspec.msgpack.Encoder(enc_hook=str).encode
decode: Final = msgspec.msgpack.Decoder().decode


def frame(message: dict[str, Any]) -> bytes:
    body = encode(message)
    return LENGTH.pack(len(body)) + body


class Channel:
    """The test's end of a channel; may be used from any thread, one order at a time.

    name: of the other side, for messages. Times are those of the socket: a test that has frozen the
    clocks waits as long as any other.
    """

    def __init__(self, name: str, end: socket.socket) -> None:
        self.name = name
        self._socket = end
        self._ids = itertools.count(STARTED + 1)
        self._lock = threading.Lock()
        self._received = b""

    def ask(self, do: str, *, timeout_s: float, fd: int | None = None, **arguments: Any) -> Any:
        """The result of an order. Raises OrderFailed, with the other side's sentence.

        fd: a descriptor that goes along with the order.
        """
        with self._lock:
            order_id = next(self._ids)
            order = frame({"id": order_id, "do": do, **arguments})
            try:
                self._socket.settimeout(timeout_s)
                if fd is None:
                    self._socket.sendall(order)
                else:
                    sent = socket.send_fds(self._socket, [order], [fd])
                    self._socket.sendall(order[sent:])
            except OSError as error:
                raise ProcessEnded(f"{self.name} takes no orders: {error}") from error
            return self._answer(order_id, timeout_s)

    def started(self, timeout_s: float) -> Any:
        """The result of the child's start. Raises OrderFailed if it could not start."""
        with self._lock:
            return self._answer(STARTED, timeout_s)

    def wait_closed(self, timeout_s: float) -> bool:
        """Whether the other side has closed its end within that time, as a process that ends."""
        with self._lock:
            self._socket.settimeout(timeout_s)
            try:
                while self._socket.recv(65_536):
                    pass
            except TimeoutError:
                return False
            except OSError:
                return True
            return True

    def close(self) -> None:
        """Close this end; a child then ends."""
        self._socket.close()

    def _answer(self, order_id: int, timeout_s: float) -> Any:
        """Answers to orders that were given up before are dropped."""
        self._socket.settimeout(timeout_s)
        while True:
            message = self._message(timeout_s)
            if message["id"] != order_id:
                continue
            if "error" in message:
                raise OrderFailed(message["error"])
            return message["result"]

    def _message(self, timeout_s: float) -> dict[str, Any]:
        size = LENGTH.size
        while len(self._received) < size:
            self._receive(timeout_s)
        end = size + LENGTH.unpack_from(self._received)[0]
        while len(self._received) < end:
            self._receive(timeout_s)
        message: dict[str, Any] = decode(self._received[size:end])
        self._received = self._received[end:]
        return message

    def _receive(self, timeout_s: float) -> None:
        try:
            more = self._socket.recv(1 << 20)
        except TimeoutError:
            raise ProcessEnded(f"{self.name} does not answer within {timeout_s:g} s") from None
        except OSError as error:
            raise ProcessEnded(f"{self.name} has ended: {error}") from error
        if not more:
            raise ProcessEnded(f"{self.name} has ended")
        self._received += more
