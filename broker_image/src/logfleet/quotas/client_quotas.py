"""Measures clients that have quotas, and tells how long to throttle one that exceeds its own.

A client is a user (the name of its principal) and a client id. Only clients with a quota are
measured, by `logfleet.quotas.rates`. A meter that was not used for an hour is dropped (as Kafka
drops its sensors); if there are too many, the one that was unused longest is.
"""

from collections.abc import Callable, Mapping
from time import monotonic
from typing import Final, Generic, TypeVar

from logfleet.config.broker import BrokerConfig
from logfleet.metadata.image import Quotas
from logfleet.metadata.kinds.quotas import QuotaEntity
from logfleet.quotas.entities import (
    CONSUMER_BYTE_RATE,
    CONTROLLER_MUTATION_RATE,
    PRODUCER_BYTE_RATE,
    REQUEST_PERCENTAGE,
    ClientLimit,
    address_of,
    limit_of_client,
    limits_of,
    limits_of_addresses,
)
from logfleet.quotas.rates import RateMeter, TokenBucket, Windows
from logfleet.store.loader import Subscription

METERS_MAX: Final = 20_000
"""Clients measured at a time, per kind of quota: about 1.5 KiB each."""
IDLE_MS_MAX: Final = 3_600_000
"""Kafka: ClientQuotaManager.INACTIVE_SENSOR_EXPIRATION_TIME_SECONDS."""

M = TypeVar("M", RateMeter, TokenBucket)
Clock = Callable[[], int]
"""Milliseconds that never go back."""


def monotonic_ms() -> int:
    return int(monotonic() * 1_000)


class _Meters(Generic[M]):
    """Meters by the client that they measure, the one used longest ago first."""

    def __init__(self, make: Callable[[Windows], M], windows: Windows) -> None:
        self._make: Callable[[Windows], M] = make
        self._windows = windows
        self._meters: dict[object, M] = {}

    def __len__(self) -> int:
        return len(self._meters)

    def of(self, client: object, now: int) -> M:
        meters = self._meters
        meter = meters.pop(client, None)
        if meter is None:
            meter = self._make(self._windows)
            self._evict(now)
        meters[client] = meter
        return meter

    def _evict(self, now: int) -> None:
        meters = self._meters
        while meters:
            oldest = next(iter(meters))
            if len(meters) < METERS_MAX and now - meters[oldest].recorded_ms <= IDLE_MS_MAX:
                return
            del meters[oldest]


class _Quota:
    """One kind of quota. limits: by entity.

    throttled, throttled_ms: how often clients were throttled, and for how long in total.
    """

    def __init__(self, key: str, clock: Clock) -> None:
        self.key = key
        self._clock = clock
        self.limits: dict[QuotaEntity, float] = {}
        self.throttled = 0
        self.throttled_ms = 0

    def update(self, quotas: Mapping[QuotaEntity, Quotas]) -> None:
        self.limits = limits_of(quotas, self.key)

    def limit(self, user: str, client_id: str | None) -> ClientLimit | None:
        if not self.limits:
            return None
        return limit_of_client(self.limits, user, client_id or "")

    def count(self, throttle_ms: int) -> None:
        """A client is throttled because of this quota."""
        self.throttled += 1
        self.throttled_ms += throttle_ms


class RateQuota(_Quota):
    """A limit on something per second. throttle_ms_max: the longest throttle, None for no limit."""

    def __init__(
        self, key: str, clock: Clock, windows: Windows, throttle_ms_max: int | None = None
    ) -> None:
        super().__init__(key, clock)
        self._windows = windows
        self._throttle_ms_max = throttle_ms_max
        self.meters = _Meters(RateMeter, windows)

    def charge(self, user: str, client_id: str | None, value: float) -> int:
        """Count `value`; return for how many ms to throttle the client."""
        limit = self.limit(user, client_id)
        if limit is None:
            return 0
        now = self._clock()
        meter = self.meters.of((limit.user, limit.client_id), now)
        meter.record(value, now)
        throttle_ms = meter.throttle_ms(limit.limit, now)
        if self._throttle_ms_max is not None:
            return min(throttle_ms, self._throttle_ms_max)
        return throttle_ms

    def refund(self, user: str, client_id: str | None, value: float) -> None:
        """Undo a charge: the work was not done."""
        limit = self.limit(user, client_id)
        if limit is not None:
            now = self._clock()
            self.meters.of((limit.user, limit.client_id), now).record(-value, now)

    def burst(self, user: str, client_id: str | None) -> int | None:
        """The most that a client may use at once without any throttle; None for no limit."""
        limit = self.limit(user, client_id)
        if limit is None:
            return None
        windows = self._windows
        return int(limit.limit * (windows.count - 1) * windows.length_ms / 1_000)


