"""One connection to one broker: requests out in order, responses in the same order.

A broker answers the requests of one connection strictly in order, so a request that waits there (a
long poll, a JoinGroup) delays all later ones: send such requests on a connection of their own.
"""

import asyncio
import os
import socket
from collections import deque
from collections.abc import Callable
from typing import Any, Generic, Self, TypeVar, cast

import msgspec

from logfleet import __version__
from logfleet.client.errors import (
    ClientError,
    ConnectionLost,
    NotSupported,
    RequestTimedOut,
    UnknownHost,
)
from logfleet.io.host_names import HOST_NAMES
from logfleet.wire.apis import API_BY_NAME, Api, api_of
from logfleet.wire.errors import ErrorCode, MalformedMessage, UnencodableMessage, UnsupportedVersion
from logfleet.wire.frame import SIZE_BYTES, decode_response, encode_request
from logfleet.wire.messages import ApiVersionsRequest, ApiVersionsResponse

SOFTWARE = ("logfleet", __version__)  # KIP-511: what the broker's metrics and logs call us
CONNECT_TIMEOUT_SECONDS = 4.0
"""Long enough for two lost SYNs (they are sent again after 1 and 3 s).

Kafka's clients take 10 s (socket.connection.setup.timeout.ms). A wrong address, such as that of a
pod that was just replaced, keeps its partitions waiting this long.
"""
# A Fetch response may exceed its limits by one batch; no response of a broker comes near this.
RESPONSE_BYTES_MAX = 512 * 1024 * 1024
SCRATCH_BYTES = 64 * 1024

M = TypeVar("M", bound=msgspec.Struct)


class _Awaited(Generic[M]):
    """A request that awaits its response; deadline in the loop's time.

    response: None for the raw frame.
    """

    __slots__ = ("api", "correlation_id", "deadline", "future", "response", "version")

    def __init__(
        self, api: Api, version: int, response: type[M] | None, correlation_id: int
    ) -> None:
        self.api, self.version, self.response = api, version, response
        self.correlation_id = correlation_id
        self.deadline = 0.0
        self.future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()


