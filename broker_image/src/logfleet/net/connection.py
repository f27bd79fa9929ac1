"""One client connection: bytes in, request frames to the service, responses out in order.

Kafka answers the requests of one connection strictly in their order and handles one of them at a
time (SocketServer mutes a channel while its request is in progress). The same holds here, and it
bounds the memory of a connection: no further request is read while a request is in progress, its
response is still being sent, or the peer does not read what was sent. Small responses to requests
that arrived together are sent together.

Receiving: large frames (produce) are received by the kernel straight into a buffer of the frame's
own size; four bytes more are offered, so that a pipelining producer's next length arrives with the
same system call. Small frames are copied out of one scratch buffer that all connections share: a
loop asks for a buffer, fills it and reports that in one step, so an idle connection needs no
buffer.
"""

import asyncio
import struct
from collections.abc import Awaitable
from typing import Protocol, TypeAlias, cast

import msgspec
import structlog

from logfleet.io.clock import boot_s
from logfleet.net.file_sender import Part
from logfleet.net.frame_buffers import FrameBuffers
from logfleet.net.other_protocols import refused_size
from logfleet.net.peer import PARKED, Parked, Peer
from logfleet.net.transport import Transport
from logfleet.net.turns import Turns

log = structlog.get_logger(__name__)

SIZE_BYTES = 4
# Frames up to this size are copied out of the scratch buffer; larger ones get their own buffer.
SMALL_FRAME_BYTES_MAX = 16 * 1024
SCRATCH_BYTES = 64 * 1024
# At first a frame's buffer has at most this size, or twice that of the connection's largest frame
# so far, and grows with the bytes that really arrive: four bytes from an unknown client must not
# make the broker allocate socket.request.max.bytes.
FIRST_ALLOCATION_BYTES_MAX = 128 * 1024
# Responses up to this size wait for those of the requests that arrived together with theirs
# (turns.REQUESTS_PER_STEP_MAX).
SMALL_RESPONSE_BYTES_MAX = 4 * 1024

# Bits that say why a connection takes no request for now: its peer does not read, or is throttled.
WRITE_PAUSED = 1
THROTTLED = 2

# Why a connection ends.
BY_PEER = "peer"
IDLE = "idle"
INVALID = "invalid"
EVICTED = "evicted"
CONNECTS_TOO_OFTEN = "throttled"
STOPPED = "stop"
REASONS = (BY_PEER, IDLE, INVALID, EVICTED, CONNECTS_TOO_OFTEN, STOPPED)

_SIZE = struct.Struct(">i")
_PRODUCE_KEY = b"\0\0"

# A service's result for a frame: the encoded response with its length, whole or in parts, some of
# which may be slices of files; None if the request gets no response; an awaitable of one of these;
# or PARKED if the service calls `Peer.answer` later.
Encoded: TypeAlias = bytes | list[Part] | None


class CloseConnection(Exception):
    """Raised by a service: close the connection without a response. The text says why.

    unsent: the response, if there is one that the client does not want (Produce with acks=0): its
    errors are counted.
    """

    def __init__(self, reason: str, unsent: msgspec.Struct | None = None) -> None:
        super().__init__(reason)
        self.unsent = unsent


class Service(Protocol):
    """Handles the requests of a listener's connections (`logfleet.node.dispatch`)."""

    def __call__(self, peer: Peer, frame: memoryview, /) -> Encoded | Awaitable[Encoded] | Parked:
        """Answer one request.

        Raises `CloseConnection`; an awaitable that it returns may raise it, too. A Produce
        request's bytes are valid until the call returns or, if the response comes later, until
        then: their buffer is used again. Those of other requests stay unchanged.
        """


class Owner(Protocol):
    """The listener that accepted a connection.

    now: the loop's time, up to a second old, which is enough for idleness. request_bytes_max:
    Kafka's socket.request.max.bytes; a larger or negative length closes the connection.
    """

    name: str
    now: float
    service: Service
    request_bytes_max: int
    turns: Turns

    def sign_in(self, peer: Peer, certificate: bytes | None, service: Service, /) -> Service:
        """See `net.sign_in.SignIn`."""
        ...

    def opened(self, connection: "Connection") -> int:
        """Milliseconds to keep the connection, unread, before it is closed; 0 to serve it."""
        ...

    def closed(self, connection: "Connection") -> None: ...
    def supervise(self, work: Awaitable[None]) -> None: ...


_scratch = bytearray(SCRATCH_BYTES)
_scratch_view = memoryview(_scratch)
_scratch_head = _scratch_view[:SIZE_BYTES]
_frame_buffers = FrameBuffers()


