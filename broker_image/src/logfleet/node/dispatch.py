"""From a frame to its handler and back: decode, call, encode.

A handler is called on the loop and mostly answers at once: no task, no future, no timer per request.
What it returns is the response, None (Produce with acks=0), or an awaitable of either.

Where Kafka closes the connection, so does this: a frame that is no request, an API that is not served,
a version of it that is not served (ApiVersions itself excepted, KIP-511), and a bug of ours.
"""

from collections.abc import Awaitable, Callable, Mapping
from time import perf_counter
from typing import Any, Generic, TypeVar, cast

import msgspec
import structlog

from logfleet.node.connection import Answer, CloseConnection, Peer
from logfleet.wire.apis import API_VERSIONS_KEY, Api, api_of
from logfleet.wire.codec import decoder
from logfleet.wire.errors import MalformedMessage, UnsupportedVersion
from logfleet.wire.frame import (
    RequestHeader,
    decode_request_header,
    encode_response,
    encode_unsupported_api_versions,
)

log = structlog.get_logger(__name__)

B = TypeVar("B")


class RequestContext(msgspec.Struct, frozen=True, gc=False):
    """What a handler knows of a request besides its body. client_id is None if the client gave none."""

    peer: Peer
    header: RequestHeader

    @property
    def api_version(self) -> int:
        return self.header.api_version

    @property
    def client_id(self) -> str | None:
        return self.header.client_id

    @property
    def listener(self) -> str:
        """Name of the listener that the request came in by."""
        return self.peer.listener


Response = msgspec.Struct | None
Handler = Callable[[B, Any, RequestContext], Response | Awaitable[Response]]
Handlers = Mapping[type[msgspec.Struct], Handler[B]]


class RequestStats:
    """Counters of one API: plain numbers, read by the metrics when they are asked for.

    seconds: from the frame's arrival to its encoded answer, waiting included.
    """

    __slots__ = ("failures", "requests", "seconds")

    def __init__(self) -> None:
        self.requests = 0
        self.failures = 0
        self.seconds = 0.0


class _Route:
    """An API with its handler."""

    __slots__ = ("api", "decoders", "handler", "response", "stats")

    def __init__(self, api: Api, handler: Handler[Any]) -> None:
        self.api = api
        self.handler = handler
        self.response = api.response
        self.stats = RequestStats()
        self.decoders: dict[int, Callable[[memoryview, int], tuple[msgspec.Struct, int]]] = {}


class Dispatcher(Generic[B]):
    """The service behind all listeners of a broker.

    handlers: request class -> handler; together they are what ApiVersions advertises.
    """

    def __init__(self, broker: B, handlers: "Handlers[B]") -> None:
        self._broker = broker
        self._routes: dict[int, _Route] = {}
        for request, handler in handlers.items():
            api = api_of(request)
            assert api.key not in self._routes, f"two handlers for {api.name}"
            self._routes[api.key] = _Route(api, handler)

    @property
    def apis(self) -> list[Api]:
        """The APIs that have a handler, by key."""
        return [self._routes[key].api for key in sorted(self._routes)]

    @property
    def stats(self) -> dict[str, RequestStats]:
        """Counters by API name."""
        return {route.api.name: route.stats for route in self._routes.values()}

    def __call__(self, peer: Peer, frame: memoryview) -> Answer | Awaitable[Answer]:
        started = perf_counter()
        try:
            header, position = decode_request_header(frame)
        except (MalformedMessage, UnsupportedVersion) as error:
            raise CloseConnection(str(error)) from None
        route = self._routes.get(header.api_key)
        if route is None:
            raise CloseConnection(f"API {header.api_key} is not served")
        decode = route.decoders.get(header.api_version)
        if decode is None:
            if not route.api.serves(header.api_version):
                return self._unsupported(route.api, header)
            decode = decoder(route.api.request, header.api_version)
            route.decoders[header.api_version] = decode
        try:
            request, _ = decode(frame, position)
        except MalformedMessage as error:
            raise CloseConnection(str(error)) from None
        try:
            response = route.handler(self._broker, request, RequestContext(peer, header))
            if response is None or type(response) is route.response:
                return self._encode(route, header, response, started)
        except Exception as error:  # noqa: BLE001  the supervisor of all handlers
            raise self._failed(route, error) from None
        pending = cast("Awaitable[Response]", response)
        return self._answer_later(route, header, pending, started)

    def _unsupported(self, api: Api, header: RequestHeader) -> bytes:
        if api.key == API_VERSIONS_KEY:
            return encode_unsupported_api_versions(header.correlation_id)
        raise CloseConnection(f"{api.name} version {header.api_version} is not served")

    async def _answer_later(
        self, route: _Route, header: RequestHeader, response: Awaitable[Response], started: float
    ) -> Answer:
        try:
            return self._encode(route, header, await response, started)
        except Exception as error:  # noqa: BLE001  as above
            raise self._failed(route, error) from None

    def _encode(
        self, route: _Route, header: RequestHeader, response: Response, started: float
    ) -> Answer:
        stats = route.stats
        stats.requests += 1
        answer: Answer = None
        if response is not None:
            assert type(response) is route.response, f"{route.api.name} answered by {response!r}"
            parts = encode_response(route.api, header.api_version, header.correlation_id, response)
            answer = cast("Answer", parts[0] if len(parts) == 1 else parts)
        stats.seconds += perf_counter() - started
        return answer

    def _failed(self, route: _Route, error: Exception) -> CloseConnection:
        if isinstance(error, CloseConnection):
            return error
        route.stats.failures += 1
        log.error("request_failed", api=route.api.name, exc_info=error)
        return CloseConnection(f"{route.api.name} failed")
