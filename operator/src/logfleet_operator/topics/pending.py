"""Which Topics of a Cluster are due: some that changed, or all. PURE.

Only a pass over all finds absences, conflicts and drift. A pass over a few carries out a person's
change at once, even among thousands.
"""

from typing import Final

FEW: Final = 32
"""Up to this many changed Topics are reconciled one by one; more need a pass over all."""


class Pending:
    """all_at: when all are due, in seconds of the caller's clock; None if they are not."""

    def __init__(self) -> None:
        self.all_at: float | None = None
        self._changed: set[str] = set()

    def change(self, name: str) -> None:
        """Report a change of this Topic."""
        self._changed.add(name)

    def all_due(self, at: float) -> None:
        """Make all Topics due at that time, or earlier if they are already."""
        self.all_at = at if self.all_at is None else min(at, self.all_at)

    def take(self, now: float) -> frozenset[str] | None:
        """The names of the few Topics that are due, None for all.

        They are no longer due afterwards.
        """
        changed, self._changed = frozenset(self._changed), set()
        is_due = self.all_at is not None and self.all_at <= now
        if changed and len(changed) <= FEW and not is_due:
            return changed
        self.all_at = None
        return None
