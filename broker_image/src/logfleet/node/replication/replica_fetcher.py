"""Copies from one leader: one connection and one fetch session for all partitions that it leads.

Records go from the answer's frame into the log as they are. Each row of an answer is compared with
the log as it is then, and applies only while the partition still has that leader in that epoch: a
former leader can neither add to a log nor truncate it. Kafka's ReplicaFetcherThread.
"""

import asyncio
import contextlib
from collections.abc import Coroutine
from typing import Any, Final, cast

import structlog

from logfleet.client.connection import Connection
from logfleet.client.errors import ClientError
from logfleet.config.throttle_keys import Side
from logfleet.io import clock
from logfleet.io.slices import Slices
from logfleet.log.replicated import UnexpectedAppendOffset
from logfleet.node.partitions.replica import FollowerPartition
from logfleet.node.replication.fetch_requests import FetchRequests
from logfleet.node.replication.followed import Followed
from logfleet.node.replication.follower_host import FollowerHost
from logfleet.node.replication.leader_range import leader_range
from logfleet.records.batch import iterate_headers
from logfleet.records.errors import RecordsError
from logfleet.replication import follower
from logfleet.replication.follower import Action, FollowerStep
from logfleet.sessions.fetch_session import Key
from logfleet.sessions.reader_session import ReaderSession
from logfleet.telemetry.decisions import Decision, Kind
from logfleet.types import LeaderEpoch
from logfleet.wire.errors import ErrorCode
from logfleet.wire.messages import FetchResponse

log = structlog.get_logger(__name__)

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

Row = FetchResponse.PartitionData
LeaderAt = tuple[int, str, int]
"""Broker epoch, host and port of a leader."""


