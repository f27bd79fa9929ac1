"""The client at the other end of a connection, and its state from one request to the next."""

from collections.abc import Callable, Hashable
from enum import Enum
from typing import Any, Final, Protocol

from logfleet.auth.principal import ANONYMOUS, Principal
from logfleet.net.file_sender import Part


class Parked(Enum):
    """A service's result for a request that it answers later, by `Peer.answer` or `Peer.refuse`."""

    PARKED = "parked"


PARKED: Final = Parked.PARKED


class Repeat(Protocol):
    """Handles requests of one kind without decoding them. api_key, api_version: theirs.

    It recognises them by the bytes around the fields that change.
    Called with a frame it returns the whole response; or a request that waits
    (`logfleet.node.dispatch.ParkedRequest`); or None if the request must be decoded; then it
    has changed nothing.
    """

    api_key: int
    api_version: int

    def __call__(self, frame: memoryview, /) -> object: ...


class Link(Protocol):
    """The connection to a peer. See `Peer` for the methods."""

    def answer(self, answer: bytes | list[Part] | None, /) -> None: ...
    def refuse(self, reason: str, /) -> None: ...
    def throttle(self, throttle_ms: int, /) -> None: ...


NO_REPEATS: dict[bytes, Repeat] = {}
REPEATS_MAX = 32
"""Limit of `repeats` per connection: enough for a client that sends its partitions one by one,
little enough for thousands of clients."""


class Peer:
    """The client at the other end; handlers get it with each request.

    listener: name of the listener that accepted the connection.
    principal: who it is; ANONYMOUS until the stage before the service has decided it.
    software: name and version of the client (KIP-511), empty before ApiVersions.
    on_leave: set by a handler that parks a request, and cleared by it afterwards; called when the
        connection is lost or the broker stops, so that the request is answered at once.
    link: its connection, None once that is lost.
    queued_since: time (boot_s) since which the requests being served have waited for other
        connections' turns; else 0.
    repeats: handlers of requests that need no decoding, by the bytes of a frame between the
        correlation id and `repeat_end`, which is 0 while there are none. repeats_left: how many
        more may be added. repeats_revision: the revision of the image that all of them hold for.
    refused: batches that were refused for now, by partition; see
    `node.handlers.producing.refused_batches`.
    """

    __slots__ = (
        "host",
        "link",
        "listener",
        "on_leave",
        "port",
        "principal",
        "queued_since",
        "refused",
        "repeat_end",
        "repeats",
        "repeats_left",
        "repeats_revision",
        "software",
    )

    def __init__(self, listener: str, host: str = "", port: int = 0) -> None:
        self.listener = listener
        self.host = host
        self.port = port
        self.principal: Principal = ANONYMOUS
        self.queued_since = 0.0
        self.software = ("", "")
        self.on_leave: Callable[[], None] | None = None
        self.link: Link | None = None
        self.repeats = NO_REPEATS
        self.repeat_end = 0
        self.repeats_left = REPEATS_MAX
        self.repeats_revision = -1
        self.refused: dict[Hashable, Any] = {}

    def answer(self, answer: bytes | list[Part] | None) -> None:
        """Send the response of the parked request (None: it gets none) and serve the next one.

        Does nothing if the connection was lost meanwhile.
        """
        if self.link is not None:
            self.link.answer(answer)

    def refuse(self, reason: str) -> None:
        """Close the connection; the parked request gets no response."""
        if self.link is not None:
            self.link.refuse(reason)

    def throttle(self, throttle_ms: int) -> None:
        """Take no request from the peer for this time; a request in progress is answered.

        Source: KIP-219.
        """
        if self.link is not None:
            self.link.throttle(throttle_ms)
