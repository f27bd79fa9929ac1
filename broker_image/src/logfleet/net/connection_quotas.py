"""Who may connect: the limits on a broker's connections, counted over all its listeners (Kafka: ConnectionQuotas).

What a limit does is Kafka's: an address that has too many is refused, whoever else comes has to wait until there is room, or
until the rate of new connections allows it. The listener between brokers, where it is not the only one, waits for its own limits
alone; what it admits beyond max.connections is made up for by closing the least recently used connections of the others.
"""

import asyncio
from collections import Counter
from collections.abc import Callable
from typing import Final

from logfleet.control.connection_limits import ConnectionLimits
from logfleet.control.quota_rates import RateMeter, Windows
from logfleet.io.descriptors import NO_LIMIT

NO_RATE_LIMIT: Final = 2**31 - 1
_ALL = None


class ConnectionQuotas:
    """now_ms: a clock that never goes back. protected: name of the listener between brokers, None if it is the only one.

    possible_max: connections that there are file descriptors for. make_room: called with a number of connections to close where more
    are open than allowed; never those of `protected`.
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
        """Connections open, those that are about to be closed included."""
        return self._by_listener.total()

    def update(self, limits: ConnectionLimits) -> None:
        """New limits hold from now on, also for those who wait and for what is open."""
        self._limits = limits
        self._wake()
        self._close_excess()

    async def until_admitted(self, listener: str) -> None:
        """Return when one more connection may come in by that listener; it counts for the rate from the call on."""
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
        """Whether there are descriptors for one more connection; between brokers there are, others make room for it."""
        return listener == self._protected or self.total < self._possible_max

    def enter(self, listener: str, address: str) -> int | None:
        """Count a connection in; None, or the limit of its address if that has as many already: then nothing is counted."""
        limit = self._limits.by_address.get(address, self._limits.max_connections_per_ip)
        if self._by_address[address] >= limit:
            self._forget(address)
            return limit
        self._by_address[address] += 1
        self._by_listener[listener] += 1
        self._close_excess()
        return None

    def leave(self, listener: str, address: str) -> None:
        """Count a connection out that `enter` counted in."""
        self._by_address[address] -= 1
        self._forget(address)
        self._by_listener[listener] -= 1
        self._wake()

    def _forget(self, address: str) -> None:
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
        """For how long the rates ask a new connection to wait, in ms; connections of `protected` are not the broker's."""
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
