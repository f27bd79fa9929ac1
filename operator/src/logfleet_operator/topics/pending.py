"""Which Topics of a Cluster are to be looked at: some that changed, or all. PURE.

A look at all is what everything rests on (absences, conflicts, drift); a look at a few is how a person's change is done at once among thousands.
"""

from typing import Final

FEW: Final = 32
"""Up to so many that changed are looked at by themselves."""


class Pending:
    """all_at: when all are due, seconds of the caller's clock; None if they are not."""

    def __init__(self) -> None:
        self.all_at: float | None = None
        self._changed: set[str] = set()

    def change(self, name: str) -> None:
        """This Topic was changed."""
        self._changed.add(name)

    def all_due(self, at: float) -> None:
        """Look at all then, at the latest."""
        self.all_at = at if self.all_at is None else min(at, self.all_at)

    def take(self, now: float) -> frozenset[str] | None:
        """Names of the few that are to be looked at now; None for all. They are no longer due."""
        changed, self._changed = frozenset(self._changed), set()
        is_due = self.all_at is not None and self.all_at <= now
        if changed and len(changed) <= FEW and not is_due:
            return changed
        self.all_at = None
        return None
