"""Sends administrative requests to the controller, wherever it is.

Any broker takes such a request; the controller makes the change. The controller's own broker does
it directly; any other forwards the request, as it arrived, in an Envelope over the inter-broker
listener (KIP-590). Envelope is not advertised, is accepted on the inter-broker listener only, and
carries only requests that have a `ControllerWork`. Until brokers authenticate, every client that
reaches that listener can send one, and gains nothing that the request itself would not give.
"""

import asyncio
import contextlib
import ipaddress
from collections.abc import Awaitable, Callable
from typing import Any, Final, cast

import msgspec
import structlog

from logfleet.auth.principal import ANONYMOUS, Principal, encode_principal
from logfleet.client.connection import Connection
from logfleet.client.errors import ClientError
from logfleet.config.broker import BrokerConfig
from logfleet.config.topic import BrokerLayers
from logfleet.controller.running.loop import ControllerLoop
from logfleet.controller.terms.operations import NotControllerError
from logfleet.metadata.image import ClusterImage
from logfleet.metadata.kinds.brokers import Endpoint
from logfleet.quotas.client_quotas import MutationBudget, MutationQuota
from logfleet.store.loader import MetadataLoader
from logfleet.wire.apis import API_BY_NAME, Api, api_of
from logfleet.wire.errors import ErrorCode
from logfleet.wire.frame import SIZE_BYTES, decode_response, encode_request
from logfleet.wire.messages import EnvelopeRequest, EnvelopeResponse
from logfleet.wire.refusal import Refusal

log = structlog.get_logger()

ENVELOPE: Final = API_BY_NAME["Envelope"]
ANSWER_S: Final = 5.0
"""Time that a forwarded request may take beyond its own timeout.

So it still gets the controller's own error.
"""
AGAIN_S: Final = 0.05
"""Pause before the controller is looked up again: an election takes longer than that."""
SEEN_S_MAX: Final = 2.0
"""Longest time that an answer waits until this broker's image shows the change and it is applied
here.
"""

UntilApplied = Callable[[int, int], Awaitable[None]]
"""See `node.partitions.local_partitions.LocalPartitions.until_applied`."""


class ControllerWork(msgspec.Struct, frozen=True):
    """The functions that carry out one administrative request.

    serve: on the controller; raises NotControllerError. refuse: an answer that refuses all of a
    request. timeout_ms: how long it may take, None for request.timeout.ms. seen: whether an image
    shows what the answer confirms. serve_within: `serve` for clients with a quota of changes to
    topics (KIP-599), which is strict since version strict_since.

    `serve` raises NotControllerError only if the whole request may be sent to the next controller:
    nothing of it is done, or doing it again leaves the same state.
    """

    serve: Callable[["ControllerAccess", Any, int], Awaitable[msgspec.Struct]]
    refuse: Callable[[Any, int, Refusal], msgspec.Struct]
    timeout_ms: Callable[[Any], int] | None
    seen: Callable[[ClusterImage, Any, Any], bool]
    serve_within: (
        Callable[["ControllerAccess", Any, int, MutationBudget], Awaitable[msgspec.Struct]] | None
    ) = None
    strict_since: int = 0

    async def run(
        self, access: "ControllerAccess", request: msgspec.Struct, origin: "Origin"
    ) -> msgspec.Struct:
        """Do it, on the controller, within the client's quota. Raises NotControllerError."""
        if self.serve_within is not None:
            budget = access.mutations.of_request(
                origin.principal.name,
                origin.client_id,
                strict=origin.version >= self.strict_since,
            )
            if budget is not None:
                answer = await self.serve_within(access, request, origin.version, budget)
                answer.throttle_time_ms = budget.throttle_ms()  # type: ignore[attr-defined]
                return answer
        return await self.serve(access, request, origin.version)


class Origin(msgspec.Struct, frozen=True):
    """The client that sent a request, also for the broker to which it is forwarded.

    version: of the request. host: its address, "" if it has none.
    """

    version: int
    principal: Principal = ANONYMOUS
    client_id: str | None = None
    host: str = ""


