"""The sessions of one broker: a bounded number, and the rules of eviction.

KIP-227; Kafka's FetchManager, FetchSessionCacheShard. Kafka splits its cache into shards, each with
its part of the slots, because its threads contend for them; here there is one.
"""

from collections.abc import Callable, Iterable, Mapping

from logfleet.sessions.fetch_session import (
    FINAL_EPOCH,
    INITIAL_EPOCH,
    NO_SESSION,
    FetchSession,
    Key,
    next_epoch,
)
from logfleet.wire.errors import ErrorCode
from logfleet.wire.messages import FetchRequest

EVICTION_MS = 120_000
"""Milliseconds after which an unused session may be evicted for any other.

A session younger than this is not evicted for one of its own kind (Kafka:
MIN_INCREMENTAL_FETCH_SESSION_EVICTION_MS).
"""
PARTITIONS_MAX = 500_000
"""Partitions of all sessions together (about 400 bytes each).

No session is created or grows beyond it. Kafka bounds only the number of sessions.
"""


class SessionCache:
    """slots: most sessions (max.incremental.fetch.session.cache.slots); 0 for none.

    new_id: returns a random positive int32. evictions: how many sessions were evicted. partitions:
    of all sessions, as each was last used.
    """

    def __init__(
        self, slots: int, new_id: Callable[[], int], *, partitions_max: int = PARTITIONS_MAX
    ) -> None:
        self._slots = slots
        self._new_id = new_id
        self._partitions_max = partitions_max
        self._sessions: dict[int, FetchSession] = {}  # least recently used first
        self.partitions = 0
        self.evictions = 0

    def __len__(self) -> int:
        return len(self._sessions)

    def begin(
        self,
        request: FetchRequest,
        wanted: Mapping[Key, FetchRequest.FetchPartition],
        forgotten: Iterable[Key],
        *,
        by_id: bool,
        now_ms: int,
    ) -> FetchSession | ErrorCode | None:
        """The session that a request continues; None: respond about all of `wanted`; or an error.

        A continued session has applied the request's changes, and its epoch is the next request's.
        A session that loses its last partition ends.
        """
        if request.session_epoch in {INITIAL_EPOCH, FINAL_EPOCH}:
            if request.session_id != NO_SESSION:
                self.remove(request.session_id)
            return None
        session = self._sessions.get(request.session_id)
        if session is None:
            return ErrorCode.FETCH_SESSION_ID_NOT_FOUND
        if session.epoch != request.session_epoch:
            return ErrorCode.INVALID_FETCH_SESSION_EPOCH
        if session.by_id != by_id:
            return ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR
        session.update(wanted, forgotten)
        if not session.partitions:
            self.remove(session.id)
            return None
        if self.partitions + len(session.partitions) - session.cached_size > self._partitions_max:
            self.remove(session.id)
            return ErrorCode.FETCH_SESSION_ID_NOT_FOUND
        self.continue_session(session, now_ms)
        return session

    def find(self, session_id: int) -> FetchSession | None:
        """The session with this id, if it is cached."""
        return self._sessions.get(session_id)

    def continue_session(self, session: FetchSession, now_ms: int) -> None:
        """Continue the session: its epoch becomes the next request's, and a parked request ends."""
        self._touch(session, now_ms)
        session.epoch = next_epoch(session.epoch)
        session.end_parked()

    def create(
        self,
        wanted: Mapping[Key, FetchRequest.FetchPartition],
        *,
        by_id: bool,
        privileged: bool,
        reads_stable: bool = False,
        now_ms: int,
    ) -> FetchSession | None:
        """A new session of these partitions; None if there is no room and none can be made."""
        size = len(wanted)
        if self.partitions + size > self._partitions_max:
            return None
        if len(self._sessions) >= self._slots:
            evicted = self._find_evictable(size, now_ms, privileged=privileged)
            if evicted is None:
                return None
            self.remove(evicted.id)
            self.evictions += 1
        session_id = self._new_id()
        while session_id in self._sessions or session_id == NO_SESSION:
            session_id = self._new_id()
        session = FetchSession(
            session_id,
            by_id=by_id,
            privileged=privileged,
            reads_stable=reads_stable,
            now_ms=now_ms,
        )
        for key, asked in wanted.items():
            session.add(key, asked)
        self._sessions[session_id] = session
        self._touch(session, now_ms)
        return session

    def remove(self, session_id: int) -> None:
        """End a session, if there is one with this id."""
        session = self._sessions.pop(session_id, None)
        if session is not None:
            self.partitions -= session.cached_size
            session.close()

    def _touch(self, session: FetchSession, now_ms: int) -> None:
        """Mark it as used now, and count its current partitions."""
        session.last_used_ms = now_ms
        self._sessions[session.id] = self._sessions.pop(session.id)
        self.partitions += len(session.partitions) - session.cached_size
        session.cached_size = len(session.partitions)

    def _find_evictable(self, size: int, now_ms: int, *, privileged: bool) -> FetchSession | None:
        """The session that a new one of `size` partitions replaces; None if it replaces none.

        That is the least recently used one if it was not used for EVICTION_MS. Else a consumer's
        replaces the smallest consumer's that is old and has fewer partitions; a follower's replaces
        the smallest consumer's, or if there are none the smallest follower's that is old and has
        fewer partitions. Source: FetchSessionCacheShard.tryEvict.
        """
        sessions = self._sessions.values()
        least_recent = next(iter(sessions), None)
        if least_recent is None or now_ms - least_recent.last_used_ms > EVICTION_MS:
            return least_recent
        replaceable = [each for each in sessions if not each.privileged] if privileged else []
        if not replaceable:
            smaller = [each for each in sessions if each.cached_size < size]
            replaceable = [
                each for each in smaller if each.privileged == privileged and _was_old(each)
            ]
        return min(replaceable, key=lambda each: (each.cached_size, each.id), default=None)


def _was_old(session: FetchSession) -> bool:
    """Whether it was old when it was last used; only then Kafka counts it among the old ones."""
    return session.last_used_ms - session.created_ms > EVICTION_MS
