"""A clock that tests move."""

from logfleet.io.clock import SYSTEM_CLOCK


class ManualClock:
    """It stands still until a test moves it. It starts at the time of this machine."""

    def __init__(self) -> None:
        self._monotonic_ms = SYSTEM_CLOCK.monotonic_ms()
        self._now_ms = SYSTEM_CLOCK.now_ms()

    def move(self, ms: int) -> None:
        self._monotonic_ms += ms
        self._now_ms += ms

    def now_ms(self) -> int:
        return self._now_ms

    def monotonic_ms(self) -> int:
        return self._monotonic_ms

    def boot_s(self) -> float:
        return self._monotonic_ms / 1000
