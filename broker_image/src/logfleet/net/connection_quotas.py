"""Limits on a broker's connections, counted over all its listeners (Kafka: ConnectionQuotas).

The effects are Kafka's: an address with too many connections is refused; other clients wait until
there is room, or until the rate of new connections allows one more. The inter-broker listener,
unless it is the only one, is only subject to its own limits; for connections that it admits beyond
max.connections, the least recently used ones of the other listeners are closed.
"""

import asyncio
from collections import Counter
from collections.abc import Callable
from typing import Final

from logfleet.config.connection_limits import ConnectionLimits
from logfleet.io.descriptors import NO_LIMIT
from logfleet.quotas.rates import RateMeter, Windows

NO_RATE_LIMIT: Final = 2**31 - 1
_ALL = None


class ConnectionQuotas:
    """now_ms: a monotonic clock.

    protected: name of the inter-broker listener, None if it is the only one. possible_max:
    connections that there are file descriptors for. make_room: called with a number of connections
    to close if more are open than allowed; never those of `protected`.
    """

    def __init__(
        self,
        limits: ConnectionLimits,
        now_ms: Callable[[], int],
        *,
        protected: str | None = None,
        windows: Windows | None = None,
        possible_max: int = NO_LIMIT,
        make_room: Callable[[int], None] = lambda _: None,
    ) -> None:
        self._limits = limits
        self._now_ms = now_ms
        self._protected = protected
        self._windows = windows or Windows()
        self._possible_max = possible_max
        self._make_room = make_room
        self._changed = asyncio.Event()
        self._by_address: Counter[str] = Counter()
        self._by_listener: Counter[str] = Counter()
        self._meters: dict[str | None, RateMeter] = {}

    @property
    def total(self) -> int:
        """Open connections, including those that are about to be closed."""
        return self._by_listener.total()

    def update(self, limits: ConnectionLimits) -> None:
        """Apply new limits at once, also to waiting and open connections."""
        self._limits = limits
        self._wake()
        self._close_excess()

    async def until_admitted(self, listener: str) -> None:
        """Return when that listener may admit one more connection; the call counts for the rate."""
        end_ms = self._now_ms() + self._record(listener)
        while True:
            wait_ms = end_ms - self._now_ms()
            if wait_ms <= 0 and self._has_room(listener):
                return
            self._changed.clear()
            timeout_s = wait_ms / 1_000 if wait_ms > 0 else None
            try:
                async with asyncio.timeout(timeout_s):
                    await self._changed.wait()
            except TimeoutError:
                continue

    def is_possible(self, listener: str) -> bool:
        """Whether there is a descriptor for one more connection.

        Between brokers there always is: others make room.
        """
        return listener == self._protected or self.total < self._possible_max

    def enter(self, listener: str, address: str) -> int | None:
        """Count a new connection.

        Returns None, or the limit of its address if that is reached: then nothing is counted.
        """
        limit = self._limits.by_address.get(address, self._limits.max_connections_per_ip)
        if self._by_address[address] >= limit:
            self._drop_if_zero(address)
            return limit
        self._by_address[address] += 1
        self._by_listener[listener] += 1
        self._close_excess()
        return None

    def leave(self, listener: str, address: str) -> None:
        """Remove a connection that `enter` counted."""
        self._by_address[address] -= 1
        self._drop_if_zero(address)
        self._by_listener[listener] -= 1
        self._wake()

    def _drop_if_zero(self, address: str) -> None:
        if self._by_address[address] == 0:
            del self._by_address[address]

    def _wake(self) -> None:
        self._changed.set()

    def _has_room(self, listener: str) -> bool:
        limits = self._limits
        if self._by_listener[listener] >= limits.listeners[listener].max_connections:
            return False
        return listener == self._protected or self.total < limits.max_connections

    def _close_excess(self) -> None:
        excess = self.total - min(self._limits.max_connections, self._possible_max)
        if excess > 0:
            self._make_room(excess)

    def _record(self, listener: str) -> int:
        """How long the rates delay a new connection, in ms.

        Those of `protected` do not count for the broker's rate.
        """
        own = self._throttle_ms(
            listener, self._limits.listeners[listener].max_connection_creation_rate
        )
        if listener == self._protected:
            return own
        return max(own, self._throttle_ms(_ALL, self._limits.max_connection_creation_rate))

    def _throttle_ms(self, whose: str | None, rate: int) -> int:
        if rate == NO_RATE_LIMIT:
            self._meters.pop(whose, None)
            return 0
        meter = self._meters.setdefault(whose, RateMeter(self._windows))
        now_ms = self._now_ms()
        meter.record(1, now_ms)
        return meter.throttle_ms(rate, now_ms)
