"""Keeps the coordinators of followed partitions decoded for a quick takeover.

A follower applies only what is committed: this is never truncated but by an unclean election, after
which it reads the log again. At an election the leader takes over what has been read and reads the
rest. Reading is done in slices with pauses in between: it takes at most a fifth of the loop, as
nothing waits for it.
"""

import asyncio
from collections.abc import Callable, Iterator
from typing import Any, Final, Generic, TypeVar

import structlog

from logfleet.coordinators.coordinator import Coordinator
from logfleet.io.slices import SLICE_S, Slices
from logfleet.log.partition_log import PartitionLog
from logfleet.node.coordinators.kind import CoordinatorKind
from logfleet.node.coordinators.loader import CoordinatorLoader, ReadInThread
from logfleet.node.partitions.leader_partition import LeaderPartition
from logfleet.node.partitions.replica import FollowerPartition
from logfleet.records.errors import RecordsError
from logfleet.replication.waiters import COMMITTED, Waiter
from logfleet.wire.errors import MalformedMessage

R = TypeVar("R")
C = TypeVar("C", bound=Coordinator[Any])

log = structlog.get_logger(__name__)

ROUND_S: Final = 0.1
"""Pause between two checks for new commits: one read then takes many of them."""
REST_S: Final = 4 * SLICE_S
"""Pause after each slice of reading."""

Key = tuple[bytes, int]


class _Standby(Waiter, Generic[R, C]):
    """One partition; a waiter of its present follower role.

    is_due: it may have something to read. is_over: the leader has taken it over, or it was dropped.
    """

    __slots__ = ("_wake", "is_due", "is_over", "partition", "state")

    def __init__(self, state: CoordinatorLoader[R, C], wake: asyncio.Event) -> None:
        self.state = state
        self.partition: FollowerPartition | None = None
        self.is_due = self.is_over = False
        self._wake = wake

    def follow(self, partition: FollowerPartition) -> None:
        self.partition = partition
        partition.add_waiter(self, COMMITTED)
        self.committed(0)

    def committed(self, size: int) -> None:  # noqa: ARG002  see Waiter
        self.is_due = True
        self._wake.set()

    def role_ended(self) -> None:
        """The state stays: this broker may lead next, or follow another."""
        self.partition = None


class StandbyCoordinators(Generic[R, C]):
    """The states of all partitions of one internal topic that this broker follows.

    Call `followed` with each partition that the broker starts to follow, `take` with each that it
    starts to lead. is_hosted: whether there is a replica of a partition, by topic id and index.
    """

    def __init__(
        self,
        kind: CoordinatorKind[R, C],
        *,
        run_in_thread: ReadInThread,
        is_hosted: Callable[[bytes, int], bool],
    ) -> None:
        self._kind = kind
        self._run_in_thread = run_in_thread
        self._is_hosted = is_hosted
        self._standby: dict[Key, _Standby[R, C]] = {}
        self._wake = asyncio.Event()
        self._slices = Slices(REST_S)

    def states(self) -> Iterator[CoordinatorLoader[R, C]]:
        """Iterate over the states of all followed partitions."""
        return (standby.state for standby in self._standby.values())

    def followed(self, partition: FollowerPartition) -> None:
        """Keep its state from now on, if it is a partition of the topic."""
        if partition.topic != self._kind.topic:
            return
        key = (partition.topic_id, partition.index)
        standby = self._standby.get(key)
        if standby is None or standby.state.log is not partition.log:
            standby = _Standby(CoordinatorLoader(self._kind, partition.log), self._wake)
            self._drop(key)
            self._standby[key] = standby
        standby.follow(partition)

    def truncated(self, partition_log: PartitionLog, end_offset: int) -> None:
        """The log was truncated to this offset: read again what was read beyond it."""
        for standby in self._standby.values():
            if standby.state.log is partition_log:
                standby.state.truncated(end_offset)
                standby.committed(0)

    def take(self, partition: LeaderPartition) -> CoordinatorLoader[R, C] | None:
        """Hand over the state of a partition that this broker leads now."""
        standby = self._standby.get((partition.topic_id, partition.index))
        self._drop((partition.topic_id, partition.index))
        return standby.state if standby is not None and standby.state.log is partition.log else None

    def _drop(self, key: Key) -> None:
        standby = self._standby.pop(key, None)
        if standby is not None:
            standby.is_over = True

    async def run(self) -> None:
        """Read on as records are committed, until cancelled."""
        while True:
            await self._wake.wait()
            self._wake.clear()
            for key, standby in list(self._standby.items()):
                if not self._is_hosted(*key):
                    self._drop(key)
                elif standby.is_due:
                    await self._read(key, standby)
            await asyncio.sleep(ROUND_S)

    async def _read(self, key: Key, standby: _Standby[R, C]) -> None:
        """Read on. A log that cannot be read is dropped: its next leader reports the reason."""
        standby.is_due = False
        try:
            await standby.state.read_on(
                lambda: standby.partition.high_watermark if standby.partition is not None else 0,
                is_over=lambda: standby.is_over,
                run_in_thread=self._run_in_thread,
                pause_if_due=self._slices.pause_if_due,
            )
        except (OSError, RecordsError, MalformedMessage) as error:
            event = self._kind.events("not_followed")
            log.warning(event, partition=key[1], reason=str(error))
            if self._standby.get(key) is standby:
                self._drop(key)
