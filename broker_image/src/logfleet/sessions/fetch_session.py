"""One fetch session: a reader's partitions and their last sent state.

KIP-227; Kafka's FetchSession and FetchContext.

A reader names only the partitions that changed on its side and gets only those that changed on
ours. Kafka finds the latter by reading every partition of the session. Here a partition is due for
reading only if it may have changed: the reader moved it, the last response had records or an error,
or the partition itself reported a change since. All others would give the same as last time, which
is left out of the response anyway, so a request costs in proportion to the changes, not to the
session's size.
"""

from collections.abc import Iterable, Mapping
from typing import Any, Final, Protocol, TypeAlias

from logfleet.replication.waiters import (
    COMMITTED,
    LOG_START,
    NEXT_COMMITTED,
    STABLE,
    WRITTEN,
    Waiter,
)
from logfleet.wire.messages import FetchRequest, FetchResponse

Key: TypeAlias = tuple[Any, int]
"""A partition: its topic's id (bytes), or name (str) for clients without ids; and its index."""

NO_SESSION = 0
INITIAL_EPOCH = 0
"""Fetches everything, and opens a new session."""
FINAL_EPOCH = -1
"""Fetches everything, without a session; a session that is named ends."""
EPOCH_MAX = 2**31 - 1
NOT_SENT = -1
_CONSUMERS: Final = COMMITTED | LOG_START
_FOLLOWERS: Final = _CONSUMERS | WRITTEN
_STABLE_READERS: Final = STABLE | NEXT_COMMITTED | LOG_START


def next_epoch(epoch: int) -> int:
    """The epoch of the next request after this positive epoch; 0 and -1 have special meanings."""
    return 1 if epoch == EPOCH_MAX else epoch + 1


class WatchedLog(Protocol):
    """Notifies the sessions that read a partition. It is node.partitions.LeaderPartition."""

    @property
    def log_end_offset(self) -> int: ...
    def add_waiter(self, waiter: Waiter, interests: int, /) -> None: ...
    def remove_waiter(self, waiter: Waiter, /) -> None: ...


class ParkedFetch(Protocol):
    """A parked request of the session."""

    def appended(self, size: int, /) -> None: ...
    def end_soon(self) -> None: ...
    def end(self) -> None: ...


class SessionPartition(Waiter):
    """One partition of a session.

    wanted: as in the newest request that named it. high_watermark, log_start_offset: as last sent,
    NOT_SENT after an error. place: in the session's order, smallest first. source: what it listens
    to. Compares by identity.
    """

    __slots__ = (
        "_session",
        "high_watermark",
        "key",
        "log_start_offset",
        "place",
        "source",
        "wanted",
    )

    def __init__(
        self, session: "FetchSession", key: Key, wanted: FetchRequest.FetchPartition, place: int
    ) -> None:
        self._session = session
        self.key = key
        self.wanted = wanted
        self.place = place
        self.high_watermark = NOT_SENT
        self.log_start_offset = NOT_SENT
        self.source: WatchedLog | None = None

    def listen(self, source: WatchedLog | None) -> None:
        """Be notified by `source` from now on, and by no other."""
        if source is self.source or self._session.is_closed:
            return
        if self.source is not None:
            self.source.remove_waiter(self)
        self.source = source
        if source is not None:
            source.add_waiter(self, self._session.interests)

    def was_read(self) -> None:
        """Nothing is due any more."""
        if self._session.reads_stable and self.source is not None:
            self.source.add_waiter(self, NEXT_COMMITTED)

    def committed(self, size: int) -> None:
        """Records of `size` bytes were committed: a consumer waits for them.

        A follower has them already and needs the new high watermark; a reader of stable records
        gets it with the next answer.
        """
        self._session.mark_due(self)
        if self._session.reads_stable:
            return
        if not self._session.privileged:
            self._more(size)
        elif self._session.parked is not None:
            self._session.parked.end_soon()

    def written(self, size: int) -> None:
        """Records of `size` bytes were written: a follower waits for them."""
        self._session.mark_due(self)
        self._more(size)

    def stable(self, size: int) -> None:
        """Records of `size` bytes became stable: a reader of those waits for them."""
        self._session.mark_due(self)
        self._more(size)

    def _more(self, size: int) -> None:
        parked = self._session.parked
        if parked is not None:
            parked.appended(size)

    def log_start_moved(self) -> None:
        self._session.mark_due(self)

    def role_ended(self) -> None:
        self._session.mark_due(self)
        self._session.end_parked()


