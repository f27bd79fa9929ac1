"""Copies from one leader: one connection and one fetch session for all partitions that it leads.

`replication.fetcher` decides; this owns the connection and the session, and `ReplicaWriter` the
logs. Kafka's ReplicaFetcherThread.
"""

import asyncio
import contextlib

import structlog

from logfleet.client.connection import Connection
from logfleet.client.errors import ClientError
from logfleet.config.throttle_keys import Side
from logfleet.io.slices import Slices
from logfleet.node.partitions.replica import FollowerPartition
from logfleet.node.replication.fetch_requests import FetchRequests
from logfleet.node.replication.follower_host import FollowerHost
from logfleet.node.replication.leader_range import leader_range
from logfleet.node.replication.replica_writer import ReplicaWriter
from logfleet.replication.fetcher import AskRange, Effect, Fetcher, LeaderAt
from logfleet.replication.partition_fetch import PartitionFetch
from logfleet.sessions.reader_session import ReaderSession
from logfleet.wire.errors import ErrorCode

log = structlog.get_logger(__name__)


class ReplicaFetcher:
    """`run` copies from `leader_id` until it is cancelled. Partitions come and go at any time."""

    def __init__(self, host: FollowerHost, leader_id: int) -> None:
        self.leader_id = leader_id
        self._host = host
        self._config = host.config
        self._session = ReaderSession()
        self._fetcher: Fetcher[FollowerPartition] = Fetcher(
            self._session,
            throttle_ms=lambda each: host.throttle.wait_ms(Side.FOLLOWER, each.topic, each.index),
            backoff_s=host.config.replica_fetch_backoff_ms / 1000,
        )
        self._changed = asyncio.Event()  # there may be something to fetch
        self._writer = ReplicaWriter(host, leader_id, self._fetcher, self._changed.set)
        self._slices = Slices()
        # ends the connection, or the attempt to connect
        self._attempt: asyncio.Timeout | None = None

    def __len__(self) -> int:
        return len(self._fetcher.partitions)

    def add(self, partition: FollowerPartition) -> None:
        """Fetch the partition from now on."""
        effect = self._fetcher.assigned(partition)
        if effect is not None:
            self._writer.carry_out(effect, asyncio.get_running_loop().time())
        if self._attempt is not None and self._fetcher.must_reconnect(self._leader_at()):
            self._attempt.reschedule(asyncio.get_running_loop().time())
            self._attempt = None
        self._changed.set()

    def remove(self, partition: FollowerPartition) -> None:
        """Stop fetching the partition; records of it that are on their way are dropped."""
        self._fetcher.removed(partition)

    async def run(self) -> None:
        try:
            while True:
                while not self._fetcher.partitions:
                    self._changed.clear()
                    await self._changed.wait()
                await self._connect_and_follow()
                await asyncio.sleep(self._fetcher.disconnected())
        finally:
            self._writer.close()

    async def _connect_and_follow(self) -> None:
        """Return once the connection has ended, or could not be made."""
        leader_at = self._leader_at()
        self._fetcher.connecting(leader_at)
        if leader_at is None:
            return  # the leader is not registered: try again after the pause
        _, host, port = leader_at
        name = f"broker-{self._host.node_id}-fetcher-0"
        try:
            async with asyncio.timeout(None) as self._attempt:
                connection = await Connection.connect(host, port, name)
                with contextlib.closing(connection):
                    await self._follow(connection)
        except TimeoutError:
            log.info("leader_registered_again", leader=self.leader_id)
        except ClientError as error:
            level = log.debug if self._fetcher.is_reconnecting else log.warning
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

    async def _follow(self, connection: Connection) -> None:
        """Fetch until the connection breaks. Raises ClientError."""
        fetcher, session = self._fetcher, self._session
        requests = FetchRequests(self._host, session, fetcher.partitions, connection)
        time_s = asyncio.get_running_loop().time
        while True:
            pause_s = fetcher.resume(time_s())
            if not session:
                await self._until_changed(pause_s)
                continue
            wait_ms = self._config.replica_fetch_wait_max_ms
            if pause_s is not None:
                wait_ms = min(wait_ms, int(pause_s * 1000) + 1)
            response = await requests.send(wait_ms)
            self._slices.begin()
            fetcher.responded()
            if response.error_code:
                await self._refused(ErrorCode(response.error_code))
                continue
            session.accept(response.session_id)
            now_s = time_s()
            for topic in response.responses:
                for row in topic.partitions:
                    await self._slices.pause_if_due()
                    key = (topic.topic_id, row.partition_index)
                    effect = fetcher.received(key, row, now_s)
                    if type(effect) is AskRange:
                        effect = await self._ask_range(effect.fetch, connection)
                    if effect is not None:
                        self._writer.carry_out(effect, now_s)

    async def _until_changed(self, pause_s: float | None) -> None:
        """Wait until there is something to fetch, or until a pause may be over."""
        self._changed.clear()
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._changed.wait(), pause_s)

    async def _refused(self, error: ErrorCode) -> None:
        pause_s = self._fetcher.refused(error)
        if pause_s:
            log.warning("fetch_refused", leader=self.leader_id, error=error.name)
            await asyncio.sleep(pause_s)

    async def _ask_range(
        self, fetch: PartitionFetch[FollowerPartition], connection: Connection
    ) -> Effect[FollowerPartition] | None:
        """Ask where the leader's log starts and ends. Raises ClientError."""
        timeout_ms = self._config.replica_socket_timeout_ms
        found = await leader_range(connection, fetch.replica, self._host.node_id, timeout_ms)
        return self._fetcher.range_received(fetch, found, asyncio.get_running_loop().time())
