"""How bytes travel between a connection and its peer.

A transport is the asyncio protocol of one accepted socket. It hands what it receives to its
connection, and sends the responses. How bytes leave the process is its decision alone:
`net.plain_transport` lets the kernel receive into the connection's buffers and send ranges of
files; one that encrypts has to read them, and sends nothing past itself. A listener has one kind.
"""

import asyncio
from collections.abc import Callable
from concurrent.futures import Executor
from typing import Protocol

from logfleet.net.file_sender import Part
from logfleet.net.peer import Peer
from logfleet.telemetry.histogram import Histogram

UNSENT_BYTES_MAX = 64 * 1024
"""Unsent bytes of responses without file slices at which a connection takes no more requests: the
transport then calls `pause_writing`."""


class Transport(Protocol):
    """As a connection sees it.

    is_direct: the kernel receives straight into the connection's buffer, so that asking for a few
    bytes alone saves a copy of what follows. certificate: of the peer, in DER, once the first frame
    is there; None without one.
    """

    is_direct: bool
    certificate: bytes | None

    @property
    def unsent_bytes(self) -> int:
        """Bytes that were to be sent and that the kernel has not taken yet."""
        ...

    def write(self, data: bytes, /) -> None:
        """Send a whole response, or several, after all earlier ones."""

    def send(self, parts: list[Part], /) -> bool:
        """Send a response whose parts may be slices of files, after all earlier ones.

        False if that takes longer: `Receiver.sent` is called then, and nothing may be written
        before. If the peer is gone or a file cannot be read, the transport aborts.
        """
        ...

    def pause_reading(self) -> None: ...
    def resume_reading(self) -> None: ...

    def close(self) -> None:
        """Close once everything that was written is sent."""

    def abort(self) -> None:
        """Close now; unsent data is lost."""


class Receiver(Protocol):
    """A connection as its transport sees it. The methods are those of asyncio.BufferedProtocol.

    A buffer from `get_buffer` is filled and reported by `buffer_updated` before the next one is
    asked for. `connection_made` comes at once when the socket is accepted, received bytes only once
    the transport has finished its own greetings.
    """

    peer: Peer

    def connection_made(self, transport: Transport, /) -> None: ...
    def connection_lost(self, exc: Exception | None, /) -> None: ...
    def get_buffer(self, sizehint: int, /) -> memoryview: ...
    def buffer_updated(self, nbytes: int, /) -> None: ...
    def eof_received(self) -> bool: ...
    def pause_writing(self) -> None: ...
    def resume_writing(self) -> None: ...

    def sent(self) -> None:
        """The parts are sent for which `send` returned False."""


class Sending(Protocol):
    """What a transport needs of its listener to send slices of files.

    disk: threads for reads that wait for it. send_time: measures the time to send responses with
    slices that are too long to be sent at once.
    """

    disk: Executor
    send_time: Histogram


TransportKind = Callable[[Receiver, Sending], asyncio.BaseProtocol]
"""Makes the transport of an accepted socket."""
