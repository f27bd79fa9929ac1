"""How long a writer pauses before it repeats a store write."""

from typing import Final

REPEATED_S: Final = (0.05, 2.0)
"""First and longest pause before a write without a definite reply is repeated."""
REFUSED_S: Final = (1.0, 60.0)
"""First and longest pause before a refused write is repeated: an operator may fix the cause."""


class GrowingPause:
    """Each pause is twice as long as the one before. first_and_longest_s: its limits."""

    __slots__ = ("_longest_s", "_next_s")

    def __init__(self, first_and_longest_s: tuple[float, float]) -> None:
        self._next_s, self._longest_s = first_and_longest_s

    def next_s(self) -> float:
        """The pause before the next attempt, in seconds."""
        pause_s = self._next_s
        self._next_s = min(2 * pause_s, self._longest_s)
        return pause_s
