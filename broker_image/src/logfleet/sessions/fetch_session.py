"""One fetch session (KIP-227; Kafka's FetchSession and FetchContext): what a reader asked for and was told last.

A reader names only the partitions that changed on its side and is told only of those that changed on ours. Kafka finds the latter by
reading every partition of the session. Here a partition of a session is due for reading only if it may have something to say: the
reader moved it, what was told last was records or an error, or the partition itself reported a change since. All others would give
the same as last time, which is left out of the answer anyway, so a request costs what changed and not what is watched.
"""

from collections.abc import Iterable, Mapping
from typing import Any, Protocol, TypeAlias

from logfleet.wire.messages import FetchRequest, FetchResponse

Key: TypeAlias = tuple[Any, int]
"""A partition: its topic's id (bytes) or, in sessions of clients that do not know ids, name (str), and its index."""

NO_SESSION = 0
INITIAL_EPOCH = 0
"""Asks for everything, and for a new session."""
FINAL_EPOCH = -1
"""Asks for everything, without a session; a session that is named ends."""
EPOCH_MAX = 2**31 - 1
NOT_TOLD = -1


def next_epoch(epoch: int) -> int:
    """The epoch of the request after one of this positive epoch; 0 and -1 have meanings of their own."""
    return 1 if epoch == EPOCH_MAX else epoch + 1


class Source(Protocol):
    """What tells the partition of a session that it changed (`logfleet.node.partitions.leader_partition.Partition`)."""

    @property
    def log_end_offset(self) -> int: ...
    def add_waiter(self, waiter: "SessionPartition", /) -> None: ...
    def add_append_waiter(self, waiter: "SessionPartition", /) -> None: ...
    def remove_waiter(self, waiter: "SessionPartition", /) -> None: ...


class Parked(Protocol):
    """A request of the session that waits for more."""

    def appended(self, size: int, /) -> None: ...
    def end_soon(self) -> None: ...
    def end(self) -> None: ...


class SessionPartition:
    """One partition of a session.

    wanted: as in the newest request that named it. high_watermark, log_start_offset: as told last, NOT_TOLD after an error. place: in the
    session's order, smallest first. source: what it listens to. Compares by identity.
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
        self.high_watermark = NOT_TOLD
        self.log_start_offset = NOT_TOLD
        self.source: Source | None = None

    def listen(self, source: Source | None) -> None:
        """Be told by `source` from now on, and by no other."""
        if source is self.source or self._session.is_closed:
            return
        if self.source is not None:
            self.source.remove_waiter(self)
        self.source = source
        if source is not None:
            source.add_waiter(self)
            if self._session.privileged:
                source.add_append_waiter(self)

    def committed(self, size: int) -> None:
        """Records of `size` bytes were committed: what a consumer waits for. A follower has read them, and is to hear that they are."""
        self._session.is_due(self)
        if not self._session.privileged:
            self._more(size)
        elif self._session.parked is not None:
            self._session.parked.end_soon()

    def appended(self, size: int) -> None:
        """Records of `size` bytes were written: what a follower waits for."""
        self._session.is_due(self)
        self._more(size)

    def _more(self, size: int) -> None:
        parked = self._session.parked
        if parked is not None:
            parked.appended(size)

    def log_start_moved(self) -> None:
        self._session.is_due(self)

    def leadership_lost(self) -> None:
        self._session.is_due(self)
        self._session.end_parked()


class FetchSession:
    """A session from the answer that names it on.

    by_id: whether its topics are known by id. privileged: of a follower; a consumer's session never displaces it. epoch: that of the next
    request. parked: the request that waits, if one does. cached_size, is_old: as the cache saw it when it was used last.
    """

    def __init__(self, session_id: int, *, by_id: bool, privileged: bool, now_ms: int) -> None:
        self.id = session_id
        self.by_id = by_id
        self.privileged = privileged
        self.created_ms = now_ms
        self.last_used_ms = now_ms
        self.epoch = next_epoch(INITIAL_EPOCH)
        self.cached_size = 0
        self.is_old = False
        self.partitions: dict[Key, SessionPartition] = {}
        self.parked: Parked | None = None
        self.is_closed = False
        self._due: set[SessionPartition] = set()
        self._places = 0

    def update(
        self, wanted: Mapping[Key, FetchRequest.FetchPartition], forgotten: Iterable[Key]
    ) -> None:
        """Take what a request adds, moves and no longer wants. New partitions come last; one that is moved keeps its place."""
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
        """A partition that the session does not hold yet, at the end of the order and due."""
        self._places += 1
        partition = SessionPartition(self, key, asked, self._places)
        self.partitions[key] = partition
        self._due.add(partition)
        return partition

    def is_due(self, partition: SessionPartition) -> None:
        """The partition may have something to say."""
        self._due.add(partition)

    def is_no_other_due(self, partition: SessionPartition) -> bool:
        """Whether nothing but the partition may have something to say."""
        due = self._due
        return not due or (len(due) == 1 and partition in due)

    def due(self) -> list[SessionPartition]:
        """Those to read for the next answer, in the session's order."""
        return sorted(self._due, key=_place)

    def tell(
        self,
        partition: SessionPartition,
        row: FetchResponse.PartitionData,
        *,
        is_first: bool = False,
    ) -> bool:
        """Note what was read, just now, for the answer; False if that is what the reader knows already, to be left out.

        What was told last is compared as Kafka's CachedPartition.maybeUpdateResponseData does; after an error nothing counts as told. A
        partition that gave records moves to the end of the order, except in the session's first answer.
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
        partition.high_watermark = NOT_TOLD if row.error_code else row.high_watermark
        partition.log_start_offset = row.log_start_offset
        if has_records:
            if not is_first:
                self._places += 1
                partition.place = self._places
        elif not special and partition.wanted.fetch_offset >= self._end_of(partition, row):
            self._due.discard(partition)
        return has_records or moved or special

    def _end_of(self, partition: SessionPartition, row: FetchResponse.PartitionData) -> int:
        """Where the reader has read everything: it may have got nothing as an answer was full."""
        if self.privileged and partition.source is not None:
            return partition.source.log_end_offset
        return row.high_watermark

    def end_parked(self) -> None:
        """Let the request that waits be answered now."""
        if self.parked is not None:
            self.parked.end()

    def close(self) -> None:
        """Listen to nothing any more; a request that waits is answered with what there is."""
        for partition in self.partitions.values():
            partition.listen(None)
        self.is_closed = True
        self.end_parked()


def _place(partition: SessionPartition) -> int:
    return partition.place
