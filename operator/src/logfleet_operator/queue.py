"""The work queue: keys of objects that may have changed; one task works on a key at a time.

Level-based: an event says only *which* object to check, not what happened to it, so a thousand
events about one object are one entry. A key that is added while a task works on it is worked on
once more afterwards. Failed keys come back after a growing delay. Nothing here waits or reads a
clock: the caller passes `now` (monotonic seconds) and sleeps until `next_due`. The shape is that of
client-go's rate limiting queue (k8s.io/client-go/util/workqueue).
"""

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
    _working: set[Key] = field(default_factory=set)
    _failures: dict[Key, int] = field(default_factory=dict)

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

    def take(self, now: float) -> Key | None:
        """The key that is due longest and that nobody works on; None if there is none.

        The caller must call `done` or `failed` for it.
        """
        key = min(self._waiting(), key=self._due.__getitem__, default=None)
        if key is None or self._due[key] > now:
            return None
        del self._due[key]
        self._working.add(key)
        return key

    def done(self, key: Key) -> None:
        """Report success for `key`."""
        self._working.discard(key)
        self._failures.pop(key, None)

    def failed(self, key: Key, now: float) -> float:
        """Report failure of `key`; it comes back after the returned delay in seconds."""
        self._working.discard(key)
        failures = self._failures.get(key, 0)
        self._failures[key] = failures + 1
        self.retried += 1
        delay = min(BACKOFF_MAX_S, BACKOFF_MIN_S * 2.0 ** min(failures, 16))
        self.add(key, now, after=delay)
        return delay

    def next_due(self) -> float | None:
        """The time when the next key without a worker is due; None if there is none."""
        return min(map(self._due.__getitem__, self._waiting()), default=None)

    def _waiting(self) -> list[Key]:
        """Keys without a task. At most a few keys per Cluster, so a scan is cheap."""
        return [key for key in self._due if key not in self._working]
