"""Copies all partitions that one broker leads: events in, effects out, without a connection.

The shell owns the connection and the fetch session. It reports each event by a method, with the
time in seconds where that counts, and carries out the effect that the method returns:

- `Apply`: append the records of the row to the log, if it has any, and report `appended`,
  `nothing_appended`, `overlapped` or `not_appended` before anything else. Then follow the leader's
  high watermark and log start, and report `log_start_moved`.
- `Truncate`, `Restart`: do that durably unless the fetch has ended by then, and report `truncated`.
- `WhenWritten`: report `written` once all that the log has is in the files.
- `AskRange`: ask the leader where its log starts and ends, and report `range_received`. If the
  connection ends instead, `disconnected` is enough.
- `ReportAhead`: report it to the operator of the fleet.

Requests name what the session has to name, each partition by `PartitionFetch.ask`. A fetch belongs
to one replica in one leader epoch: what a former leader sends finds no fetch that asked for it, so
it can neither add to a log nor truncate it.
Source: AbstractFetcherThread, ReplicaFetcherThread.
"""

from collections.abc import Callable
from typing import Final, Generic, Protocol

import msgspec

from logfleet.replication import follower
from logfleet.replication.follower import Action, FollowerStep
from logfleet.replication.partition_fetch import (
    APPENDING,
    ASKING_RANGE,
    DUE,
    ENDED,
    FENCED,
    FETCHING,
    PAUSED,
    TRUNCATING,
    WRITING,
    FetchState,
    FollowedReplica,
    Key,
    PartitionFetch,
    R,
    Row,
)
from logfleet.types import LeaderEpoch
from logfleet.wire.errors import ErrorCode

RECONNECT_S_MIN: Final = 0.05
"""Pause before a leader is tried again (reconnect.backoff.ms).

It doubles up to RECONNECT_S_MAX (reconnect.backoff.max.ms).
"""
RECONNECT_S_MAX: Final = 1.0
THROTTLED_MS_MAX: Final = 1_000
"""After this time a throttled partition is checked again: its rate may have changed."""
AHEAD_S_MAX: Final = 30.0
"""The longest pause of a partition whose log has leader epochs above its leader's.

A new leader epoch ends it, and the partition is fetched at once.
"""

_SESSION_LOST: Final = {
    ErrorCode.FETCH_SESSION_ID_NOT_FOUND,
    ErrorCode.INVALID_FETCH_SESSION_EPOCH,
    ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR,
}

LeaderAt = tuple[int, str, int]
"""Broker epoch, host and port of a leader."""


class Session(Protocol):
    """The partitions that requests name (`sessions.reader_session`)."""

    def want(self, key: Key) -> None:
        """Name the partition in the next request."""

    def unwant(self, key: Key) -> None:
        """Name it no more; the leader forgets it."""

    def restart(self) -> None:
        """Start a new session, in which all wanted partitions are named."""


class Apply(msgspec.Struct, Generic[R], frozen=True):
    fetch: PartitionFetch[R]
    row: Row


class Truncate(msgspec.Struct, Generic[R], frozen=True):
    """Cut off everything from the batch on that holds `offset`."""

    fetch: PartitionFetch[R]
    offset: int


class Restart(msgspec.Struct, Generic[R], frozen=True):
    """Empty the log and let it start at `offset`."""

    fetch: PartitionFetch[R]
    offset: int


class WhenWritten(msgspec.Struct, Generic[R], frozen=True):
    fetch: PartitionFetch[R]


class AskRange(msgspec.Struct, Generic[R], frozen=True):
    fetch: PartitionFetch[R]


class ReportAhead(msgspec.Struct, Generic[R], frozen=True):
    """Records have the leader epoch `log_epoch`, above their leader's.

    It is unknown then whose records are right. The metadata store is older than the logs.
    """

    fetch: PartitionFetch[R]
    log_epoch: LeaderEpoch


Effect = Apply[R] | Truncate[R] | Restart[R] | WhenWritten[R] | AskRange[R] | ReportAhead[R]


