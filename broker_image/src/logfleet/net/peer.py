"""Who is at the other end of a connection, and what is remembered of it from one request to the next."""

from collections.abc import Awaitable, Callable, Hashable
from typing import Any, Protocol


class Repeat(Protocol):
    """Knows requests by the bytes around what changes from one to the next. api_key, api_version: theirs."""

    api_key: int
    api_version: int

    def __call__(self, frame: memoryview, /) -> bytes | Awaitable[bytes] | None:
        """The whole answer, at once or to be awaited; None if the request must be decoded, everything being as it was."""


NO_REPEATS: dict[bytes, Repeat] = {}
REPEATS_MAX = 32
"""Remembered per connection: enough for a client that sends its partitions one by one, little enough for thousands of clients."""


class Peer:
    """Who is at the other end; handlers get it with each request.

    listener: name of the listener that the connection came in by.
    software: name and version of the client (KIP-511), empty until ApiVersions told them.
    on_leave: set by a handler that parks a request, and cleared by it afterwards; called when the
        connection is lost or the broker stops, so that the request is answered at once.
    on_throttle: how its connection is held, None where there is none.
    queued_since: since when (boot_s) the requests that are being served have waited, as the others had their turn; else 0.
    repeats: requests that need no decoding, by the bytes of a frame from behind the correlation id to `repeat_end`, which is 0
        while there are none. repeats_left: how many more may be remembered.
    refused: batches that were refused for now, by partition; see `node.handlers.refused_batches`.
    """

    __slots__ = (
        "host",
        "listener",
        "on_leave",
        "on_throttle",
        "port",
        "queued_since",
        "refused",
        "repeat_end",
        "repeats",
        "repeats_left",
        "software",
    )

    def __init__(self, listener: str, host: str = "", port: int = 0) -> None:
        self.listener = listener
        self.host = host
        self.port = port
        self.queued_since = 0.0
        self.software = ("", "")
        self.on_leave: Callable[[], None] | None = None
        self.on_throttle: Callable[[int], None] | None = None
        self.repeats = NO_REPEATS
        self.repeat_end = 0
        self.repeats_left = REPEATS_MAX
        self.refused: dict[Hashable, Any] = {}

    def throttle(self, throttle_ms: int) -> None:
        """Take no request from the peer for so long, from now on; what is being answered is answered (KIP-219)."""
        if self.on_throttle is not None:
            self.on_throttle(throttle_ms)
