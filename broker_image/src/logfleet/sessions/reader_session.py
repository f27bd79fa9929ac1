"""A reader's side of a fetch session: what its next request has to name.

KIP-227; Kafka's FetchSessionHandler. A partition is named when it is new or moved, not while the
leader has its current state. A request names at most what both sides process in a few milliseconds,
the rest follows in later ones, so that ten thousand partitions need no request of that size.
"""

from typing import Final

from logfleet.sessions.fetch_session import (
    INITIAL_EPOCH,
    NO_SESSION,
    Key,
    next_epoch,
)

NAMED_MAX: Final = 1_000
"""The most partitions in one request."""


class ReaderSession:
    """id, epoch: of the next request.

    has_more: one request cannot name all that is new to the leader.
    """

    def __init__(self) -> None:
        self.id = NO_SESSION
        self.epoch = INITIAL_EPOCH
        self._is_refused = False
        self._held: set[Key] = set()  # named, and not forgotten since
        self._unnamed: dict[Key, None] = {}
        self._forgotten: dict[Key, None] = {}

    def __bool__(self) -> bool:
        """Whether any partition is wanted; checked before each request, so nothing is counted."""
        return bool(self._held or self._unnamed)

    @property
    def has_more(self) -> bool:
        return bool(self._unnamed) and not self._is_refused

    def want(self, key: Key) -> None:
        """Name the partition in the next request: it is new, or to be read from elsewhere."""
        self._unnamed[key] = None
        self._forgotten.pop(key, None)

    def unwant(self, key: Key) -> None:
        """Stop reading the partition."""
        self._unnamed.pop(key, None)
        if key in self._held:
            self._held.discard(key)
            self._forgotten[key] = None

    def take(self) -> tuple[list[Key], list[Key]]:
        """The partitions that the next request names, and those it removes; they count as sent."""
        named = list(self._unnamed)[:NAMED_MAX]
        for key in named:
            del self._unnamed[key]
        self._held.update(named)
        forgotten = list(self._forgotten)
        self._forgotten.clear()
        return named, forgotten

    def take_only(self) -> Key | None:
        """The one partition that the next request names, if that is its only change.

        None, and nothing has changed, if there are more or no changes, or no session to continue.
        """
        if len(self._unnamed) != 1 or self._forgotten or self.id == NO_SESSION:
            return None
        key, _ = self._unnamed.popitem()
        self._held.add(key)
        return key

    def accept(self, session_id: int) -> None:
        """Accept the leader's session; NO_SESSION: it has no room, and each request names all."""
        self._is_refused = session_id == NO_SESSION
        if self._is_refused:
            self.restart()
            return
        self.id = session_id
        self.epoch = next_epoch(self.epoch)

    def restart(self) -> None:
        """Start a new session: first the partitions that were not named, then those that were."""
        self.id, self.epoch = NO_SESSION, INITIAL_EPOCH
        for key in self._held:
            self._unnamed.setdefault(key)
        self._held.clear()
        self._forgotten.clear()