class Connection(asyncio.BufferedProtocol):
    """Made by `connect`. host, port: of the broker; lost: why it ended, None while it is open.

    features: level of each that the cluster had finalized at features_epoch (KIP-584), -1: unknown.
    """

    def __init__(self, host: str, port: int, client_id: str) -> None:
        self.host, self.port, self.client_id = host, port, client_id
        self.lost: ClientError | None = None
        self.versions: dict[int, tuple[int, int]] = {}
        self.features: dict[str, int] = {}
        self.features_epoch = -1
        self._transport = cast("asyncio.Transport", None)
        self._awaited: deque[_Awaited[msgspec.Struct]] = deque()
        self._next_correlation_id = 0
        self._timer: asyncio.TimerHandle | None = None
        self._resumed = asyncio.Event()
        self._resumed.set()
        self._unthrottled = asyncio.Event()
        self._unthrottled.set()
        self._throttle_timer: asyncio.TimerHandle | None = None
        self._scratch = memoryview(bytearray(SCRATCH_BYTES))
        self._held = 0  # bytes at the start of the scratch buffer that belong to no frame yet
        self._frame: memoryview | None = None  # a frame too large for what arrived with its size
        self._filled = 0

    @classmethod
    async def connect(cls, host: str, port: int, client_id: str) -> Self:
        """A connection with negotiated versions.

        Raises ConnectionLost, UnknownHost, RequestTimedOut, NotSupported.
        """
        loop = asyncio.get_running_loop()

        async def opened(address: str) -> Self:
            _, made = await loop.create_connection(
                lambda: cls(host, port, client_id), address, port
            )
            return made

        try:
            async with asyncio.timeout(CONNECT_TIMEOUT_SECONDS):
                connection: Self = await HOST_NAMES.first(host, opened)
                try:
                    await connection.negotiate()
                except BaseException:
                    connection.close()
                    raise
        except TimeoutError:
            raise ConnectionLost(
                f"{host}:{port}: no response in {CONNECT_TIMEOUT_SECONDS:.0f} s"
            ) from None
        except OSError as error:
            kind = UnknownHost if isinstance(error, socket.gaierror) else ConnectionLost
            raise kind(f"cannot connect to {host}:{port}: {_reason(error)}") from error
        except UnicodeError as error:  # getaddrinfo could not encode the name by IDNA
            raise UnknownHost(f"cannot connect to {host}:{port}: not a host name") from error
        return connection

    async def negotiate(self) -> None:
        """Get the broker's API versions (KIP-511), in our newest version or the one it names."""
        api = API_BY_NAME["ApiVersions"]
        request = ApiVersionsRequest(
            client_software_name=SOFTWARE[0], client_software_version=SOFTWARE[1]
        )
        self.versions = {api.key: (0, api.max_version)}
        response = await self.request(request, ApiVersionsResponse)
        if response.error_code == ErrorCode.UNSUPPORTED_VERSION:
            rows = {row.api_key: (row.min_version, row.max_version) for row in response.api_keys}
            self.versions = {api.key: rows.get(api.key, (0, 0))}
            response = await self.request(request, ApiVersionsResponse)
        if response.error_code:
            self.close()
            raise NotSupported(f"{self}: ApiVersions: {ErrorCode(response.error_code).name}")
        self.versions = {
            row.api_key: (row.min_version, row.max_version) for row in response.api_keys
        }
        self.features = {row.name: row.max_version_level for row in response.finalized_features}
        self.features_epoch = response.finalized_features_epoch

    def version(self, api: Api, version_max: int | None = None) -> int:
        """The newest version that both sides speak, at most `version_max`. Raises NotSupported."""
        low, high = self.versions.get(api.key, (0, -1))
        best = min(high, api.max_version, api.max_version if version_max is None else version_max)
        if best < max(low, api.served_min):
            raise NotSupported(f"{self} has no version of {api.name} that we speak")
        return best

    async def request(
        self,
        request: msgspec.Struct,
        response: type[M],
        *,
        timeout_ms: int = 30_000,
        version_max: int | None = None,
    ) -> M:
        """Send and await the response. Cancelling this does not cancel the request."""
        await self.writable()
        await self.unthrottled()
        return await self.submit(request, response, timeout_ms=timeout_ms, version_max=version_max)

    def submit(
        self,
        request: msgspec.Struct,
        response: type[M],
        *,
        timeout_ms: int = 30_000,
        version_max: int | None = None,
    ) -> asyncio.Future[M]:
        """Send; the future gets a `response`, or ConnectionLost or RequestTimedOut.

        timeout_ms: after that the connection is closed, because all later responses wait behind
        this one. Raises ConnectionLost if it is lost already, NotSupported if the broker is too old
        for the request.
        """
        api = api_of(type(request))
        awaited = _Awaited(api, self.version(api, version_max), response, self._next_correlation_id)
        self._write(request, awaited.version)
        self._await(cast("_Awaited[msgspec.Struct]", awaited), timeout_ms)
        return awaited.future

    async def exchange(
        self, api: Api, version: int, encode: Callable[[int], bytes], *, timeout_ms: int = 30_000
    ) -> memoryview:
        """Send the frame that `encode` makes of a correlation id, and await the response's frame.

        `decode` decodes it if the caller cannot. Raises as `request`.
        """
        if not self._resumed.is_set():
            await self.writable()
        if not self._unthrottled.is_set():
            await self.unthrottled()
        awaited: _Awaited[msgspec.Struct] = _Awaited(api, version, None, self._next_correlation_id)
        self._send(encode(self._next_correlation_id))
        self._await(awaited, timeout_ms)
        frame: memoryview = await awaited.future
        return frame

    def decode(self, api: Api, version: int, frame: memoryview) -> msgspec.Struct:
        """The response in a frame from `exchange`. Raises ConnectionLost if it is malformed."""
        try:
            _, body = decode_response(api, version, frame)
        except (MalformedMessage, UnsupportedVersion) as error:
            self._end(ConnectionLost(f"{self}: {error}"))
            raise ConnectionLost(str(self.lost)) from error
        self._obey_throttle(body)
        return body

    def _await(self, awaited: _Awaited[msgspec.Struct], timeout_ms: int) -> None:
        loop = asyncio.get_running_loop()
        awaited.deadline = loop.time() + timeout_ms / 1000
        self._awaited.append(awaited)
        if self._timer is None or awaited.deadline < self._timer.when():
            self._arm(loop, awaited.deadline)

    def post(self, request: msgspec.Struct, *, version_max: int | None = None) -> None:
        """Send a request that gets no response (Produce with acks=0)."""
        self._write(request, self.version(api_of(type(request)), version_max))

    async def writable(self) -> None:
        """Wait until the kernel has taken everything sent before."""
        await self._resumed.wait()

    @property
    def throttled_until(self) -> float:
        """Loop time until which responses ask us to send nothing (KIP-219); 0 if none does."""
        if self._throttle_timer is None or self._unthrottled.is_set():
            return 0.0
        return self._throttle_timer.when()

    async def unthrottled(self) -> None:
        """Wait as long as the broker throttles us."""
        await self._unthrottled.wait()

    async def drained(self, *, timeout_ms: float) -> None:
        """Wait until the kernel has taken everything, so that `close` discards nothing.

        timeout_ms: after that the connection is closed. Raises RequestTimedOut, ConnectionLost.
        """
        try:
            async with asyncio.timeout(timeout_ms / 1000):
                await self._resumed.wait()
        except TimeoutError:
            self._end(RequestTimedOut(f"{self} does not read what is sent to it"))
        if self.lost is not None:
            raise self.lost

    def close(self) -> None:
        """End the connection; requests without a response get ConnectionLost."""
        self._end(ConnectionLost(f"{self}: closed"))

    def _write(self, request: msgspec.Struct, version: int) -> None:
        if self.lost is not None:
            raise ConnectionLost(str(self.lost)) from self.lost
        try:
            buffers = encode_request(request, version, self._next_correlation_id, self.client_id)
        except UnencodableMessage as error:
            raise NotSupported(f"{self}: {error}") from error
        # in one piece: `writelines` of Python 3.12.0 to 3.13.1 never pauses us
        # (python/cpython#127655)
        self._send(b"".join(cast("list[bytes]", buffers)))

    def _send(self, frame: bytes) -> None:
        if self.lost is not None:
            raise ConnectionLost(str(self.lost)) from self.lost
        self._next_correlation_id = (self._next_correlation_id + 1) & 0x7FFFFFFF
        self._transport.write(frame)
        if self._transport.is_closing():  # `connection_lost` is called in the loop's next step only
            self._end(ConnectionLost(f"{self}: the connection broke"))
            raise ConnectionLost(str(self.lost))

    def _arm(self, loop: asyncio.AbstractEventLoop, deadline: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = loop.call_at(deadline, self._check_deadlines)

    def _check_deadlines(self) -> None:
        self._timer = None
        if not self._awaited:
            return
        loop = asyncio.get_running_loop()
        earliest = min(self._awaited, key=lambda awaited: awaited.deadline)
        if earliest.deadline <= loop.time():
            self._end(RequestTimedOut(f"{self}: no response to {earliest.api.name} in time"))
        else:
            self._arm(loop, earliest.deadline)

    def _throttle(self, throttle_ms: int) -> None:
        """Send nothing for this long, or longer if throttled before.

        Kafka: ClusterConnectionStates.throttle.
        """
        loop = asyncio.get_running_loop()
        until = loop.time() + throttle_ms / 1000
        if self._throttle_timer is not None:
            if until <= self._throttle_timer.when():
                return
            self._throttle_timer.cancel()
        self._unthrottled.clear()
        self._throttle_timer = loop.call_at(until, self._unthrottled.set)

    def _end(self, reason: ClientError) -> None:
        if self.lost is not None:
            return
        self.lost = reason
        self._resumed.set()
        self._unthrottled.set()
        for timer in (self._timer, self._throttle_timer):
            if timer is not None:
                timer.cancel()
        for awaited in self._awaited:
            if not awaited.future.done():
                awaited.future.set_exception(reason)
                awaited.future.exception()  # marks it as handled, if no caller waits
        self._awaited.clear()
        if self._transport is not None:
            self._transport.abort()

    # --- called by the event loop

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        # send the next request when the kernel has taken the one before (Kafka:
        # InFlightRequests.canSendMore)
        self._transport.set_write_buffer_limits(0)
        raw = transport.get_extra_info("socket")
        raw.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def connection_lost(self, exc: Exception | None) -> None:
        reason = "the broker closed the connection" if exc is None else str(exc)
        self._end(ConnectionLost(f"{self}: {reason}"))

    def pause_writing(self) -> None:
        self._resumed.clear()

    def resume_writing(self) -> None:
        self._resumed.set()

    def get_buffer(self, sizehint: int) -> memoryview:
        del sizehint
        if self._frame is not None:
            return self._frame[self._filled :]
        return self._scratch[self._held :]

    def buffer_updated(self, nbytes: int) -> None:
        if self._frame is None:
            self._cut(self._held + nbytes)
            return
        self._filled += nbytes
        if self._filled == len(self._frame):
            frame, self._frame = self._frame, None
            self._received(frame)

    def _cut(self, end: int) -> None:
        """Take the complete frames from the first `end` bytes of the scratch buffer."""
        position = 0
        while end - position >= SIZE_BYTES and self.lost is None:
            start = position + SIZE_BYTES
            size = int.from_bytes(self._scratch[position:start], "big", signed=True)
            if not SIZE_BYTES <= size <= RESPONSE_BYTES_MAX:
                self._end(ConnectionLost(f"{self}: a response of {size} bytes; is this a broker?"))
                return
            if end - start < size:
                self._frame = memoryview(bytearray(size))
                self._filled = end - start
                self._frame[: self._filled] = self._scratch[start:end]
                self._held = 0
                return
            position = start + size
            self._received(memoryview(bytes(self._scratch[start:position])))
        self._held = end - position
        self._scratch[: self._held] = bytes(self._scratch[position:end])

    def _received(self, frame: memoryview) -> None:
        if not self._awaited:
            self._end(ConnectionLost(f"{self}: a response without a request"))
            return
        awaited = self._awaited.popleft()
        if awaited.response is None:
            if int.from_bytes(frame[:4], "big") != awaited.correlation_id:
                self._end_mismatched(awaited)
            elif not awaited.future.done():
                awaited.future.set_result(frame)
            return
        try:
            correlation_id, body = decode_response(awaited.api, awaited.version, frame)
        except (MalformedMessage, UnsupportedVersion) as error:
            self._awaited.appendleft(awaited)
            self._end(ConnectionLost(f"{self}: {error}"))
            return
        if correlation_id != awaited.correlation_id or not isinstance(body, awaited.response):
            self._end_mismatched(awaited)
            return
        self._obey_throttle(body)
        if not awaited.future.done():
            awaited.future.set_result(body)

    def _end_mismatched(self, awaited: _Awaited[msgspec.Struct]) -> None:
        """End the connection: the response is not for the oldest request."""
        self._awaited.appendleft(awaited)
        self._end(
            ConnectionLost(f"{self}: the response to another request than {awaited.api.name}")
        )

    def _obey_throttle(self, body: msgspec.Struct) -> None:
        throttle_ms = getattr(body, "throttle_time_ms", 0)
        if throttle_ms > 0:
            self._throttle(throttle_ms)

    def __str__(self) -> str:
        return f"{self.host}:{self.port}"


def _reason(error: OSError) -> str:
    if error.errno is None or isinstance(error, socket.gaierror):
        return error.strerror or str(error)
    return os.strerror(error.errno)  # asyncio writes the address into strerror
