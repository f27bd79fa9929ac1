"""The coordinators of one kind on this broker: a shard for each partition that it leads.

When the broker starts to lead a partition, the runtime reads what it has not read as a follower,
one partition after the other and in slices, and waits until that is committed. One timer serves the
deadlines of all shards.
"""

import asyncio
import contextlib
from collections.abc import Callable, Coroutine, Iterator
from typing import Any, Final, Generic, TypeVar

import structlog

from logfleet.coordinators.coordinator import Coordinator
from logfleet.coordinators.partition import partition_for
from logfleet.io.clock import Clock
from logfleet.io.descriptors import TRY_AGAIN_S
from logfleet.io.files import is_shortage
from logfleet.io.slices import Slices
from logfleet.node.coordinators.kind import CoordinatorKind
from logfleet.node.coordinators.loader import CoordinatorLoader, ReadInThread
from logfleet.node.coordinators.shard import CoordinatorShard
from logfleet.node.coordinators.standby import StandbyCoordinators
from logfleet.node.partitions.leader_partition import LeaderPartition, NotLeading
from logfleet.records.errors import RecordsError
from logfleet.wire.errors import ErrorCode, MalformedMessage

R = TypeVar("R")
C = TypeVar("C", bound=Coordinator[Any])
S = TypeVar("S", bound=CoordinatorShard[Any, Any])

log = structlog.get_logger(__name__)

TICK_MS: Final = 5
"""Deadlines are checked no more often: it is far below the shortest of a session or transaction."""


