"""Periodic work on a broker's logs: retention, flushes, checkpoints, expiry of producers, removals.

All of it walks over many partitions, so it runs in slices; what waits for the disk runs in the
flusher's threads.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterator
from typing import Final

import structlog

from logfleet.config.broker import BrokerConfig
from logfleet.config.topic import BrokerLayers
from logfleet.io.clock import monotonic_ms, now_ms
from logfleet.io.files import Files, is_shortage
from logfleet.io.slices import Slices
from logfleet.log.checkpoints.checkpointer import Checkpointer
from logfleet.log.config import LONG_MAX
from logfleet.log.directories.disk_failure import OnDiskFailure
from logfleet.log.directories.log_dir import LogDir
from logfleet.log.directories.log_dirs import LogDirs
from logfleet.log.directories.trash import remove
from logfleet.log.flushing.flusher import THREADS, Flusher
from logfleet.log.names import TopicPartition
from logfleet.log.partition_log import PartitionLog
from logfleet.log.search import load_oldest_times
from logfleet.node.partitions.flush_rules import FLUSH_PERIOD_S
from logfleet.node.partitions.leader_partition import LeaderPartition
from logfleet.node.partitions.partition_table import PartitionTable
from logfleet.node.partitions.replica import Replica

log = structlog.get_logger(__name__)

PRODUCER_EXPIRY_PERIOD_S: Final = 600.0
PRODUCERS_AT_ONCE: Final = 1000
"""Producers that are checked in one step, which takes a fraction of a millisecond."""
REMOVAL_PERIOD_S: Final = 10.0


class Maintenance:
    """The periodic work of one broker. producer_id_expiration_ms: may change at any time.

    on_disk_failure: called when a log directory can no longer be trusted.
    """

    def __init__(
        self,
        files: Files,
        config: BrokerConfig,
        *,
        table: PartitionTable,
        log_dirs: LogDirs,
        flusher: Flusher,
        checkpointer: Checkpointer,
        on_disk_failure: OnDiskFailure,
    ) -> None:
        self._files = files
        self._config = config
        self._table = table
        self._log_dirs = log_dirs
        self._flusher = flusher
        self._checkpointer = checkpointer
        self._on_disk_failure = on_disk_failure
        self.producer_id_expiration_ms = config.producer_id_expiration_ms
        self._slices = Slices()
        self._slots = asyncio.Semaphore(THREADS)
        self._moved: set[str] = set()  # directories whose checkpoints are behind
        # directory -> when its checkpoints were last written, monotonic
        self._checkpointed_s: dict[str, float] = {}

    async def update(self, layers: BrokerLayers) -> None:
        """Use the configuration's new values from now on."""
        self.producer_id_expiration_ms = int(
            layers.effective_value("producer.id.expiration.ms") or 0
        )

    @property
    def flush_period_s(self) -> float:
        """FLUSH_PERIOD_S, or log.flush.scheduler.interval.ms if that is less."""
        return min(FLUSH_PERIOD_S, max(1, self._config.log_flush_scheduler_interval_ms) / 1000)

    @property
    def checkpoint_period_s(self) -> float | None:
        """Interval for writing the recovery points that flush.messages has moved.

        None if `flush` writes them as often.
        """
        asked_s = max(1, self._config.log_flush_offset_checkpoint_interval_ms) / 1000
        return asked_s if asked_s < self.flush_period_s else None

    async def run(self) -> None:
        """Work until cancelled."""
        retention_s = self._config.log_retention_check_interval_ms / 1000
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._every(self.flush_period_s, self.flush))
            if self.checkpoint_period_s is not None:
                tasks.create_task(self._every(self.checkpoint_period_s, self.checkpoint))
            tasks.create_task(self._every(retention_s, self.apply_retention))
            tasks.create_task(self._every(PRODUCER_EXPIRY_PERIOD_S, self.expire_producers))
            tasks.create_task(self._every(REMOVAL_PERIOD_S, self.remove_discarded))

    @staticmethod
    async def _every(period_s: float, work: Callable[[], Awaitable[None]]) -> None:
        while True:
            await asyncio.sleep(period_s)
            await work()

    async def flush(self) -> None:
        """Make durable what was written since the last time, then write the checkpoints.

        It flushes THREADS logs at a time. A pass that takes longer than FLUSH_PERIOD_S also writes
        checkpoints in between, of what is durable by then.
        """
        async with asyncio.TaskGroup() as tasks:
            for log_dir in self._log_dirs:
                tasks.create_task(self._flush_all(log_dir))

    async def _flush_all(self, log_dir: LogDir) -> None:
        self._checkpointed_s[log_dir.path] = time.monotonic()
        rest = iter(list(log_dir.logs.items()))
        async with asyncio.TaskGroup() as tasks:
            for _ in range(THREADS):
                tasks.create_task(self._flush_some(log_dir, rest))
        await self._checkpoint(log_dir)

    async def _flush_some(
        self, log_dir: LogDir, rest: Iterator[tuple[TopicPartition, PartitionLog]]
    ) -> None:
        """Flush the logs of `rest` that no other task takes first, until the directory fails."""
        for name, partition_log in rest:
            await self._slices.pause_if_due()
            if log_dir not in self._log_dirs.dirs:
                return
            if self._is_due(partition_log):
                async with self._slots:
                    await self._flusher.until_idle(partition_log)
                    if log_dir.logs.get(name) is partition_log:  # else another log has its name now
                        await self._flush(name, partition_log)
                self._moved.add(log_dir.path)
            # followers may have advanced it since the flush
            high_watermark = self._table.high_watermark_of(name)
            if (
                partition_log.recovery_point > partition_log.checkpointed_point
                or high_watermark not in {None, log_dir.high_watermarks.get(name)}
            ):
                self._moved.add(log_dir.path)
            if time.monotonic() - self._checkpointed_s[log_dir.path] >= FLUSH_PERIOD_S:
                await self._checkpoint(log_dir)

    @staticmethod
    def _is_due(partition_log: PartitionLog) -> bool:
        """Whether there is something to flush; if flush.ms is set, it must have passed too."""
        if not partition_log.unflushed:
            return False
        flush_ms = partition_log.config.flush_ms
        return flush_ms == LONG_MAX or now_ms() - partition_log.flushed_ms >= flush_ms

    async def _flush(self, name: TopicPartition, partition_log: PartitionLog) -> None:
        try:
            began_ms = now_ms()
            await self._flusher.flush(partition_log)
            partition_log.flushed_ms = began_ms
        except OSError as error:
            self._on_disk_failure(name, error)

    async def checkpoint(self) -> None:
        """Write the checkpoints of directories where recovery points have moved since."""
        for log_dir in self._log_dirs:
            for partition_log in list(log_dir.logs.values()):
                await self._slices.pause_if_due()
                if partition_log.recovery_point > partition_log.checkpointed_point:
                    self._moved.add(log_dir.path)
                    break
            await self._checkpoint(log_dir)

    async def _checkpoint(self, log_dir: LogDir) -> None:
        """Write the checkpoints of a directory that is in use, if they have changed."""
        if log_dir.path not in self._moved or log_dir not in self._log_dirs.dirs:
            return
        self._moved.discard(log_dir.path)
        self._checkpointed_s[log_dir.path] = time.monotonic()
        try:
            await self._checkpointer.write(log_dir, self._table.high_watermark_of)
        except OSError as error:
            name = next(iter(log_dir.logs), None)
            if name is not None:
                self._on_disk_failure(name, error)

    async def apply_retention(self) -> None:
        """Remove segments beyond the limits of time and size (Kafka: LogManager.cleanupLogs).

        Followers do it too.
        """
        for replica in self._table:
            await self._slices.pause_if_due()
            while replica.is_current and await self._retention_step(replica):
                await self._slices.pause_if_due()

    async def _retention_step(self, replica: Replica) -> bool:
        """One step of a replica's retention; whether there may be another."""
        try:
            await load_oldest_times(replica.log, self._flusher.run)
            if not replica.is_current:
                return False
            done = replica.log.apply_retention(now_ms(), replica.high_watermark)
        except OSError as error:
            if replica.is_current:  # else its files may have been deleted with the role
                self._on_disk_failure(TopicPartition(replica.topic, replica.index), error)
            return False
        if done is not None and done.count:
            log.info(
                "segments_removed",
                topic=replica.topic,
                partition=replica.index,
                count=done.count,
                reason=done.reason,
                log_start_offset=replica.log.log_start_offset,
            )
        return done is not None

    async def expire_producers(self) -> None:
        """Remove idempotent producers that wrote nothing for producer.id.expiration.ms.

        Guards of transactions that nobody asks about any more go after the same time.
        """
        for replica in self._table:
            await self._slices.pause_if_due()
            if isinstance(replica, LeaderPartition):
                replica.expire_guards(monotonic_ms(), self.producer_id_expiration_ms)
            states = replica.log.producers.states
            ids = list(states.ids())
            for first in range(0, len(ids), PRODUCERS_AT_ONCE):
                some = ids[first : first + PRODUCERS_AT_ONCE]
                states.expire(some, now_ms(), self.producer_id_expiration_ms)
                await self._slices.pause_if_due()

    async def remove_discarded(self) -> None:
        """Remove the files whose file.delete.delay.ms is over."""
        for log_dir in self._log_dirs:
            due = log_dir.take_removals(now_ms())
            if due:
                try:
                    await self._flusher.run(remove, self._files, due)
                except OSError as error:  # the files stay until the next start removes them
                    log.warning("removal_failed", path=log_dir.path, error=str(error))
                    if is_shortage(error):
                        log_dir.put_back(due)
