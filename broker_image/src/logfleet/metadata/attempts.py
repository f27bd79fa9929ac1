"""Repeating a write of the metadata store until its outcome is definite.

An attempt may fail without a definite outcome. The same write is then sent again, unchanged, after
a pause. If an earlier attempt may have been applied, a failed compare may be due to it: what the
write reads (`logfleet.metadata.store`) or its receipt (`logfleet.metadata.receipts`) shows that.
"""

from typing import Final

from logfleet.metadata.store import StoreRefused, StoreUnavailable, UnknownOutcome

UNANSWERED_MS: Final = (50, 2_000)
"""First and longest pause after an attempt without a definite outcome."""
REFUSED_MS: Final = (1_000, 60_000)
"""First and longest pause after a refused attempt: an operator has to fix the cause."""

Unanswered = UnknownOutcome | StoreUnavailable
"""How an attempt ends without a definite outcome."""


class GrowingPause:
    """Each pause is twice as long as the one before. first_and_longest_ms: its limits."""

    __slots__ = ("_longest_ms", "_next_ms")

    def __init__(self, first_and_longest_ms: tuple[int, int]) -> None:
        self._next_ms, self._longest_ms = first_and_longest_ms

    def next_ms(self) -> int:
        """The pause before the next attempt."""
        pause_ms = self._next_ms
        self._next_ms = min(2 * pause_ms, self._longest_ms)
        return pause_ms


class Attempts:
    """The failed attempts of one write.

    may_be_applied: one of them had an unknown outcome. refusals: how many the store refused.
    """

    __slots__ = ("_refused", "_unanswered", "may_be_applied", "refusals")

    def __init__(self) -> None:
        self.may_be_applied = False
        self.refusals = 0
        self._unanswered = GrowingPause(UNANSWERED_MS)
        self._refused = GrowingPause(REFUSED_MS)

    def failed(self, error: Unanswered | StoreRefused) -> int:
        """Returns the pause before the next attempt in ms, twice as long as the last of its kind.

        After a refusal the pauses of unanswered attempts start again with the first.
        """
        if isinstance(error, StoreRefused):
            self.refusals += 1
            self._unanswered = GrowingPause(UNANSWERED_MS)
            return self._refused.next_ms()
        self.may_be_applied |= isinstance(error, UnknownOutcome)
        return self._unanswered.next_ms()