class ControllerAccess:
    """One per broker. `close` ends its connection to the controller."""

    def __init__(
        self,
        config: BrokerConfig,
        follower: MetadataLoader,
        controller: ControllerLoop,
        mutations: MutationQuota,
        *,
        until_applied: UntilApplied,
    ) -> None:
        self._until_applied = until_applied
        self.config = config
        self.controller = controller
        self.mutations = mutations
        self._follower = follower
        self._connection: Connection | None = None
        self._connecting = asyncio.Lock()

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()

    @property
    def image(self) -> ClusterImage:
        """This broker's image of the cluster."""
        return self._follower.image

    @property
    def layers(self) -> BrokerLayers:
        """The cluster's defaults, by this broker's image."""
        cluster = self._follower.image.configs_of_broker(None)
        return BrokerLayers(self.config.static, cluster.values)

    async def perform(
        self, work: ControllerWork, request: msgspec.Struct, origin: Origin
    ) -> msgspec.Struct:
        """The controller's answer; a refusal of the whole request if there is none in time."""
        before = self._follower.image.revision
        wait_ms = self.config.request_timeout_ms
        if work.timeout_ms is not None:
            wait_ms = max(work.timeout_ms(request), 0)
        attempt = _Attempt(work, request, origin)
        try:
            async with asyncio.timeout(wait_ms / 1000):
                answer = await self._try(attempt)
                while answer is None:
                    await asyncio.sleep(AGAIN_S)
                    answer = await self._try(attempt)
        except TimeoutError:
            return attempt.refuse(attempt.error_of_silence)
        await self._until_seen(work, request, answer, before)
        return answer

    async def _try(self, attempt: "_Attempt") -> msgspec.Struct | None:
        """Return the answer.

        None if there is no controller, or the asked broker is not the controller.
        """
        if self.controller.is_controller:
            attempt.error_of_silence = ErrorCode.REQUEST_TIMED_OUT
            try:
                return await attempt.work.run(self, attempt.request, attempt.origin)
            except NotControllerError:
                return None
        return await self._forward(attempt)

    async def _forward(self, attempt: "_Attempt") -> msgspec.Struct | None:
        try:
            connection = await self._connected()
        except ClientError as error:
            log.warning("controller_not_reached", reason=str(error))
            return None
        if connection is None:
            return None
        attempt.error_of_silence = ErrorCode.REQUEST_TIMED_OUT
        remaining_ms = 1000 * (attempt.wait_s + ANSWER_S)
        try:
            answer = await connection.request(
                attempt.envelope(), EnvelopeResponse, timeout_ms=int(remaining_ms)
            )
        except ClientError as error:
            # It may have been done; if sent again, it could be refused because of its own success.
            log.warning("forwarding_failed", api=attempt.api.name, reason=str(error))
            return attempt.refuse(ErrorCode.REQUEST_TIMED_OUT)
        if answer.error_code == ErrorCode.NOT_CONTROLLER:
            return None
        return attempt.opened(answer)

    async def _connected(self) -> Connection | None:
        """A connection to the controller, None if there is none or it is this broker.

        Raises ClientError.
        """
        async with self._connecting:
            # Only now: this may have waited longer than the election of another controller takes.
            address = _controller_address(
                self._follower.image, self.config.node_id, self.config.inter_broker_listener_name
            )
            if address is None:
                return None
            connection = self._connection
            if connection is not None:
                there = (connection.host, connection.port) == (address.host, address.port)
                if there and connection.lost is None:
                    return connection
                connection.close()
            name = f"logfleet-broker-{self.config.node_id}"
            connection = await Connection.connect(address.host, address.port, name)
            # Brokers do not advertise it, and all of them take it.
            connection.versions[ENVELOPE.key] = (ENVELOPE.served_min, ENVELOPE.max_version)
            self._connection = connection
            return connection

    async def _until_seen(
        self, work: ControllerWork, request: msgspec.Struct, answer: msgspec.Struct, before: int
    ) -> None:
        """Wait until this broker has applied what the request changed.

        Clients ask the same broker next: records for a topic whose retention they just lifted must
        not meet the old one. before: revision of the image when the request arrived.
        """

        def seen(image: ClusterImage) -> bool:
            return work.seen(image, request, answer)

        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(SEEN_S_MAX):
                image = await self._follower.until(seen)
                await self._until_applied(image.revision, before)


class _Attempt:
    """A request in progress.

    error_of_silence: the error if no answer comes, which depends on whether it was sent.
    """

    def __init__(self, work: ControllerWork, request: msgspec.Struct, origin: Origin) -> None:
        self.work = work
        self.request = request
        self.origin = origin
        self.api: Api = api_of(type(request))
        self.error_of_silence = ErrorCode.NOT_CONTROLLER
        self.wait_s = 0.0 if work.timeout_ms is None else work.timeout_ms(request) / 1000

    def refuse(self, error: ErrorCode) -> msgspec.Struct:
        if error is ErrorCode.NOT_CONTROLLER:
            message = "There is no controller, or this broker does not reach it."
        else:
            message = "The controller did not answer in time; the change may have been made."
        return self.work.refuse(self.request, self.origin.version, Refusal(error, message))

    def envelope(self) -> EnvelopeRequest:
        frame = encode_request(self.request, self.origin.version, 0, self.origin.client_id)
        return EnvelopeRequest(
            request_data=b"".join(cast("list[bytes]", frame))[SIZE_BYTES:],
            request_principal=encode_principal(self.origin.principal),
            client_host_address=_packed(self.origin.host),
        )

    def opened(self, envelope: EnvelopeResponse) -> msgspec.Struct:
        """The controller's answer in the envelope, or a refusal with the envelope's error."""
        if envelope.error_code or envelope.response_data is None:
            error = ErrorCode(envelope.error_code or ErrorCode.UNKNOWN_SERVER_ERROR)
            log.error("forwarding_refused", api=self.api.name, error=error.name)
            refusal = Refusal(error, f"The controller refused the forwarded request: {error.name}.")
            return self.work.refuse(self.request, self.origin.version, refusal)
        _, answer = decode_response(self.api, self.origin.version, envelope.response_data)
        return answer


def _controller_address(image: ClusterImage, node_id: int, listener: str) -> Endpoint | None:
    """The controller's address for brokers; None if there is none or it is this broker."""
    if image.controller is None or image.controller.broker == node_id:
        return None
    broker = image.brokers.get(image.controller.broker)
    return None if broker is None else broker.listener(listener)


def _packed(host: str) -> bytes:
    """The bytes of an IP address; of "any address" if it is none (a Unix socket has no peer)."""
    try:
        return ipaddress.ip_address(host).packed
    except ValueError:
        return bytes(4)
