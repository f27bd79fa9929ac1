"""From a frame to its handler and back: decode, call, encode.

A handler is called on the loop and mostly answers at once: no task, no future, no timer per request.
What it returns is the response, None (Produce with acks=0), or an awaitable of either; one that awaits may also have
encoded a long response itself, row by row.

Where Kafka closes the connection, so does this: a frame that is no request, an API that is not served,
a version of it that is not served (ApiVersions itself excepted, KIP-511), and a bug of ours.

A broker that was stopped for longer than its lease lasts believes for some steps of the loop that it still leads. So the answer to
a request that came in under a lease is handed out before the lease's deadline or not at all (`answered_at`), however it came about.
"""

from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from typing import Any, Generic, Protocol, TypeVar, cast

import msgspec
import structlog

from logfleet.io.clock import boot_s
from logfleet.net.connection import Answer, CloseConnection
from logfleet.net.file_sender import Part
from logfleet.net.peer import Peer, Repeat
from logfleet.node.quotas.client_quotas import ClientQuotas
from logfleet.node.quotas.throttling import Usage, charged
from logfleet.telemetry.request_stats import RequestStats
from logfleet.wire.apis import API_VERSIONS_KEY, Api, api_of
from logfleet.wire.codec import encoder, request_decoder
from logfleet.wire.encoded_rows import EncodedRows
from logfleet.wire.error_codes import error_finder
from logfleet.wire.errors import MalformedMessage, UnsupportedVersion
from logfleet.wire.frame import (
    CORRELATION_END,
    RESPONSE_HEADS,
    SIZE_BYTES,
    RequestHeader,
    decode_request_header,
    encode_unsupported_api_versions,
)
from logfleet.wire.primitives import Buffer, Sized
from logfleet.wire.request_memory import SMALL_REQUEST_BYTES, WAITING_MEMORY_BYTES

log = structlog.get_logger(__name__)

B = TypeVar("B")

API_KEY_BYTES = 2


class RequestContext(msgspec.Struct, frozen=True, gc=False):
    """What a handler knows of a request besides its body. client_id is None if the client gave none.

    usage: what is measured of the request while any client has a quota, else None.
    """

    peer: Peer
    api_version: int
    client_id: str | None
    correlation_id: int
    usage: Usage | None = None

    @property
    def listener(self) -> str:
        """Name of the listener that the request came in by."""
        return self.peer.listener


Response = msgspec.Struct | EncodedRows | None
Handler = Callable[[B, Any, RequestContext], Response | Awaitable[Response]]
Handlers = Mapping[type[msgspec.Struct], Handler[B]]


class Tenure(Protocol):
    """For how long this broker may answer as a leader: a lease, or what goes on past it (`logfleet.node.cluster.failsafe`)."""

    @property
    def deadline_s(self) -> float:
        """Until then, by boot_s."""
        ...


def answered_at(lease: Tenure | None) -> float:
    """The time (boot_s), for an answer that is ready.

    Raises CloseConnection if others may lead by now what this broker leads by the lease. Before the
    deadline nobody else can: it is counted from when the last answered keepalive was sent, and the
    store counts from when that came. So whatever is done by now was done by the leader. If the
    process is stopped after this reading of the clock and before the answer is sent, the effect is
    that of a slow network.
    """
    now_s = boot_s()
    if lease is not None and now_s >= lease.deadline_s:
        raise CloseConnection("this broker may no longer answer as a leader: its lease has run out")
    return now_s


class _Version:
    """One version of an API: its codecs and the header of its answers."""

    __slots__ = (
        "api",
        "decode",
        "encode",
        "errors",
        "handler",
        "head",
        "head_bytes",
        "is_fenced",
        "response",
        "stats",
    )

    def __init__(self, route: "_Route", version: int) -> None:
        api = route.api
        self.api = api
        self.handler = route.handler
        self.stats = route.stats
        self.is_fenced = route.is_fenced
        self.response = api.response
        self.decode = request_decoder(api.request, version)
        self.encode = encoder(api.response, version)
        self.errors = error_finder(f"{api.name}Response")
        head = RESPONSE_HEADS[api.response_header_version(version)]
        self.head = head.pack
        self.head_bytes = head.size - SIZE_BYTES


class _Route:
    """An API with its handler; its versions are prepared when they are first asked for."""

    __slots__ = ("api", "handler", "is_fenced", "stats", "versions")

    def __init__(self, api: Api, handler: Handler[Any], *, is_fenced: bool) -> None:
        self.api = api
        self.handler = handler
        self.is_fenced = is_fenced
        self.stats = RequestStats()
        self.versions: dict[int, _Version] = {}


