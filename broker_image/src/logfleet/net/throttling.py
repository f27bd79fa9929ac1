"""Charges one request of a client to its quotas, and throttles its connection (KIP-219).

An answer is sent at once; it carries the throttle time, and for that long no further request of its
connection is read. If several quotas are exceeded, the longest time counts. A fetch that exceeds
one is answered without records, which then do not count. `request_percentage` is a share of the
time of the one thread that runs this broker's loop: decoding, the handler's steps and encoding, not
the waiting between them, and not the kernel's work to send segments.
"""

from collections.abc import Awaitable, Generator
from typing import TYPE_CHECKING, Any, Final, Generic, TypeVar

import msgspec

from logfleet.io.clock import boot_s
from logfleet.net.peer import Peer
from logfleet.quotas.client_quotas import ClientQuotas
from logfleet.wire.codec import encoder
from logfleet.wire.encoded_rows import EncodedRows
from logfleet.wire.messages import (
    EnvelopeRequest,
    FetchRequest,
    FetchResponse,
    ProduceRequest,
)

if TYPE_CHECKING:
    from logfleet.quotas.client_quotas import RateQuota

A = TypeVar("A", bound=msgspec.Struct | EncodedRows | None)
T = TypeVar("T")

_PERCENT: Final = 100.0
_SIZE_BYTES: Final = 4


class Usage:
    """The resources that one request uses; created when its frame has arrived.

    throttle_ms: for how long the client is throttled, once that is decided.
    """

    __slots__ = (
        "_busy_s",
        "_client_id",
        "_frame_bytes",
        "_peer",
        "_quotas",
        "_resumed",
        "_user",
        "_version",
        "throttle_ms",
    )

    def __init__(
        self, quotas: ClientQuotas, peer: Peer, client_id: str | None, version: int
    ) -> None:
        self._quotas = quotas
        self._peer = peer
        self._user = peer.principal.name
        self._client_id = client_id
        self._version = version
        self._frame_bytes = 0
        self._busy_s = 0.0
        self._resumed = 0.0
        self.throttle_ms = 0

    def begin(self, request: msgspec.Struct, frame_bytes: int, started: float) -> None:
        """The handler is about to run. A consumer gets no more at once than its quota allows.

        started: by boot_s; frame_bytes: without the length field.
        """
        self._frame_bytes = frame_bytes
        self._resumed = started
        if isinstance(request, FetchRequest):
            burst = self._quotas.fetch.burst(self._user, self._client_id)
            if burst is not None:
                request.max_bytes = min(request.max_bytes, burst)

    def resume(self) -> None:
        """The loop works on the request again."""
        self._resumed = boot_s()

    def pause(self) -> None:
        """The request waits for something."""
        self._busy_s += boot_s() - self._resumed

    def fetched(self, answer: FetchResponse) -> int:
        """Charge a consumer's answer; return for how many ms to throttle it, 0 to send it."""
        body = encoder(FetchResponse, self._version)(answer)
        size = _SIZE_BYTES + sum(map(len, body))
        fetch = self._quotas.fetch
        request_ms = self._charge_time()
        fetched_ms = fetch.charge(self._user, self._client_id, size)
        throttle_ms = self._throttle(fetch, fetched_ms, request_ms)
        if throttle_ms:
            fetch.refund(self._user, self._client_id, size)
        return throttle_ms

    def charge(self, request: msgspec.Struct, answer: msgspec.Struct | None) -> None:
        """Charge for the request, and write the throttle time into its answer, if it has one.

        A time that the handler wrote into it comes from the quota of topics' changes. Without an
        answer (acks=0) time is not charged.
        """
        if isinstance(request, FetchRequest | EnvelopeRequest):
            return  # charged by the handler, or by the broker that the envelope came from
        quotas = self._quotas
        request_ms = 0 if answer is None else self._charge_time()
        if isinstance(request, ProduceRequest):
            produced_ms = quotas.produce.charge(self._user, self._client_id, self._frame_bytes)
            throttle_ms = self._throttle(quotas.produce, produced_ms, request_ms)
        else:
            mutation_ms = getattr(answer, "throttle_time_ms", 0)
            if mutation_ms:
                quotas.mutation.count(mutation_ms)
            throttle_ms = self._throttle(None, mutation_ms, request_ms)
        if throttle_ms and hasattr(answer, "throttle_time_ms"):
            answer.throttle_time_ms = throttle_ms  # type: ignore[union-attr]

    def _charge_time(self) -> int:
        self.pause()
        self.resume()
        percent = self._busy_s * _PERCENT
        return self._quotas.request.charge(self._user, self._client_id, percent)

    def _throttle(self, quota: "RateQuota | None", bandwidth_ms: int, request_ms: int) -> int:
        """Stop reading the connection for the longer of the two times; return it."""
        throttle_ms = max(bandwidth_ms, request_ms)
        if throttle_ms:
            if request_ms >= bandwidth_ms:
                self._quotas.request.count(throttle_ms)
            elif quota is not None:
                quota.count(throttle_ms)
            self._peer.throttle(throttle_ms)
            self.throttle_ms = throttle_ms
        return throttle_ms


class Timed(Generic[T]):
    """Awaits `work` and reports to `usage` when the loop works on it and when it waits."""

    def __init__(self, work: Awaitable[T], usage: Usage) -> None:
        self._work = work
        self._usage = usage

    def __await__(self) -> Generator[Any, Any, T]:
        steps: Generator[Any, Any, T] = self._work.__await__()
        usage = self._usage
        usage.resume()
        try:
            waits_for = steps.send(None)
            while True:
                usage.pause()
                try:
                    value = yield waits_for
                except BaseException as error:  # noqa: BLE001  cancellation, too, belongs to the work
                    usage.resume()
                    waits_for = steps.throw(error)
                else:
                    usage.resume()
                    waits_for = steps.send(value)
        except StopIteration as end:
            return end.value  # type: ignore[no-any-return]


async def charged(work: Awaitable[A], request: msgspec.Struct, usage: Usage) -> A:
    """The result of `work`, after it was charged for. `usage` has been paused."""
    answer = await Timed(work, usage)
    usage.charge(request, answer.message if isinstance(answer, EncodedRows) else answer)
    return answer
