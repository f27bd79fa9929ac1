"""Keeps the groups of followed partitions of `__consumer_offsets` decoded, so that a new leader has little left to read.

A follower applies what is committed and no more: that is never cut off but by an unclean election, after which it reads the log again. At an
election the leader takes over what has been read and reads the rest. Reading is done in slices with pauses in between: it takes a fifth
of the loop at most, as nobody waits for it.
"""

import asyncio
from collections.abc import Callable, Iterator
from typing import Final

import structlog

from logfleet.groups.config import GroupConfig
from logfleet.groups.partition import OFFSETS_TOPIC
from logfleet.io.slices import SLICE_S, Slices
from logfleet.node.groups.group_log import GroupLog, ReadInThread
from logfleet.node.partitions.leader_partition import LeaderPartition
from logfleet.node.partitions.replica import FollowerPartition
from logfleet.records.errors import RecordsError
from logfleet.storage.partition_log import PartitionLog
from logfleet.wire.errors import MalformedMessage

log = structlog.get_logger(__name__)

ROUND_S: Final = 0.1
"""Between two looks at what has been committed: one read then takes many commits."""
REST_S: Final = 4 * SLICE_S
"""After each slice of reading."""

Key = tuple[bytes, int]


class _Warm:
    """One partition, as a waiter at whoever of its followers is there. is_due: it may have something to read. is_over: it is read by others, or not at all."""

    __slots__ = ("_wake", "is_due", "is_over", "partition", "state")

    def __init__(self, state: GroupLog, wake: asyncio.Event) -> None:
        self.state = state
        self.partition: FollowerPartition | None = None
        self.is_due = self.is_over = False
        self._wake = wake

    def follow(self, partition: FollowerPartition) -> None:
        self.partition = partition
        partition.wait(self)
        self.committed(0)

    def committed(self, size: int) -> None:  # noqa: ARG002  see Waiter
        self.is_due = True
        self._wake.set()

    appended = committed

    def log_start_moved(self) -> None:
        """What was read stays: compaction and retention take no state back."""

    def leadership_lost(self) -> None:
        """What was read stays: this broker may lead next, or follow another."""
        self.partition = None


class StandbyCoordinators:
    """`followed` is to be called with each partition that the broker begins to follow, `take` with each that it begins to lead.

    is_hosted: whether there is a replica of a partition, by topic id and index.
    """

    def __init__(
        self,
        config: GroupConfig,
        *,
        run_in_thread: ReadInThread,
        is_hosted: Callable[[bytes, int], bool],
    ) -> None:
        self._config = config
        self._run_in_thread = run_in_thread
        self._is_hosted = is_hosted
        self._warm: dict[Key, _Warm] = {}
        self._wake = asyncio.Event()
        self._slices = Slices(REST_S)

    def states(self) -> Iterator[GroupLog]:
        """What is kept."""
        return (warm.state for warm in self._warm.values())

    def followed(self, partition: FollowerPartition) -> None:
        """Keep its groups from now on, if it has some."""
        if partition.topic != OFFSETS_TOPIC:
            return
        key = (partition.topic_id, partition.index)
        warm = self._warm.get(key)
        if warm is None or warm.state.log is not partition.log:
            warm = _Warm(GroupLog(partition.log, self._config), self._wake)
            self._drop(key)
            self._warm[key] = warm
        warm.follow(partition)

    def truncated(self, partition_log: PartitionLog, end_offset: int) -> None:
        """What was read from this offset on is no longer there."""
        for warm in self._warm.values():
            if warm.state.log is partition_log:
                warm.state.truncated(end_offset)
                warm.committed(0)

    def take(self, partition: LeaderPartition) -> GroupLog | None:
        """What has been read of a partition that this broker leads now; it is the caller's from now on."""
        warm = self._warm.get((partition.topic_id, partition.index))
        self._drop((partition.topic_id, partition.index))
        return warm.state if warm is not None and warm.state.log is partition.log else None

    def _drop(self, key: Key) -> None:
        warm = self._warm.pop(key, None)
        if warm is not None:
            warm.is_over = True

    async def run(self) -> None:
        """Read on as records are committed, until cancelled."""
        while True:
            await self._wake.wait()
            self._wake.clear()
            for key, warm in list(self._warm.items()):
                if not self._is_hosted(*key):
                    self._drop(key)
                elif warm.is_due:
                    await self._read(key, warm)
            await asyncio.sleep(ROUND_S)

    async def _read(self, key: Key, warm: _Warm) -> None:
        """What cannot be read is not kept: the log's next leader says what is the matter with it."""
        warm.is_due = False
        try:
            await warm.state.read_on(
                lambda: warm.partition.high_watermark if warm.partition is not None else 0,
                is_over=lambda: warm.is_over,
                run_in_thread=self._run_in_thread,
                pause_if_due=self._slices.pause_if_due,
            )
        except (OSError, RecordsError, MalformedMessage) as error:
            log.warning("groups_not_followed", partition=key[1], reason=str(error))
            if self._warm.get(key) is warm:
                self._drop(key)
