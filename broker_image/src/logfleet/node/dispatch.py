"""Takes a request from its frame to its handler and back: decode, call, encode.

A handler is called on the loop and mostly answers at once: no task, no future, no timer per
request. It returns the response; None (Produce with acks=0); an awaitable of either; or a
`ParkedRequest`, which answers by a call in a later step of the loop and needs no task either. A
handler that answers later may also encode the response itself.

The connection is closed where Kafka closes it: a frame that is no request, an API or a version that
is not served (ApiVersions itself excepted, KIP-511), and a bug of ours.

A broker that was stopped for longer than its lease lasts still takes itself for a leader for some
steps of the loop. So the answer to a request that arrived under a lease is sent before the lease's
deadline or not at all (`answered_at`), however it was made.
"""

from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from typing import Any, Generic, Protocol, TypeVar, cast

import msgspec
import structlog

from logfleet.auth.operations import OPERATIONS_ON, Operation, Resource
from logfleet.auth.principal import Principal
from logfleet.io.clock import boot_s
from logfleet.net.connection import CloseConnection, Encoded
from logfleet.net.file_sender import Part
from logfleet.net.peer import PARKED, Parked, Peer, Repeat
from logfleet.net.throttling import Usage, charged
from logfleet.quotas.client_quotas import ClientQuotas
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
    """The parts of a request that a handler gets besides its body.

    client_id: None if the client sent none. usage: the measured use of resources while any client
    has a quota, else None.
    """

    peer: Peer
    api_version: int
    client_id: str | None
    correlation_id: int
    usage: Usage | None = None

    @property
    def listener(self) -> str:
        """Name of the listener on which the request arrived."""
        return self.peer.listener

    @property
    def principal(self) -> Principal:
        """Who sent the request."""
        return self.peer.principal

    def may(self, operation: Operation, resource: Resource, /) -> bool:
        """Whether the client may do that. Everybody may do everything: there is no authorizer."""
        del operation, resource
        return True

    def allowed(self, resource: Resource) -> int:
        """What the client may do with the resource: a bit for each operation's code (KIP-430)."""
        possible = OPERATIONS_ON[resource.type]
        return sum(1 << operation for operation in possible if self.may(operation, resource))


Response = msgspec.Struct | EncodedRows | None
Handler = Callable[[B, Any, RequestContext], "Response | Awaitable[Response] | ParkedRequest"]
Handlers = Mapping[type[msgspec.Struct], Handler[B]]


class Tenure(Protocol):
    """The time in which a registration may answer as a leader (`node.cluster.failsafe`)."""

    @property
    def deadline_s(self) -> float:
        """The time by boot_s until which it may answer."""
        ...


