"""A fetch session as its reader keeps it (KIP-227; Kafka's FetchSessionHandler): what the next request has to say.

A partition is named when it is new or moved; one that the leader knows as it is goes without saying. As much is named in one request
as both sides do in a few milliseconds, the rest in those after it, so that ten thousand partitions need no request of their size.
"""

from typing import Final

from logfleet.sessions.fetch_session import (
    INITIAL_EPOCH,
    NO_SESSION,
    Key,
    next_epoch,
)

NAMED_MAX: Final = 1_000
"""Partitions in one request."""


class ReaderSession:
    """id, epoch: of the next request. has_more: it can not name all that the leader does not know yet."""

    def __init__(self) -> None:
        self.id = NO_SESSION
        self.epoch = INITIAL_EPOCH
        self._is_refused = False
        self._held: set[Key] = set()  # named, and not forgotten since
        self._unnamed: dict[Key, None] = {}
        self._forgotten: dict[Key, None] = {}

    def __bool__(self) -> bool:
        """Whether any partition is wanted: asked before each request, so nothing is counted."""
        return bool(self._held or self._unnamed)

    @property
    def has_more(self) -> bool:
        return bool(self._unnamed) and not self._is_refused

    def want(self, key: Key) -> None:
        """Name the partition in the next request: it is new, or is to be read from elsewhere."""
        self._unnamed[key] = None
        self._forgotten.pop(key, None)

    def unwant(self, key: Key) -> None:
        """Read the partition no more."""
        self._unnamed.pop(key, None)
        if key in self._held:
            self._held.discard(key)
            self._forgotten[key] = None

    def take(self) -> tuple[list[Key], list[Key]]:
        """What the next request names, and what it forgets; the leader is taken to know it from then on."""
        named = list(self._unnamed)[:NAMED_MAX]
        for key in named:
            del self._unnamed[key]
        self._held.update(named)
        forgotten = list(self._forgotten)
        self._forgotten.clear()
        return named, forgotten

    def take_only(self) -> Key | None:
        """The one partition that the next request names, if that is all it has to say; the leader is taken to know it from then on.

        None, and nothing has changed, if there is more or less to say, or no session to go on with.
        """
        if len(self._unnamed) != 1 or self._forgotten or self.id == NO_SESSION:
            return None
        key, _ = self._unnamed.popitem()
        self._held.add(key)
        return key

    def answered(self, session_id: int) -> None:
        """The leader has a session, or went on with it; NO_SESSION: it has no room for one, and is told everything each time."""
        self._is_refused = session_id == NO_SESSION
        if self._is_refused:
            self.begin_anew()
            return
        self.id = session_id
        self.epoch = next_epoch(self.epoch)

    def begin_anew(self) -> None:
        """The leader knows nothing: what it was not told comes first, then what it was."""
        self.id, self.epoch = NO_SESSION, INITIAL_EPOCH
        for key in self._held:
            self._unnamed.setdefault(key)
        self._held.clear()
        self._forgotten.clear()