class Dispatcher(Generic[B]):
    """The service behind all listeners of a broker.

    handlers: request class -> handler; together they are what ApiVersions advertises.
    unfenced: requests whose answers hold whoever leads by then; any other's rests on the lease.
    lease: by which this broker leads; None while it leads nothing.
    quotas: what clients are measured by; None, which costs next to nothing, while none has a quota.
    waiting_memory: bytes that were counted for large requests whose answer is not there yet.
    """

    def __init__(
        self,
        broker: B,
        handlers: "Handlers[B]",
        unfenced: Collection[type[msgspec.Struct]] = (),
    ) -> None:
        self._broker = broker
        self._routes: dict[int, _Route] = {}
        self._bugs: set[tuple[object, ...]] = set()
        self.lease: Tenure | None = None
        self.quotas: ClientQuotas | None = None
        self.waiting_memory = 0
        for request, handler in handlers.items():
            api = api_of(request)
            assert api.key not in self._routes, f"two handlers for {api.name}"
            self._routes[api.key] = _Route(api, handler, is_fenced=request not in unfenced)

    def measure(self, quotas: ClientQuotas | None) -> None:
        """What clients are measured by from now on."""
        self.quotas = quotas

    @property
    def apis(self) -> list[Api]:
        """The APIs that have a handler, by key."""
        return [self._routes[key].api for key in sorted(self._routes)]

    @property
    def stats(self) -> dict[str, RequestStats]:
        """Counters by API name."""
        return {route.api.name: route.stats for route in self._routes.values()}

    def __call__(self, peer: Peer, frame: memoryview) -> Answer | Awaitable[Answer]:
        started = boot_s()
        if peer.queued_since:
            self._queued(frame, started - peer.queued_since)
        end = peer.repeat_end
        if end and self.quotas is None:
            repeat = peer.repeats.get(bytes(frame[CORRELATION_END:end]))
            if repeat is not None:
                answer = self._repeated(repeat, frame, started)
                if answer is not None:
                    return answer
        try:
            header, position = decode_request_header(frame)
            route = self._routes.get(header.api_key)
            served = None if route is None else route.versions.get(header.api_version)
            if served is None:
                served = self._prepare(header)
                if served is None:
                    return encode_unsupported_api_versions(header.correlation_id)
            request, memory = served.decode(frame, position)
            if memory > SMALL_REQUEST_BYTES and memory > WAITING_MEMORY_BYTES - self.waiting_memory:
                raise CloseConnection("requests that wait take too much memory")
        except (MalformedMessage, UnsupportedVersion) as error:
            raise CloseConnection(str(error)) from None
        correlation_id = header.correlation_id
        lease = self.lease if served.is_fenced else None
        usage = None
        if self.quotas is not None:
            usage = Usage(self.quotas, peer, header.client_id, header.api_version)
            usage.begin(request, len(frame), started)
        context = RequestContext(peer, header.api_version, header.client_id, correlation_id, usage)
        try:
            response = served.handler(self._broker, request, context)
            if type(response) is served.response:
                if usage is not None:
                    usage.charge(request, response)
                encoded = self._encode(served, correlation_id, response)
                served.stats.at_once.observe(answered_at(lease) - started)
                if usage is not None and usage.throttle_ms:
                    served.stats.throttle.observe(usage.throttle_ms / 1_000)
                return encoded
        except Exception as error:  # noqa: BLE001  the supervisor of all handlers
            if self._counts(served, error):
                served.stats.at_once.observe(boot_s() - started)
            raise self._failed(served, error) from None
        if response is None:
            if usage is not None:
                usage.charge(request, None)
            served.stats.at_once.observe(boot_s() - started)
            return None
        pending = cast("Awaitable[Response]", response)
        if memory > SMALL_REQUEST_BYTES:
            self.waiting_memory += memory
            pending = self._waiting(pending, memory)
        if usage is not None:
            pending = charged(pending, request, usage)
        return self._answer_later(
            served, correlation_id, pending, started, usage=usage, lease=lease
        )

    async def _waiting(self, pending: Awaitable[Response], memory: int) -> Response:
        try:
            return await pending
        finally:
            self.waiting_memory -= memory

    def _repeated(
        self, repeat: Repeat, frame: memoryview, started: float
    ) -> bytes | Awaitable[Answer] | None:
        """The answer to a request that is known by its bytes, None if it must be decoded.

        What `__call__` does for every request is done here as well.
        """
        route, lease = self._routes[repeat.api_key], self.lease
        try:
            answer = repeat(frame)
        except MalformedMessage:
            return None  # decoding says why
        except Exception as error:  # noqa: BLE001  as above
            raise self._failed(route, error) from None
        if type(answer) is bytes:
            route.stats.at_once.observe(answered_at(lease) - started)
            return answer
        if answer is None:
            return None
        served = route.versions[repeat.api_version]
        pending = cast("Awaitable[bytes]", answer)
        return self._answer_later(served, 0, pending, started, usage=None, lease=lease)

    def _queued(self, frame: memoryview, waited_s: float) -> None:
        """The request waited until others of its connection had had their turn."""
        route = self._routes.get(int.from_bytes(frame[:API_KEY_BYTES], "big"))
        if route is not None:
            route.stats.queue.observe(waited_s)

    def _prepare(self, header: RequestHeader) -> _Version | None:
        """The first request of a version; None for a version of ApiVersions that nobody knows."""
        route = self._routes.get(header.api_key)
        if route is None:
            raise CloseConnection(f"API {header.api_key} is not served")
        if route.api.serves(header.api_version):
            served = route.versions[header.api_version] = _Version(route, header.api_version)
            return served
        if header.api_key == API_VERSIONS_KEY:
            return None
        raise CloseConnection(f"{route.api.name} version {header.api_version} is not served")

    async def _answer_later(
        self,
        served: _Version,
        correlation_id: int,
        pending: Awaitable[Response | bytes],
        started: float,
        *,
        usage: Usage | None,
        lease: Tenure | None,
    ) -> Answer:
        """pending: what is to be encoded, or the whole answer."""
        stats = served.stats
        parked = boot_s()
        try:
            response = await pending
            ready = boot_s()
            answer: Answer = None
            if isinstance(response, bytes):
                answer = response
            elif response is not None:
                answer = self._encode(served, correlation_id, response)
            ended = answered_at(lease)
        except Exception as error:  # noqa: BLE001  as above
            if self._counts(served, error):
                stats.waited(parked - started, boot_s() - parked)
            raise self._failed(served, error) from None
        stats.waited(parked - started + ended - ready, ready - parked)
        if usage is not None and usage.throttle_ms:
            stats.throttle.observe(usage.throttle_ms / 1_000)
        return answer

    @staticmethod
    def _encode(
        served: _Version, correlation_id: int, response: msgspec.Struct | EncodedRows
    ) -> bytes | list[Part]:
        body: Sequence[Buffer | Sized]
        errors: Sequence[int]
        if isinstance(response, EncodedRows):
            assert type(response.message) is served.response, "rows of another API's answer"
            body, errors = response.parts(), response.errors
        else:
            assert type(response) is served.response, f"{served.api.name} answered by {response!r}"
            body, errors = served.encode(response), served.errors(response)
        answer: bytes | list[Part]
        if len(body) == 1:
            only = cast("bytes", body[0])
            answer = served.head(served.head_bytes + len(only), correlation_id) + only
        else:
            size = served.head_bytes + sum(map(len, body))
            answer = [served.head(size, correlation_id), *cast("list[Part]", body)]
        if errors:
            served.stats.failed_with(errors)
        return answer

    @staticmethod
    def _counts(served: _Version, error: Exception) -> bool:
        """Whether the request was carried out, and only its answer is not sent: its errors are counted (KafkaApis.closeConnection)."""
        if not isinstance(error, CloseConnection) or error.unsent is None:
            return False
        served.stats.failed_with(served.errors(error.unsent))
        return True

    def _failed(self, served: "_Version | _Route", error: Exception) -> CloseConnection:
        if isinstance(error, CloseConnection):
            return error
        served.stats.failures += 1
        name = served.api.name
        where = error.__traceback__
        while where is not None and where.tb_next is not None:
            where = where.tb_next
        bug = (
            name,
            type(error),
            where.tb_frame.f_code if where else None,
            where and where.tb_lineno,
        )
        if (
            bug in self._bugs
        ):  # a client that repeats its request must not fill the log with tracebacks
            log.error("request_failed_again", api=name, error=repr(error))
        else:
            self._bugs.add(bug)
            log.error("request_failed", api=name, exc_info=error)
        return CloseConnection(f"{name} failed")