def answered_at(lease: Tenure | None) -> float:
    """The time (boot_s), for an answer that is ready.

    Raises CloseConnection if others may lead by now what this broker leads by the lease. Before the
    deadline no other broker can: it counts from when the last answered keepalive was sent, and the
    store counts from when that arrived. So all that is done by now was done by the leader. If the
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

    def answer(
        self, correlation_id: int, response: msgspec.Struct | EncodedRows
    ) -> bytes | list[Part]:
        """The whole encoded answer; its errors are counted."""
        body: Sequence[Buffer | Sized]
        errors: Sequence[int]
        if isinstance(response, EncodedRows):
            assert type(response.message) is self.response, "rows of another API's answer"
            body, errors = response.parts(), response.errors
        else:
            assert type(response) is self.response, f"{self.api.name} answered by {response!r}"
            body, errors = self.encode(response), self.errors(response)
        answer: bytes | list[Part]
        if len(body) == 1:
            only = cast("bytes", body[0])
            answer = self.head(self.head_bytes + len(only), correlation_id) + only
        else:
            size = self.head_bytes + sum(map(len, body))
            answer = [self.head(size, correlation_id), *cast("list[Part]", body)]
        if errors:
            self.stats.failed_with(errors)
        return answer

    def counts(self, error: Exception) -> bool:
        """Whether the request was carried out and only its answer is not sent.

        Its errors are counted then (KafkaApis.closeConnection).
        """
        if not isinstance(error, CloseConnection) or error.unsent is None:
            return False
        self.stats.failed_with(self.errors(error.unsent))
        return True


class Requests:
    """The APIs that are served, by key, and the figures of their requests, by API name."""

    def __init__(self, served: Iterable[type[msgspec.Struct]]) -> None:
        self.apis = sorted(map(api_of, served), key=lambda api: api.key)
        self.stats = {api.name: RequestStats() for api in self.apis}


class _Route:
    """An API with its handler; a version is prepared at its first request."""

    __slots__ = ("api", "handler", "is_fenced", "stats", "versions")

    def __init__(
        self, api: Api, handler: Handler[Any], stats: RequestStats, *, is_fenced: bool
    ) -> None:
        self.api = api
        self.handler = handler
        self.is_fenced = is_fenced
        self.stats = stats
        self.versions: dict[int, _Version] = {}


class ParkedRequest:
    """A request that is answered in a later step of the loop than the one in which it arrived.

    A handler returns an instance of a subclass for a request that waits without a task. The code
    that ends the wait calls `reply`, once.
    """

    __slots__ = (
        "_correlation_id",
        "_dispatcher",
        "_lease",
        "_measured",
        "_memory",
        "_parked",
        "_peer",
        "_served",
        "_started",
        "_usage",
    )

    def park(
        self,
        dispatcher: "Dispatcher[Any]",
        served: _Version,
        peer: Peer,
        correlation_id: int,
        started: float,
    ) -> None:
        """Start to wait. The dispatcher calls this. started: when the request arrived (boot_s)."""
        self._dispatcher = dispatcher
        self._served = served
        self._peer = peer
        self._correlation_id = correlation_id
        self._started = started
        self._lease = dispatcher.lease if served.is_fenced else None
        self._memory = 0
        self._usage: Usage | None = None
        self._parked = boot_s()

    def count_memory(self, memory: int) -> None:
        """Count these bytes for the request while it waits."""
        self._memory = memory
        self._dispatcher.waiting_memory += memory

    def release(self) -> None:
        """Stop counting the request's memory."""
        if self._memory:
            self._dispatcher.waiting_memory -= self._memory

    def measure(self, request: msgspec.Struct, usage: Usage) -> None:
        """Charge the client for what the request uses when it is answered, not for its waiting."""
        self._measured, self._usage = request, usage
        usage.pause()

    def measured(self, work: Awaitable[Response]) -> Awaitable[Response]:
        """The result of `work`, charged for while the client is measured."""
        return work if self._usage is None else charged(work, self._measured, self._usage)

    def reply(self, made: Callable[..., Response | bytes | list[Part]], *args: object) -> None:
        """Send what `made` returns for these: the response, or the whole answer as it is sent.

        Closes the connection instead if `made` raises, as for a handler, or if the broker may not
        answer any more (`answered_at`).
        """
        ready, usage = boot_s(), self._usage
        self.release()
        try:
            if usage is None:
                response = made(*args)
            else:
                usage.resume()
                response = made(*args)
                assert not isinstance(response, bytes | list | EncodedRows), "it is charged for"
                usage.charge(self._measured, response)
            answer = self.answer(response, ready)
        except Exception as error:  # noqa: BLE001  the supervisor of later answers
            self._peer.refuse(str(self.failed(error)))
        else:
            self._peer.answer(answer)

    def answer(self, response: Response | bytes | list[Part], ready: float) -> Encoded:
        """The encoded answer. Raises CloseConnection; see `answered_at`.

        ready: when the wait was over.
        """
        served, usage = self._served, self._usage
        answer: Encoded = None
        if isinstance(response, (bytes, list)):
            answer = response
        elif response is not None:
            answer = served.answer(self._correlation_id, response)
        ended, parked = answered_at(self._lease), self._parked
        served.stats.waited(parked - self._started + ended - ready, ready - parked)
        if usage is not None and usage.throttle_ms:
            served.stats.throttle.observe(usage.throttle_ms / 1_000)
        return answer

    def failed(self, error: Exception) -> CloseConnection:
        """Why the connection is closed instead of an answer."""
        if self._served.counts(error):
            parked = self._parked
            self._served.stats.waited(parked - self._started, boot_s() - parked)
        return self._dispatcher.failed(self._served, error)


