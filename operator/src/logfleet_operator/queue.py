"""The work queue: keys of what may have changed, each worked on by one task at a time.

Level-based: an event says only *which* object to look at, never what happened to it, so a thousand
events about one object are one entry. A key that is added while it is worked on is worked on once
more afterwards. Failures come back after a growing delay. Nothing here waits or knows the time of
day: the caller gives `now` (monotonic seconds) and sleeps until `next_due`. The shape is that of
client-go's rate limiting queue (k8s.io/client-go/util/workqueue).
"""

import heapq
from collections.abc import Hashable
from dataclasses import dataclass, field
from typing import Final, Generic, TypeVar

Key = TypeVar("Key", bound=Hashable)

BACKOFF_MIN_S: Final = 0.5
BACKOFF_MAX_S: Final = 60.0


@dataclass(slots=True)
class WorkQueue(Generic[Key]):
    """added, retried: totals for metrics."""

    added: int = 0
    retried: int = 0
    _due: dict[Key, float] = field(default_factory=dict)
    _order: list[tuple[float, int, Key]] = field(default_factory=list)
    _working: set[Key] = field(default_factory=set)
    _failures: dict[Key, int] = field(default_factory=dict)
    _sequence: int = 0

    def __len__(self) -> int:
        return len(self._due)

    @property
    def working(self) -> frozenset[Key]:
        return frozenset(self._working)

    def add(self, key: Key, now: float, *, after: float = 0.0) -> None:
        """Work on `key` at the latest `after` seconds from now; an earlier entry stays."""
        due = now + after
        known = self._due.get(key)
        if known is not None and known <= due:
            return
        self.added += known is None
        self._due[key] = due
        self._sequence += 1
        heapq.heappush(self._order, (due, self._sequence, key))

    def take(self, now: float) -> Key | None:
        """The key that is due longest and that nobody works on; None if there is none.

        The caller must call `done` or `failed` for it.
        """
        blocked = []
        taken = None
        while self._order and self._order[0][0] <= now:
            entry = heapq.heappop(self._order)
            due, _, key = entry
            if self._due.get(key) != due:
                continue  # superseded by an earlier one
            if key in self._working:
                blocked.append(entry)
                continue
            del self._due[key]
            self._working.add(key)
            taken = key
            break
        for entry in blocked:
            heapq.heappush(self._order, entry)
        return taken

    def done(self, key: Key) -> None:
        """`key` was worked on with success."""
        self._working.discard(key)
        self._failures.pop(key, None)

    def failed(self, key: Key, now: float) -> float:
        """`key` failed; it comes back after the delay that is returned, in seconds."""
        self._working.discard(key)
        failures = self._failures.get(key, 0)
        self._failures[key] = failures + 1
        self.retried += 1
        delay = min(BACKOFF_MAX_S, BACKOFF_MIN_S * 2.0 ** min(failures, 16))
        self.add(key, now, after=delay)
        return delay

    def next_due(self) -> float | None:
        """When the next key that nobody works on is due; None if there is none."""
        waiting = [due for key, due in self._due.items() if key not in self._working]
        return min(waiting, default=None)