class FetchSession:
    """A session, from the response that names it.

    by_id: its topics have ids. privileged: a follower's; a consumer's session never evicts it.
    reads_stable: a consumer's that reads only committed transactions. interests: what its
    partitions listen to. epoch: of the next request. parked: the parked request, if any.
    cached_size: its partitions as of its last use, for the cache.
    """

    def __init__(
        self,
        session_id: int,
        *,
        by_id: bool,
        privileged: bool,
        reads_stable: bool = False,
        now_ms: int,
    ) -> None:
        self.id = session_id
        self.by_id = by_id
        self.privileged = privileged
        self.reads_stable = reads_stable
        consumers = _STABLE_READERS if reads_stable else _CONSUMERS
        self.interests = _FOLLOWERS if privileged else consumers
        self.created_ms = now_ms
        self.last_used_ms = now_ms
        self.epoch = next_epoch(INITIAL_EPOCH)
        self.cached_size = 0
        self.partitions: dict[Key, SessionPartition] = {}
        self.parked: ParkedFetch | None = None
        self.is_closed = False
        self._due: set[SessionPartition] = set()
        self._places = 0

    def update(
        self, wanted: Mapping[Key, FetchRequest.FetchPartition], forgotten: Iterable[Key]
    ) -> None:
        """Apply what a request adds, moves and removes.

        New partitions come last; one that is moved keeps its place.
        """
        for key, asked in wanted.items():
            partition = self.partitions.get(key)
            if partition is None:
                self.add(key, asked)
            else:
                partition.wanted = asked
                self._due.add(partition)
        for key in forgotten:
            partition = self.partitions.pop(key, None)
            if partition is not None:
                partition.listen(None)
                self._due.discard(partition)

    def add(self, key: Key, asked: FetchRequest.FetchPartition) -> SessionPartition:
        """Add a partition that the session does not have yet, last in order and due."""
        self._places += 1
        partition = SessionPartition(self, key, asked, self._places)
        self.partitions[key] = partition
        self._due.add(partition)
        return partition

    def mark_due(self, partition: SessionPartition) -> None:
        """Mark the partition: it may have changed."""
        self._due.add(partition)

    def has_no_other_due(self, partition: SessionPartition) -> bool:
        """Whether no other partition may have changed."""
        due = self._due
        return not due or (len(due) == 1 and partition in due)

    def due(self) -> list[SessionPartition]:
        """The partitions to read for the next response, in the session's order."""
        return sorted(self._due, key=_place)

    def store_sent(
        self,
        partition: SessionPartition,
        row: FetchResponse.PartitionData,
        *,
        is_first_response: bool = False,
    ) -> bool:
        """Store what was just read for the response; False to leave it out: the reader has it.

        The last sent state is compared as in Kafka's CachedPartition.maybeUpdateResponseData; after
        an error it counts as not sent. A partition that gave records moves to the end of the order,
        except in the session's first response.
        """
        has_records = bool(row.records)
        moved = (
            partition.high_watermark != row.high_watermark
            or partition.log_start_offset != row.log_start_offset
        )
        special = (
            bool(row.error_code)
            or row.diverging_epoch is not None
            or row.preferred_read_replica >= 0
        )
        partition.high_watermark = NOT_SENT if row.error_code else row.high_watermark
        partition.log_start_offset = row.log_start_offset
        if has_records:
            if not is_first_response:
                self._places += 1
                partition.place = self._places
        elif not special and partition.wanted.fetch_offset >= self._end_of(partition, row):
            self._due.discard(partition)
            partition.was_read()
        return has_records or moved or special

    def _end_of(self, partition: SessionPartition, row: FetchResponse.PartitionData) -> int:
        """The offset from which the reader has read everything.

        Fewer records may have been sent because a response was full.
        """
        if self.privileged and partition.source is not None:
            return partition.source.log_end_offset
        return row.last_stable_offset if self.reads_stable else row.high_watermark

    def end_parked(self) -> None:
        """Let the parked request be answered now."""
        if self.parked is not None:
            self.parked.end()

    def close(self) -> None:
        """Stop listening; a parked request is answered with what there is."""
        for partition in self.partitions.values():
            partition.listen(None)
        self.is_closed = True
        self.end_parked()


def _place(partition: SessionPartition) -> int:
    return partition.place