class Connection:
    """One connection, driven by its transport (`transport.Receiver`).

    Created by a listener, which also closes it when it is idle. host, port: the peer's, taken when
    it was accepted: after a reset the socket no longer has them.
    """

    def __init__(self, owner: Owner, host: str, port: int) -> None:
        self._owner = owner
        self._service: Service = self._first
        self._transport: Transport = cast("Transport", None)
        self.peer = Peer(owner.name, host, port)
        self.last_active = owner.now
        self._head = b""  # received bytes that are not in a frame yet, or came during a request
        self._frame: bytearray | None = (
            None  # the frame being received, if not in the scratch buffer
        )
        self._frame_size = 0
        self._filled = 0
        self._largest = 0
        self._expects_large = False
        self._in_progress = False  # a request is being handled, or its response sent
        self._gave_way_at = 0.0
        self.end_reason = BY_PEER
        self._held = 0  # WRITE_PAUSED, THROTTLED: why no request is taken
        self._release: asyncio.TimerHandle | None = None  # ends the throttling
        self._responses: list[bytes] = []  # to the requests handled in this step, except the last
        self._unsent_before = 0  # bytes at the last check for activity
        self._read_paused = False
        self.finishing = False  # close as soon as nothing is in progress
        self._lost = False

    # --- life

    def connection_made(self, transport: Transport) -> None:
        self._transport = transport
        self.peer.link = self
        refused_ms = self._owner.opened(self)
        if refused_ms:
            self.finishing = True  # closes when the throttling ends
            self.end_reason = CONNECTS_TOO_OFTEN
            self.throttle(refused_ms)
            self._pause_reading()

    def connection_lost(self, exc: Exception | None) -> None:
        del exc  # a reset by the peer is as ordinary as a close
        self._lost = True
        self._frame = None
        self._head = b""
        self._service = self._owner.service  # its own method would keep it alive
        if self._release is not None:
            self._release.cancel()
        self.peer.link = None
        self._owner.closed(self)
        if self.peer.on_leave is not None:
            self.peer.on_leave()

    def finish(self, reason: str = STOPPED) -> None:
        """Answer the request in progress, if any, then close. reason: one of REASONS."""
        if not self.finishing:
            self.end_reason = reason
        self.finishing = True
        if self.peer.on_leave is not None:
            self.peer.on_leave()
        if not self._in_progress:
            self._close()

    def _close(self) -> None:
        """Close after everything that was answered is sent."""
        if self._responses:
            self._send_responses()
        self._transport.close()

    def check_activity(self) -> None:
        """Count a peer that receives its response, however slowly, as not idle.

        Called several times per idle limit.
        """
        unsent = self._transport.unsent_bytes
        if unsent != self._unsent_before:
            self._unsent_before = unsent
            self.last_active = self._owner.now

    def abort(self) -> None:
        """Close now; unsent data is lost."""
        self._transport.abort()

    def refuse(self, reason: str) -> None:
        """Close because the peer, or this broker, must not go on.

        A request in progress gets no response.
        """
        log.info("connection_refused", peer=f"{self.peer.host}:{self.peer.port}", reason=reason)
        self.end_reason = INVALID
        self.finishing = True
        self._close()

    # --- receiving

    def get_buffer(self, sizehint: int) -> memoryview:
        del sizehint
        frame = self._frame
        if frame is not None:
            end = self._frame_size + SIZE_BYTES
            if self._filled == len(frame):
                self._frame = frame = frame + bytes(min(len(frame), end - len(frame)))
            return memoryview(frame)[self._filled : end]
        if self._in_progress or self._held:
            return _scratch_view
        head = self._head
        if head:
            _scratch[: len(head)] = head
            return _scratch_view[len(head) :]
        # After a large frame the next one is probably large, too: read only its length, so that the
        # rest is received into its own buffer without a copy.
        return _scratch_head if self._expects_large else _scratch_view

    def buffer_updated(self, nbytes: int) -> None:
        self.last_active = self._owner.now
        if self._frame is not None:
            self._filled += nbytes
            if self._filled >= self._frame_size:
                self._frame_complete(self._frame)
        elif self._in_progress or self._held:
            self._head += bytes(_scratch_view[:nbytes])
            self._pause_reading()
        else:
            received = len(self._head) + nbytes
            self._head = b""
            self._cut(_scratch_view[:received])
            if self._responses:
                self._send_responses()

    def eof_received(self) -> bool:
        # A peer may close its sending side and still read: it gets the response in progress.
        if not self._in_progress:
            return False  # asyncio then closes the transport
        self.finish(BY_PEER)
        return True

    def _cut(self, data: memoryview) -> None:
        """Serve the complete frames in `data` and keep the rest."""
        position, end = 0, len(data)
        left = self._owner.turns.requests
        while end - position >= SIZE_BYTES and not (self._in_progress or self._held):
            if not left:
                self._give_way(data[position:end])
                return
            left -= 1
            (size,) = _SIZE.unpack_from(data, position)
            if not 0 <= size <= self._owner.request_bytes_max:
                self.refuse(refused_size(bytes(data[position : position + SIZE_BYTES])))
                return
            start = position + SIZE_BYTES
            if end - start < size:
                if start < end or size > SMALL_FRAME_BYTES_MAX:
                    self._begin_frame(size, data[start:end])
                    return
                break  # only the length has arrived: the scratch buffer will do
            position = start + size
            self._expects_large = False
            # a separate, writable copy, as for large frames: batches are changed in place
            self._serve(memoryview(bytearray(data[start:position])), has_next=position < end)
            if self.finishing:
                return
        if position < end:
            self._head = bytes(data[position:end])
            if self._in_progress or self._held:
                self._pause_reading()

    def _begin_frame(self, size: int, received: memoryview) -> None:
        limit = max(FIRST_ALLOCATION_BYTES_MAX, 2 * self._largest, len(received))
        self._frame = frame = _frame_buffers.take(min(size + SIZE_BYTES, limit))
        frame[: len(received)] = received
        self._frame_size = size
        self._filled = len(received)

    def _frame_complete(self, frame: bytearray) -> None:
        size, filled = self._frame_size, self._filled
        self._frame = None
        if filled > size:
            self._head = bytes(frame[size:filled])
        self._largest = max(self._largest, size)
        self._expects_large = size > SMALL_FRAME_BYTES_MAX and self._transport.is_direct
        view = memoryview(frame)[:size]
        self._serve(view, has_next=False)
        if self._in_progress:
            return
        if view[:2] == _PRODUCE_KEY:
            _frame_buffers.give_back(frame)
        if self._head and not self.finishing:
            self._cut_head()

    def _give_way(self, rest: memoryview) -> None:
        """Let other connections have their turn before this one continues with `rest`."""
        self._head = bytes(rest)
        self._in_progress = True
        self._gave_way_at = boot_s()
        self._pause_reading()  # also to handle the peer's requests before its close
        self._owner.turns.wait(self._have_turn)

    def _have_turn(self) -> None:
        self._in_progress = False
        self.peer.queued_since = self._gave_way_at
        try:
            self._next()
        finally:
            self.peer.queued_since = 0.0

    def _cut_head(self) -> None:
        data, self._head = self._head, b""
        self._cut(memoryview(data))
        if self._responses:
            self._send_responses()

    def _pause_reading(self) -> None:
        if not self._read_paused:
            self._read_paused = True
            self._transport.pause_reading()

    # --- answering

    def _first(self, peer: Peer, frame: memoryview) -> Encoded | Awaitable[Encoded] | Parked:
        """Handle the first frame: who the peer is decides what handles it and all others."""
        owner = self._owner
        self._service = owner.sign_in(peer, self._transport.certificate, owner.service)
        return self._service(peer, frame)

    def _serve(self, frame: memoryview, *, has_next: bool) -> None:
        """Serve one frame. has_next: more requests arrived with it.

        The caller sends what is left in `_responses` at the end.
        """
        try:
            answer = self._service(self.peer, frame)
        except CloseConnection as reason:
            self.refuse(str(reason))
            return
        if type(answer) is bytes:
            if len(answer) > SMALL_RESPONSE_BYTES_MAX or not (has_next or self._responses):
                if self._responses:
                    self._send_responses()
                self._transport.write(answer)
            else:
                self._responses.append(answer)
        elif answer is PARKED:
            self._in_progress = True
        elif isinstance(answer, list):
            if self._responses:
                self._send_responses()
            self._in_progress = not self._transport.send(answer)
        elif answer is not None:
            self._in_progress = True
            self._owner.supervise(self._serve_later(cast("Awaitable[Encoded]", answer)))

    async def _serve_later(self, work: Awaitable[Encoded]) -> None:
        try:
            answer = await work
        except CloseConnection as reason:
            self.peer.refuse(str(reason))
        else:
            self.peer.answer(answer)

    def answer(self, answer: Encoded) -> None:
        """Send the response of the request in progress and serve the next one.

        The connection must not be lost.
        """
        self._in_progress = False
        if type(answer) is bytes:
            self._transport.write(answer)
        elif isinstance(answer, list):
            self._in_progress = not self._transport.send(answer)
        self._next()

    def _send_responses(self) -> None:
        """Send the small responses that waited to be sent together."""
        responses, self._responses = self._responses, []
        self._transport.write(b"".join(responses))

    def sent(self) -> None:
        """The transport has sent the response that took it longer; serve the next request."""
        self.last_active = self._owner.now
        self._in_progress = False
        self._next()

    def throttle(self, throttle_ms: int) -> None:
        """Take no request from the peer for `throttle_ms` from now on."""
        if self._lost:
            return
        self._held |= THROTTLED
        if self._release is not None:
            self._release.cancel()
        loop = asyncio.get_running_loop()
        self._release = loop.call_later(throttle_ms / 1_000, self._throttled_enough)

    def _throttled_enough(self) -> None:
        self._release = None
        self._held &= ~THROTTLED
        self._next()

    def pause_writing(self) -> None:
        self._held |= WRITE_PAUSED

    def resume_writing(self) -> None:
        self._held &= ~WRITE_PAUSED
        self._next()

    def _next(self) -> None:
        """Continue with what arrived while a request was in progress."""
        if self._in_progress or self._lost:
            return
        if self.finishing:  # WRITE_PAUSED and THROTTLED do not delay the end
            self._transport.close()
            return
        if self._held:
            return
        if self._head:
            self._cut_head()
        if self._read_paused and self._may_read():
            self._read_paused = False
            self._transport.resume_reading()

    def _may_read(self) -> bool:
        return not (self._in_progress or self._held or self.finishing)