class CoordinatorRuntime(Generic[R, C, S]):
    """The shards of one kind. S: their class, a `CoordinatorShard[R, C]`, which `new_shard` makes.

    Call `led` and `lost` with every partition that the broker starts and stops leading; `standby`
    gets those that it follows. write_timeout_ms: see CoordinatorShard. loaded: called with each
    shard whose log was read and is committed, before its coordinator starts. storage_failed: takes
    a partition whose log cannot be read or written out of service. is_hosted: see
    StandbyCoordinators.
    """

    def __init__(
        self,
        kind: CoordinatorKind[R, C],
        new_shard: Callable[..., S],
        *,
        clock: Clock,
        write_timeout_ms: int,
        loaded: Callable[[S], None] = lambda _: None,
        run_in_thread: ReadInThread,
        storage_failed: Callable[[LeaderPartition, OSError], None],
        is_hosted: Callable[[bytes, int], bool],
    ) -> None:
        self._kind = kind
        self._new_shard = new_shard
        self._clock = clock
        self._write_timeout_ms = write_timeout_ms
        self._loaded = loaded
        self._run_in_thread = run_in_thread
        self._storage_failed = storage_failed
        self._shards: dict[int, S] = {}
        self._to_load: asyncio.Queue[tuple[S, CoordinatorLoader[R, C]]] = asyncio.Queue()
        self.standby = StandbyCoordinators(kind, run_in_thread=run_in_thread, is_hosted=is_hosted)
        self._slices = Slices()
        self._tasks: set[asyncio.Task[None]] = set()
        self._failures: asyncio.Queue[BaseException] = asyncio.Queue()
        self._timer: asyncio.TimerHandle | None = None
        self._armed_ms = 0
        self._last_tick_ms = 0

    # -- what this broker coordinates

    def shards(self) -> Iterator[S]:
        """The partitions of the topic that are led here, loaded or not."""
        return iter(tuple(self._shards.values()))

    def shard_of(self, key: str, partitions: int) -> S | ErrorCode:
        """The loaded shard of a key, or the error to answer.

        partitions: of the topic, 0 if it does not exist.
        """
        shard = self._shards.get(partition_for(key, partitions)) if partitions else None
        if shard is None or shard.is_closed:
            return ErrorCode.NOT_COORDINATOR
        return shard if shard.is_loaded else ErrorCode.COORDINATOR_LOAD_IN_PROGRESS

    def shard_on(self, partition: LeaderPartition) -> S | None:
        """The loaded shard of this leadership of a partition."""
        shard = self._shards.get(partition.index)
        if shard is None or shard.partition is not partition or not shard.is_loaded:
            return None
        return shard

    def led(self, partition: LeaderPartition) -> None:
        """Start to coordinate a partition, if it is one of the topic."""
        if partition.topic != self._kind.topic:
            return
        earlier = self._shards.get(partition.index)
        if earlier is not None:
            earlier.close()
        loader = self.standby.take(partition) or CoordinatorLoader(self._kind, partition.log)
        shard = self._new_shard(
            self._kind,
            partition,
            loader.coordinator,
            clock=self._clock,
            write_timeout_ms=self._write_timeout_ms,
            arm=self._arm,
            spawn=self.spawn,
            storage_failed=self._storage_failed,
        )
        self._shards[partition.index] = shard
        self._to_load.put_nowait((shard, loader))

    def lost(self, partition: LeaderPartition) -> None:
        """Stop coordinating a partition, unless a newer leadership has a shard for it."""
        shard = self._shards.get(partition.index)
        if shard is not None and shard.partition is partition:
            del self._shards[partition.index]
            shard.close()

    async def run(self, *others: Coroutine[Any, Any, None]) -> None:
        """Load, stand by and run the other tasks of this kind, until cancelled."""
        try:
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(self._load_all())
                tasks.create_task(self.standby.run())
                tasks.create_task(self._supervise())
                for other in others:
                    tasks.create_task(other)
        finally:
            if self._timer is not None:
                self._timer.cancel()
            for task in self._tasks:
                task.cancel()
            await asyncio.gather(*self._tasks, return_exceptions=True)

    def spawn(self, coroutine: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """Start a task that ends with `run`; if it fails, so does `run`."""
        task = asyncio.get_running_loop().create_task(coroutine)
        self._tasks.add(task)
        task.add_done_callback(self._task_done)
        return task

    def _task_done(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            self._failures.put_nowait(error)

    async def _supervise(self) -> None:
        """A task that fails by a bug ends the broker, as any other would."""
        raise await self._failures.get()

    # -- loading

    async def _load_all(self) -> None:
        while True:
            shard, loader = await self._to_load.get()
            if shard.is_closed:
                continue
            started_ms = self._clock.monotonic_ms()
            partition = shard.partition
            name = f"{partition.topic}-{partition.index}"
            before = loader.records
            try:
                is_led = await self._load(shard, loader)
            except OSError as error:
                self._storage_failed(partition, error)
            except (RecordsError, MalformedMessage) as error:
                event = self._kind.events("not_loaded")
                log.critical(event, partition=name, reason=str(error))
                shard.fail()
            else:
                if not is_led:
                    continue
                log.debug(
                    self._kind.events("read"),
                    partition=name,
                    records=loader.records - before,
                    before=before,
                    seconds=(self._clock.monotonic_ms() - started_ms) / 1000,
                )
                if partition.is_high_watermark_behind:
                    self.spawn(self._start_once_committed(shard))
                else:
                    await self._start(shard)

    async def _start_once_committed(self, shard: S) -> None:
        """Wait for followers, which may take long; the other partitions do not wait."""
        partition = shard.partition
        with contextlib.suppress(NotLeading):
            await partition.wait_committed(partition.epoch_start_offset)
            await self._start(shard)

    async def _start(self, shard: S) -> None:
        if shard.is_closed:
            return
        self._loaded(shard)
        for _ in shard.start():
            await self._slices.pause_if_due()

    async def _load(self, shard: S, loader: CoordinatorLoader[R, C]) -> bool:
        """Apply all records from the election, and those committed since.

        False if leadership ended meanwhile.
        """
        partition = shard.partition
        while True:
            try:
                await loader.read_on(
                    lambda: max(partition.epoch_start_offset, partition.high_watermark),
                    is_over=lambda: shard.is_closed,
                    run_in_thread=self._run_in_thread,
                    pause_if_due=self._slices.pause_if_due,
                )
                break
            except OSError as error:
                if not is_shortage(error):
                    raise
                self._storage_failed(partition, error)
                await asyncio.sleep(TRY_AGAIN_S)
        return not shard.is_closed

    # -- time

    def _arm(self, due_ms: int) -> None:
        if self._timer is not None and self._armed_ms <= due_ms:
            return
        if self._timer is not None:
            self._timer.cancel()
        self._armed_ms = max(due_ms, self._last_tick_ms + TICK_MS)
        delay_s = max(self._armed_ms - self._clock.monotonic_ms(), 0) / 1000
        self._timer = asyncio.get_running_loop().call_later(delay_s, self._tick)

    def _tick(self) -> None:
        self._timer = None
        now_ms = self._last_tick_ms = self._clock.monotonic_ms()
        for shard in self.shards():
            due_ms = shard.coordinator.next_deadline_ms()
            if due_ms is None:
                continue
            if due_ms <= now_ms:
                shard.tick()
            else:
                self._arm(due_ms)
