"""Reserves ports for programs that are yet to be started.

A port that is free now may be taken a moment later, by another program's listener or by an outgoing
connection. So the socket that found it stays bound, without listening: the kernel then gives the
port to no program that asks for any, while a program that names it may still listen there, as both
set SO_REUSEADDR (Linux: a bound socket conflicts only while it listens).
"""

import socket
from typing import Self


class LoopbackPorts:
    """Ports of 127.0.0.1, reserved until `release` (or the end of the block)."""

    def __init__(self) -> None:
        self._sockets: list[socket.socket] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.release()

    def reserve(self, port: int = 0) -> int:
        """The port; for 0 any free one. Raises OSError if another program uses or reserves it."""
        reserved = socket.socket()
        self._sockets.append(reserved)
        reserved.bind(("127.0.0.1", port))
        # only now: if set before, the bind would also succeed beside another reservation
        reserved.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        bound: int = reserved.getsockname()[1]
        return bound

    def release(self) -> None:
        """Programs that listen on the ports are not affected."""
        while self._sockets:
            self._sockets.pop().close()


def is_taken(port: int) -> bool:
    """Whether a program listens on this port of loopback, or of all addresses."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return True
        return False
