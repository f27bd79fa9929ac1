"""A timer wheel: one timer of the loop serves many short waits (parked fetches and produces).

A timer per request in the loop's heap costs more than the request's other bookkeeping, and most are
cancelled; here adding and cancelling are a set's add and discard. Callbacks come up to TICK_S late,
never early. A slot is removed with its last timer, so that long waits that end early leave nothing
behind.
"""

import asyncio
from collections.abc import Callable

TICK_S = 0.01


class Timer:
    """A scheduled callback; `cancel` removes it. Compares by identity."""

    __slots__ = ("_slots", "_tick", "callback")

    def __init__(
        self, callback: Callable[[], None], slots: "dict[int, set[Timer]]", tick: int
    ) -> None:
        self.callback = callback
        self._slots = slots
        self._tick = tick

    def cancel(self) -> None:
        """Remove the callback; nothing happens if it was called already."""
        slot = self._slots.get(self._tick)
        if slot is not None:
            slot.discard(self)
            if not slot:
                del self._slots[self._tick]


class Alarm:
    """One timer of the loop for many deadlines, set for the earliest of them.

    It stays set when deadlines are dropped: when it expires, `ring` gets the loop's time and
    returns the next deadline, None for none. So a deadline that is not reached costs only a
    comparison.
    """

    __slots__ = ("_handle", "_ring")

    def __init__(self, ring: Callable[[float], float | None]) -> None:
        self._ring = ring
        self._handle: asyncio.TimerHandle | None = None

    def set(self, deadline_s: float) -> None:
        """Let the loop call `ring` at this time of its clock, or earlier if the timer is set so."""
        if self._handle is not None:
            if self._handle.when() <= deadline_s:
                return
            self._handle.cancel()
        self._handle = asyncio.get_running_loop().call_at(deadline_s, self._due)

    def cancel(self) -> None:
        """Cancel the timer."""
        if self._handle is not None:
            self._handle.cancel()
            self._handle = None

    def _due(self) -> None:
        self._handle = None
        deadline_s = self._ring(asyncio.get_running_loop().time())
        if deadline_s is not None:
            self.set(deadline_s)


class TimerWheel:
    """Calls back after a delay. Ticks only while callbacks are scheduled."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._slots: dict[int, set[Timer]] = {}
        self._next_tick = 0  # the first tick that has not been served
        self._ticking: asyncio.TimerHandle | None = None

    def add(self, delay_s: float, callback: Callable[[], None]) -> Timer:
        """Call back once, delay_s from now or up to TICK_S later."""
        now = self._loop.time()
        tick = int((now + delay_s) / TICK_S) + 1
        if self._ticking is None:
            self._next_tick = int(now / TICK_S)
            self._ticking = self._loop.call_later(TICK_S, self._tick)
        slot = self._slots.get(tick)
        if slot is None:
            slot = self._slots[tick] = set()
        timer = Timer(callback, self._slots, tick)
        slot.add(timer)
        return timer

    def stop(self) -> None:
        """Remove all callbacks."""
        if self._ticking is not None:
            self._ticking.cancel()
            self._ticking = None
        self._slots.clear()

    def _tick(self) -> None:
        now_tick = int(self._loop.time() / TICK_S)
        due = range(self._next_tick, now_tick + 1)
        self._next_tick = now_tick + 1
        # If the loop stood still, it has missed more ticks than there are slots in use.
        ticks = due if len(due) <= len(self._slots) else sorted(t for t in self._slots if t in due)
        for tick in ticks:
            slot = self._slots.get(tick)
            while slot:
                slot.pop().callback()  # a callback may cancel other timers of the slot
            self._slots.pop(tick, None)
        self._ticking = self._loop.call_later(TICK_S, self._tick) if self._slots else None