class ReplicaFetcher:
    """`run` copies from `leader_id` until it is cancelled. Partitions come and go at any time."""

    def __init__(self, host: FollowerHost, leader_id: int) -> None:
        self.leader_id = leader_id
        self._host = host
        self._config = host.config
        self._followed: dict[Key, Followed] = {}
        self._session = ReaderSession()
        self._paused: dict[Key, float] = {}  # when it is fetched again, in the loop's time
        self._wanted = asyncio.Event()
        self._slices = Slices()
        self._truncations: set[asyncio.Task[None]] = set()
        self._pause_s = RECONNECT_S_MIN
        self._connected_to: LeaderAt | None = None
        # ends the connection, or the attempt to connect
        self._attempt: asyncio.Timeout | None = None

    def __len__(self) -> int:
        return len(self._followed)

    def add(self, partition: FollowerPartition) -> None:
        """Fetch the partition from now on."""
        key = (partition.topic_id, partition.index)
        self._followed[key] = Followed(partition, self._config.replica_fetch_max_bytes)
        self._end_old_connection()
        self._want(key)

    def remove(self, partition: FollowerPartition) -> None:
        """Stop fetching the partition; records of it that are on their way are dropped."""
        key = (partition.topic_id, partition.index)
        followed = self._followed.get(key)
        if followed is not None and followed.partition is partition:
            del self._followed[key]
            self._paused.pop(key, None)
            self._session.unwant(key)

    async def run(self) -> None:
        try:
            while True:
                if not self._followed:
                    self._wanted.clear()
                await self._wanted.wait()
                await self._connect_and_follow()
                self._session.restart()
                await asyncio.sleep(self._pause_s)
                self._pause_s = min(2 * self._pause_s, RECONNECT_S_MAX)
        finally:
            for task in self._truncations:
                task.cancel()

    async def _connect_and_follow(self) -> None:
        """Return once the connection has ended, or could not be made."""
        self._connected_to = self._leader_at()
        if self._connected_to is None:
            return  # the leader is not registered: try again after the pause
        _, host, port = self._connected_to
        name = f"broker-{self._host.node_id}-fetcher-0"
        try:
            async with asyncio.timeout(None) as self._attempt:
                connection = await Connection.connect(host, port, name)
                with contextlib.closing(connection):
                    await self._follow(connection)
        except TimeoutError:
            log.info("leader_registered_again", leader=self.leader_id)
        except ClientError as error:
            level = log.warning if self._pause_s == RECONNECT_S_MIN else log.debug
            level("leader_not_reached", leader=self.leader_id, reason=str(error))
        finally:
            self._attempt = None

    def _leader_at(self) -> LeaderAt | None:
        """The leader's address by its present registration; None if it has none."""
        leader = self._host.broker(self.leader_id)
        if leader is None:
            return None
        address = leader.listener(self._config.inter_broker_listener_name)
        return None if address is None else (leader.epoch, address.host, address.port)

    def _end_old_connection(self) -> None:
        """Connect again if the leader has registered again since this connection was made.

        A machine that vanishes closes no connection: a request would wait for
        replica.socket.timeout.ms. What a broker leads in a new registration it leads in a new
        leader epoch (KIP-903), so it is enough to compare whenever a partition is added.
        """
        if self._attempt is not None and self._leader_at() not in {None, self._connected_to}:
            self._attempt.reschedule(asyncio.get_running_loop().time())
            self._attempt = None
            self._pause_s = RECONNECT_S_MIN

    async def _follow(self, connection: Connection) -> None:
        """Fetch until the connection breaks. Raises ClientError."""
        requests = FetchRequests(self._host, self._session, self._followed, connection)
        while True:
            wait_ms = self._resume()
            if not self._session:
                await self._until_wanted(wait_ms)
                continue
            answer = await requests.send(wait_ms)
            self._slices.begin()
            self._pause_s = RECONNECT_S_MIN
            if answer.error_code:
                await self._session_failed(ErrorCode(answer.error_code))
                continue
            self._session.accept(answer.session_id)
            for topic in answer.responses:
                for row in topic.partitions:
                    await self._apply((topic.topic_id, row.partition_index), row, connection)

    # --- requests

    def _want(self, key: Key) -> None:
        self._session.want(key)
        self._wanted.set()

    async def _until_wanted(self, wait_ms: int) -> None:
        """Wait until there is something to fetch, or until a pause may be over."""
        self._wanted.clear()
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._wanted.wait(), wait_ms / 1000 if self._paused else None)

    def _resume(self) -> int:
        """Want again what has paused for long enough.

        Returns how long the next request may wait for records: at most until the next pause ends.
        """
        wait_ms = self._config.replica_fetch_wait_max_ms
        if not self._paused:
            return wait_ms
        now = asyncio.get_running_loop().time()
        for key, until in list(self._paused.items()):
            left_ms = int((until - now) * 1000) + 1
            if until <= now:
                left_ms = self._throttle_ms(self._followed[key].partition)
                if not left_ms:
                    del self._paused[key]
                    self._want(key)
                    continue
                self._paused[key] = now + left_ms / 1000
            wait_ms = min(wait_ms, left_ms)
        return wait_ms

    # --- answers

    async def _session_failed(self, error: ErrorCode) -> None:
        self._session.restart()
        if error not in _SESSION_LOST:
            log.warning("fetch_refused", leader=self.leader_id, error=error.name)
            await asyncio.sleep(self._config.replica_fetch_backoff_ms / 1000)

    async def _apply(self, key: Key, row: Row, connection: Connection) -> None:
        """Apply a row, if the partition still is what the request named. Raises ClientError."""
        await self._slices.pause_if_due()
        followed = self._followed.get(key)
        if followed is None or followed.asked is None:
            return
        asked, epochs = followed.asked, followed.partition.log.epochs
        decision = follower.decide(asked, followed.next(), row, epochs)
        if decision.action is Action.ASK_RANGE:
            decision = await self._handle_out_of_range(followed, connection)
            if self._followed.get(key) is not followed:
                return
            if decision.action is Action.BACK_OFF and asked.is_ahead_of_leader:
                self._pause_ahead(key, followed, asked.last_fetched_epoch)
                return
        match decision.action:
            case Action.APPEND:
                self._append(key, followed, row)
            case Action.TRUNCATE | Action.RESET:
                self._stop(key, followed)
                self._start(self._truncate(key, followed, decision))
            case Action.FETCH_ON:
                self._want(key)
            case Action.WAIT:
                self._stop(key, followed)
            case _:
                self._pause(key, followed)

    def _append(self, key: Key, followed: Followed, row: Row) -> None:
        """Apply a row's records, high watermark and log start offset."""
        partition = followed.partition
        partition_log = partition.log
        end_before, lag_before, size = partition_log.log_end_offset, partition.lag, 0
        records: Any = row.records
        if records:
            try:
                size = partition_log.append_as_follower(
                    records, partition.leader_epoch, clock.now_ms()
                )
            except UnexpectedAppendOffset as error:
                self._unexpected(key, followed, row, error)
                return
            except (OSError, RecordsError) as error:
                self._failed(key, followed, error)
                return
        if size:
            partition.appended(size)
            followed.appended()
            self._host.replicated.bytes_in += size
        partition.lag = max(0, row.high_watermark - partition_log.log_end_offset)
        if size and self._host.throttle.is_limited(Side.FOLLOWER):
            copied = partition_log.log_end_offset - end_before
            nearer = copied if lag_before < 0 else lag_before - partition.lag
            self._host.throttle.record(
                Side.FOLLOWER,
                partition.topic,
                partition.index,
                size,
                caught_up=min(1.0, max(0.0, nearer / max(copied, 1))),
            )
        if size:
            self._want_once_written(key, followed)
        elif records:
            self._nothing_appended(key, followed, row)
        high_watermark = follower.high_watermark(
            partition.high_watermark, row.high_watermark, partition_log.written_end_offset
        )
        if high_watermark != partition.high_watermark:
            partition.advance_high_watermark(high_watermark)
        log_start_offset = partition_log.log_start_offset
        if row.log_start_offset > log_start_offset:
            partition_log.follow_log_start(row.log_start_offset, partition.high_watermark)
            if partition_log.log_start_offset != log_start_offset and followed.asked is not None:
                self._want(key)

    def _unexpected(
        self, key: Key, followed: Followed, row: Row, error: UnexpectedAppendOffset
    ) -> None:
        """The leader's log starts within a batch, beyond the end of this log.

        Let this log start at the batch's first offset, with that very batch: asked again from
        there, the leader would only answer that its log starts later
        (Partition.appendRecordsToFollowerOrFutureReplica).
        """
        partition_log = followed.partition.log
        end_offset = partition_log.log_end_offset
        is_empty = partition_log.log_start_offset == end_offset
        if (
            is_empty or end_offset <= row.log_start_offset
        ) and error.first_offset < end_offset <= error.last_offset:
            self._stop(key, followed)
            begin = FollowerStep(Action.RESET, error.first_offset)
            self._start(self._truncate(key, followed, begin, row))
        else:
            self._failed(key, followed, error)

    def _want_once_written(self, key: Key, followed: Followed) -> None:
        """Fetch it again, once what it took is written: the fetch reports what this broker has.

        A throttled partition pauses.
        """
        throttle_ms = self._throttle_ms(followed.partition)
        if throttle_ms:
            self._stop(key, followed)
            self._paused[key] = asyncio.get_running_loop().time() + throttle_ms / 1000
            return
        partition_log = followed.partition.log
        if partition_log.written_end_offset == partition_log.log_end_offset:
            self._want(key)
            return
        self._stop(key, followed)

        def written() -> None:
            if self._followed.get(key) is followed:
                self._want(key)

        partition_log.when_written(written)

    def _throttle_ms(self, partition: FollowerPartition) -> int:
        """Ms to pause the partition, which is needed if it lags and the throttled rate is used up.

        At most THROTTLED_MS_MAX. Source: ReplicaFetcherThread.shouldFollowerThrottle.
        """
        throttle = self._host.throttle
        # -1 means that the leader has not answered yet: this follower may be in sync, and must not
        # delay a new leader that waits for it
        if partition.lag <= 0:
            return 0
        wait_ms = throttle.wait_ms(Side.FOLLOWER, partition.topic, partition.index)
        return min(wait_ms, THROTTLED_MS_MAX)

    def _stop(self, key: Key, followed: Followed) -> None:
        """Do not fetch the partition until `_want`."""
        followed.asked = None
        self._session.unwant(key)

    def _pause(self, key: Key, followed: Followed, s_max: float | None = None) -> None:
        """Fetch it again after a pause, the next time after a longer one.

        s_max: seconds of the longest pause, None for replica.fetch.backoff.ms. The usual reason is
        a leader that has not seen yet that it leads.
        """
        self._stop(key, followed)
        if s_max is None:
            s_max = self._config.replica_fetch_backoff_ms / 1000
        pause_s = followed.take_pause(s_max)
        self._paused[key] = asyncio.get_running_loop().time() + pause_s

    def _nothing_appended(self, key: Key, followed: Followed, row: Row) -> None:
        """The log took none of the records: fetched again at once, they would come again."""
        first = next(iterate_headers(cast("memoryview", row.records)), None)
        if first is not None and first[1].leader_epoch > followed.partition.leader_epoch:
            self._pause_ahead(key, followed, first[1].leader_epoch)
        else:
            self._pause(key, followed)

    def _pause_ahead(self, key: Key, followed: Followed, log_epoch: LeaderEpoch) -> None:
        """Pause a partition whose records have a leader epoch above its leader's; log it once.

        It is unknown then whose records are right. The metadata store is older than the logs.
        """
        partition = followed.partition
        if not followed.is_ahead:
            followed.is_ahead = True
            log.error(
                "leader_epoch_is_behind_logs",
                topic=partition.topic,
                partition=partition.index,
                leader=self.leader_id,
                leader_epoch=partition.leader_epoch,
                log_epoch=log_epoch,
                note="the metadata store was restored and its leader epochs were not raised; this "
                "partition is not copied until they are: see step 4 of docs/restoring-metadata.md",
            )
        self._pause(key, followed, AHEAD_S_MAX)

    def _failed(self, key: Key, followed: Followed, error: Exception) -> None:
        """The log did not take the records: this partition pauses, the others go on."""
        partition = followed.partition
        if isinstance(error, OSError):
            self._host.storage_failed(partition, error)
        log.error(
            "not_replicated", topic=partition.topic, partition=partition.index, reason=str(error)
        )
        if self._followed.get(key) is followed:  # else its log directory has failed
            self._pause(key, followed)

    # --- truncation

    def _start(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._truncations.add(task)
        task.add_done_callback(self._truncations.discard)

    async def _truncate(
        self, key: Key, followed: Followed, decision: FollowerStep, row: Row | None = None
    ) -> None:
        """Truncate the log, append the row if there is one, and fetch on.

        Other partitions are fetched meanwhile.
        """
        partition, offset = followed.partition, decision.offset
        end_offset, is_reset = partition.log.log_end_offset, decision.action is Action.RESET
        log.info(
            "log_cut",
            topic=partition.topic,
            partition=partition.index,
            leader=self.leader_id,
            leader_epoch=partition.leader_epoch,
            end_offset=end_offset,
            to=offset,
            is_reset=is_reset,
        )
        truncater = self._host.truncater
        work = truncater.reset_to if is_reset else truncater.truncate
        is_done = await work(partition.log, offset, lambda: self._followed.get(key) is followed)
        if is_done and partition.log.log_end_offset != end_offset:
            self._record_truncation(partition, end_offset, is_reset=is_reset)
        if self._followed.get(key) is not followed:
            return
        if not is_done:
            self._pause(key, followed)
            return
        if row is None:
            self._want(key)
        else:
            self._append(key, followed, row)

    def _record_truncation(
        self, partition: FollowerPartition, before: int, *, is_reset: bool
    ) -> None:
        leader = f"broker {self.leader_id}, which leads in epoch {partition.leader_epoch}"
        if is_reset:
            cause = (
                f"the log of {leader}, does not have the end of this one, which starts again empty"
            )
        else:
            cause = f"{leader}, does not have what was behind it"
        facts = {
            "end_offset": [before, partition.log.log_end_offset],
            "leader": self.leader_id,
            "leader_epoch": partition.leader_epoch,
        }
        place = partition.topic, partition.index, self._host.node_id
        self._host.decisions.record(Decision(Kind.TRUNCATION, cause, *place, facts))

    async def _handle_out_of_range(
        self, followed: Followed, connection: Connection
    ) -> FollowerStep:
        """Decide about a log whose end is outside the leader's log. Raises ClientError."""
        partition, timeout_ms = followed.partition, self._config.replica_socket_timeout_ms
        found = await leader_range(connection, partition, self._host.node_id, timeout_ms)
        if found is None:
            return FollowerStep(Action.BACK_OFF)
        return follower.out_of_range(partition.log.log_end_offset, *found)