class Fetcher(Generic[R]):
    """partitions: what is copied.

    throttle_ms: ms for which the quota of a replica is used up. backoff_s: the longest pause of a
    partition that was refused (replica.fetch.backoff.ms).
    """

    def __init__(
        self, session: Session, *, throttle_ms: Callable[[R], int], backoff_s: float
    ) -> None:
        self.partitions: dict[Key, PartitionFetch[R]] = {}
        self._session = session
        self._replica_throttle_ms = throttle_ms
        self._backoff_s = backoff_s
        self._paused: dict[Key, PartitionFetch[R]] = {}
        self._connected_to: LeaderAt | None = None
        self._reconnect_s = RECONNECT_S_MIN

    # --- partitions come and go

    def assigned(self, replica: R) -> Effect[R] | None:
        """The broker follows the replica's leader from now on, in its leader epoch."""
        fetch = PartitionFetch(replica)
        former = self.partitions.get(fetch.key)
        if former is not None:
            self._end(former)
        self.partitions[fetch.key] = fetch
        if not _is_written(replica):
            self._leave(fetch, WRITING)
            return WhenWritten(fetch)
        self._session.want(fetch.key)
        return None

    def removed(self, replica: R) -> None:
        """The broker does not follow it any more; nothing if it was assigned again since."""
        fetch = self.partitions.get((replica.topic_id, replica.index))
        if fetch is not None and fetch.replica is replica:
            self._end(fetch)

    def _end(self, fetch: PartitionFetch[R]) -> None:
        self._leave(fetch, ENDED)
        self._paused.pop(fetch.key, None)
        del self.partitions[fetch.key]

    # --- connection

    @property
    def is_reconnecting(self) -> bool:
        """Whether the attempt before this one failed, too."""
        return self._reconnect_s > RECONNECT_S_MIN

    def connecting(self, leader_at: LeaderAt | None) -> None:
        """An attempt to connect begins. leader_at: None if the leader is not registered."""
        self._connected_to = leader_at

    def must_reconnect(self, leader_at: LeaderAt | None) -> bool:
        """Whether the leader has registered again since this connection was begun.

        The shell ends it then and reports `disconnected`. A machine that vanishes closes no
        connection: a request would wait for replica.socket.timeout.ms. What a broker leads in a new
        registration it leads in a new leader epoch (KIP-903), so it is enough to check whenever a
        partition is assigned.
        """
        if leader_at is None or leader_at == self._connected_to:
            return False
        self._reconnect_s = RECONNECT_S_MIN
        return True

    def disconnected(self) -> float:
        """The connection has ended, or could not be made.

        Returns seconds until the next attempt.
        """
        self._session.restart()
        for fetch in self.partitions.values():
            if fetch.state is FETCHING or fetch.state is ASKING_RANGE:
                self._fetch_on(fetch)
        pause_s = self._reconnect_s
        self._reconnect_s = min(2 * pause_s, RECONNECT_S_MAX)
        return pause_s

    def responded(self) -> None:
        """The leader has answered a request."""
        self._reconnect_s = RECONNECT_S_MIN

    def refused(self, error: ErrorCode) -> float:
        """The response refuses the whole request. Returns seconds until the next one.

        0 if only the session was lost.
        """
        self._session.restart()
        return 0.0 if error in _SESSION_LOST else self._backoff_s

    # --- responses

    def received(self, key: Key, row: Row, now_s: float) -> Effect[R] | None:
        """A response has a row about the partition."""
        fetch = self.partitions.get(key)
        if fetch is None or fetch.asked is None:
            return None
        step = follower.decide(fetch.asked, fetch.next(), row, fetch.replica.log.epochs)
        match step.action:
            case Action.APPEND:
                if row.records:
                    fetch.enter(APPENDING)
                return Apply(fetch, row)
            case Action.TRUNCATE | Action.RESET:
                return self._truncate(fetch, step)
            case Action.ASK_RANGE:
                self._leave(fetch, ASKING_RANGE)
                return AskRange(fetch)
            case Action.FETCH_ON:
                self._fetch_on(fetch)
            case Action.WAIT:
                self._leave(fetch, FENCED)
            case Action.BACK_OFF:
                self._pause(fetch, now_s)
        return None

    def appended(self, fetch: PartitionFetch[R], now_s: float) -> Effect[R] | None:
        """The log took records of the row; the replica's lag and the quota count them already."""
        fetch.succeeded()
        if _is_written(fetch.replica):
            self._fetch_unless_throttled(fetch, now_s)
            return None
        self._leave(fetch, WRITING)
        return WhenWritten(fetch)

    def nothing_appended(
        self, fetch: PartitionFetch[R], first_epoch: LeaderEpoch | None, now_s: float
    ) -> Effect[R] | None:
        """The log took none of the records: fetched again at once, they would come again.

        first_epoch: the leader epoch of the first batch, None if it was cut off.
        """
        if first_epoch is not None and first_epoch > fetch.replica.leader_epoch:
            return self._pause_ahead(fetch, first_epoch, now_s)
        self._pause(fetch, now_s)
        return None

    def overlapped(
        self, fetch: PartitionFetch[R], row: Row, first_offset: int, last_offset: int
    ) -> Effect[R] | None:
        """The records begin below the end of the log. None: report `not_appended`, too.

        If the leader's log starts within a batch, beyond the end of this one, this log starts at
        the batch's first offset, with that very batch: asked again from there, the leader would
        only answer that its log starts later (Partition.appendRecordsToFollowerOrFutureReplica).
        first_offset, last_offset: of the batch or batches, inclusive.
        """
        partition_log = fetch.replica.log
        end_offset = partition_log.log_end_offset
        is_empty = partition_log.log_start_offset == end_offset
        is_behind = is_empty or end_offset <= row.log_start_offset
        if not is_behind or not first_offset < end_offset <= last_offset:
            return None
        fetch.row = row
        return self._truncate(fetch, FollowerStep(Action.RESET, first_offset))

    def not_appended(self, fetch: PartitionFetch[R], now_s: float) -> None:
        """The log or its disk refused the records: this partition pauses, the others go on."""
        if not fetch.is_ended:
            self._pause(fetch, now_s)

    def log_start_moved(self, fetch: PartitionFetch[R]) -> None:
        """The log followed its leader's start: the next request reports that."""
        if fetch.state is FETCHING:
            self._session.want(fetch.key)

    def range_received(
        self, fetch: PartitionFetch[R], found: tuple[int, int] | None, now_s: float
    ) -> Effect[R] | None:
        """found: start and end of the leader's log; None if the leader answered an error."""
        if fetch.is_ended:
            return None
        at = fetch.next()
        if found is not None:
            step = follower.out_of_range(at.offset, *found)
            if step.action is not Action.BACK_OFF:
                return self._truncate(fetch, step)
        if at.is_ahead_of_leader:
            return self._pause_ahead(fetch, at.last_fetched_epoch, now_s)
        self._pause(fetch, now_s)
        return None

    def truncated(
        self, fetch: PartitionFetch[R], now_s: float, *, is_done: bool
    ) -> Effect[R] | None:
        """is_done: False if the disk failed."""
        if fetch.is_ended:
            return None
        row, fetch.row = fetch.row, None
        if not is_done:
            self._pause(fetch, now_s)
        elif row is not None:
            fetch.enter(APPENDING)
            return Apply(fetch, row)
        else:
            self._fetch_on(fetch)
        return None

    def written(self, fetch: PartitionFetch[R], now_s: float) -> None:
        """All that the log has is in the files."""
        if not fetch.is_ended:
            self._fetch_unless_throttled(fetch, now_s)

    # --- time

    def resume(self, now_s: float) -> float | None:
        """Fetch again what has paused for long enough; call it before each request.

        Returns seconds until the next pause may end, None if nothing is paused.
        """
        if not self._paused:
            return None
        left_s = []
        for fetch in list(self._paused.values()):
            if fetch.until_s <= now_s:
                throttle_ms = self._throttle_ms(fetch.replica)
                if not throttle_ms:
                    del self._paused[fetch.key]
                    self._fetch_on(fetch)
                    continue
                self._pause_until(fetch, now_s + throttle_ms / 1000)
            left_s.append(fetch.until_s - now_s)
        return min(left_s, default=None)

    def _throttle_ms(self, replica: R) -> int:
        """Ms to pause, which is needed if the replica lags and its rate is used up.

        At most THROTTLED_MS_MAX. Source: ReplicaFetcherThread.shouldFollowerThrottle.
        """
        # -1 means that the leader has not answered yet: this follower may be in sync, and must not
        # delay a new leader that waits for it
        if replica.lag <= 0:
            return 0
        return min(self._replica_throttle_ms(replica), THROTTLED_MS_MAX)

    # --- transitions

    def _fetch_unless_throttled(self, fetch: PartitionFetch[R], now_s: float) -> None:
        throttle_ms = self._throttle_ms(fetch.replica)
        if throttle_ms:
            self._pause_until(fetch, now_s + throttle_ms / 1000)
        else:
            self._fetch_on(fetch)

    def _fetch_on(self, fetch: PartitionFetch[R]) -> None:
        fetch.enter(DUE)
        self._session.want(fetch.key)

    def _leave(self, fetch: PartitionFetch[R], state: FetchState) -> None:
        """Enter a state in which requests do not name it."""
        fetch.enter(state)
        self._session.unwant(fetch.key)

    def _truncate(self, fetch: PartitionFetch[R], step: FollowerStep) -> Effect[R]:
        self._leave(fetch, TRUNCATING)
        is_reset = step.action is Action.RESET
        return Restart(fetch, step.offset) if is_reset else Truncate(fetch, step.offset)

    def _pause_until(self, fetch: PartitionFetch[R], until_s: float) -> None:
        self._leave(fetch, PAUSED)
        fetch.until_s = until_s
        self._paused[fetch.key] = fetch

    def _pause(self, fetch: PartitionFetch[R], now_s: float, s_max: float | None = None) -> None:
        """Fetch it again after a pause, the next time after a longer one.

        s_max: seconds of the longest pause, None for replica.fetch.backoff.ms. The usual reason is
        a leader that has not seen yet that it leads.
        """
        pause_s = fetch.take_pause(self._backoff_s if s_max is None else s_max)
        self._pause_until(fetch, now_s + pause_s)

    def _pause_ahead(
        self, fetch: PartitionFetch[R], log_epoch: LeaderEpoch, now_s: float
    ) -> Effect[R] | None:
        """Pause for long, and report it the first time."""
        self._pause(fetch, now_s, AHEAD_S_MAX)
        if fetch.is_ahead:
            return None
        fetch.is_ahead = True
        return ReportAhead(fetch, log_epoch)


def _is_written(replica: FollowedReplica) -> bool:
    """Whether all that the log has is in the files, so that a fetch may report it to the leader."""
    return replica.log.written_end_offset == replica.log.log_end_offset