class Dispatcher(Generic[B]):
    """The service behind all listeners of a broker.

    rooms: handed to each handler. handlers: request class -> handler; together they are what
    ApiVersions advertises. unfenced: requests whose answers do not depend on what this broker
    leads; all others need its lease. requests: counts what is served; None: made of `handlers`.
    lease: by which this broker leads; None while it leads nothing. quotas: measure clients; None,
    which costs almost nothing, while no client has a quota. waiting_memory: bytes counted for large
    requests that are not answered yet.
    """

    def __init__(
        self,
        rooms: B,
        handlers: "Handlers[B]",
        unfenced: Collection[type[msgspec.Struct]] = (),
        requests: Requests | None = None,
    ) -> None:
        self._rooms = rooms
        self.requests = requests or Requests(handlers)
        self._routes: dict[int, _Route] = {}
        self._bugs: set[tuple[object, ...]] = set()
        self.lease: Tenure | None = None
        self.quotas: ClientQuotas | None = None
        self.waiting_memory = 0
        for request, handler in handlers.items():
            api = api_of(request)
            assert api.key not in self._routes, f"two handlers for {api.name}"
            self._routes[api.key] = _Route(
                api, handler, self.requests.stats[api.name], is_fenced=request not in unfenced
            )

    def measure(self, quotas: ClientQuotas | None) -> None:
        """Measure clients by these quotas from now on."""
        self.quotas = quotas

    @property
    def apis(self) -> list[Api]:
        """The APIs that have a handler, by key."""
        return self.requests.apis

    @property
    def stats(self) -> dict[str, RequestStats]:
        """Request counters by API name."""
        return self.requests.stats

    def __call__(self, peer: Peer, frame: memoryview) -> Encoded | Awaitable[Encoded] | Parked:
        started = boot_s()
        if peer.queued_since:
            self._queued(frame, started - peer.queued_since)
        end = peer.repeat_end
        if end and self.quotas is None:
            repeat = peer.repeats.get(bytes(frame[CORRELATION_END:end]))
            if repeat is not None:
                answer = self._repeated(repeat, peer, frame, started)
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
            response = served.handler(self._rooms, request, context)
            if type(response) is served.response:
                if usage is not None:
                    usage.charge(request, response)
                encoded = served.answer(correlation_id, response)
                served.stats.at_once.observe(answered_at(lease) - started)
                if usage is not None and usage.throttle_ms:
                    served.stats.throttle.observe(usage.throttle_ms / 1_000)
                return encoded
        except Exception as error:  # noqa: BLE001  the supervisor of all handlers
            if served.counts(error):
                served.stats.at_once.observe(boot_s() - started)
            raise self.failed(served, error) from None
        if response is None:
            if usage is not None:
                usage.charge(request, None)
            served.stats.at_once.observe(boot_s() - started)
            return None
        parked = response if isinstance(response, ParkedRequest) else ParkedRequest()
        parked.park(self, served, peer, correlation_id, started)
        if memory > SMALL_REQUEST_BYTES:
            parked.count_memory(memory)
        if usage is not None:
            parked.measure(request, usage)
        if parked is response:
            return PARKED
        return self._answer_later(parked, cast("Awaitable[Response]", response))

    @staticmethod
    async def _answer_later(parked: ParkedRequest, pending: Awaitable[Response]) -> Encoded:
        try:
            response = await parked.measured(pending)
            return parked.answer(response, boot_s())
        except Exception as error:  # noqa: BLE001  as above
            raise parked.failed(error) from None
        finally:
            parked.release()

    def _repeated(
        self, repeat: Repeat, peer: Peer, frame: memoryview, started: float
    ) -> bytes | Parked | None:
        """The answer to a request that a template recognises; None if it must be decoded.

        It does what `__call__` does for every request.
        """
        route = self._routes[repeat.api_key]
        try:
            answer = repeat(frame)
        except MalformedMessage:
            return None  # decoding finds the reason
        except Exception as error:  # noqa: BLE001  as above
            raise self.failed(route, error) from None
        if type(answer) is bytes:
            route.stats.at_once.observe(answered_at(self.lease) - started)
            return answer
        if answer is None:
            return None
        parked: Any = answer
        version = route.versions[repeat.api_version]
        correlation_id = int.from_bytes(frame[CORRELATION_END - 4 : CORRELATION_END], "big")
        parked.park(self, version, peer, correlation_id, started)
        return PARKED

    def _queued(self, frame: memoryview, waited_s: float) -> None:
        """The request waited for earlier ones of its connection."""
        route = self._routes.get(int.from_bytes(frame[:API_KEY_BYTES], "big"))
        if route is not None:
            route.stats.queue.observe(waited_s)

    def _prepare(self, header: RequestHeader) -> _Version | None:
        """Prepare a version at its first request; None for an unknown version of ApiVersions."""
        route = self._routes.get(header.api_key)
        if route is None:
            raise CloseConnection(f"API {header.api_key} is not served")
        if route.api.serves(header.api_version):
            served = route.versions[header.api_version] = _Version(route, header.api_version)
            return served
        if header.api_key == API_VERSIONS_KEY:
            return None
        raise CloseConnection(f"{route.api.name} version {header.api_version} is not served")

    def failed(self, served: "_Version | _Route", error: Exception) -> CloseConnection:
        """Why the connection is closed instead of an answer; a bug is counted and logged."""
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