class MutationQuota(_Quota):
    """The limit on topics' partitions created and deleted per second (KIP-599)."""

    def __init__(self, clock: Clock, windows: Windows) -> None:
        super().__init__(CONTROLLER_MUTATION_RATE, clock)
        self.meters = _Meters(TokenBucket, windows)

    def of_request(
        self, user: str, client_id: str | None, *, strict: bool
    ) -> "MutationBudget | None":
        """The number of changes that a request may make; None for any number."""
        limit = self.limit(user, client_id)
        if limit is None:
            return None
        bucket = self.meters.of((limit.user, limit.client_id), self._clock())
        return MutationBudget(bucket, limit.limit, self._clock, strict=strict)


class MutationBudget:
    """The number of changes that one request may make.

    A strict one refuses once the tokens are used up, any other only makes the client wait. That
    depends on the version of the request: older clients do not understand the refusal.
    """

    def __init__(self, bucket: TokenBucket, limit: float, clock: Clock, *, strict: bool) -> None:
        self._clock = clock
        self._bucket = bucket
        self._limit = limit
        self._strict = strict
        self._is_exceeded = False

    def take(self, permits: int) -> bool:
        """Whether the change may be made; if so, it is counted."""
        now = self._clock()
        if self._strict and self._bucket.tokens(self._limit, now) < 0:
            self._is_exceeded = True
            return False
        self._bucket.take(permits, self._limit, now)
        self._is_exceeded |= self._bucket.tokens(self._limit, now) < 0 and not self._strict
        return True

    def throttle_ms(self) -> int:
        """Time for which to throttle the client."""
        return self._bucket.throttle_ms(self._limit, self._clock()) if self._is_exceeded else 0


class ConnectionQuota:
    """The limit on new connections per second and address. throttled: those that were closed."""

    def __init__(self, clock: Clock, windows: Windows) -> None:
        self._clock = clock
        self._windows = windows
        self.limits: dict[str | None, float] = {}
        self.meters = _Meters(RateMeter, windows)
        self.throttled = 0

    def update(self, quotas: Mapping[QuotaEntity, Quotas]) -> None:
        self.limits = limits_of_addresses(quotas)

    def charge(self, host: str) -> int:
        """Count a new connection; return for how many ms to delay before closing it (KIP-612).

        0 if it may stay.
        """
        if not self.limits:
            return 0
        address = address_of(host) or host
        limit = self.limits.get(address, self.limits.get(None))
        if limit is None:
            return 0
        now = self._clock()
        meter = self.meters.of(address, now)
        meter.record(1, now)
        throttle_ms = min(meter.throttle_ms(limit, now), self._windows.length_ms)
        if throttle_ms:
            meter.record(-1, now)
            self.throttled += 1
        return throttle_ms


class ClientQuotas:
    """All quotas of clients on one broker."""

    def __init__(
        self, windows: Windows, controller_windows: Windows, clock: Clock = monotonic_ms
    ) -> None:
        self.produce = RateQuota(PRODUCER_BYTE_RATE, clock, windows)
        self.fetch = RateQuota(CONSUMER_BYTE_RATE, clock, windows)
        self.request = RateQuota(REQUEST_PERCENTAGE, clock, windows, windows.length_ms)
        self.mutation = MutationQuota(clock, controller_windows)
        self.connection = ConnectionQuota(clock, windows)

    def update(self, quotas: Mapping[QuotaEntity, Quotas]) -> None:
        """Use the cluster's quotas. The meters stay."""
        for each in (self.produce, self.fetch, self.request, self.mutation, self.connection):
            each.update(quotas)

    @property
    def limit_requests(self) -> bool:
        """Whether any client's requests have to be measured."""
        return any(each.limits for each in (self.produce, self.fetch, self.request, self.mutation))

    async def follow(
        self, subscription: Subscription, measure: Callable[["ClientQuotas | None"], None]
    ) -> None:
        """Follow the cluster's quotas until cancelled.

        measure: called to start measuring requests with the first quota, and to stop after the
        last.
        """
        while True:
            image, changes = await subscription.next()
            if changes.everything or changes.quotas:
                self.update(image.quotas)
                measure(self if self.limit_requests else None)


def quotas_of(config: BrokerConfig) -> ClientQuotas:
    """The quotas of a broker with this configuration, before the image has any."""
    return ClientQuotas(
        Windows(config.quota_window_num, 1_000 * config.quota_window_size_seconds),
        Windows(
            config.controller_quota_window_num,
            1_000 * config.controller_quota_window_size_seconds,
        ),
    )
