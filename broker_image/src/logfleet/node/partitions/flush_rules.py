"""Obeys flush.messages and flush.ms: topics whose records must be durable early.

As in Kafka's UnifiedLog.append, once a record brings the unflushed ones to flush.messages, it is
not committed, readable or acknowledged before they are all on disk. Kafka waits for the disk within
each append; here, appends that arrive during a flush share the next one. flush.ms bounds the age of
what is not durable and delays nothing; Kafka checks it only every log.flush.scheduler.interval.ms,
by default never.
"""

import asyncio
from functools import partial
from typing import Final

from logfleet.io.descriptors import TRY_AGAIN_S
from logfleet.io.files import is_shortage
from logfleet.io.timers import TimerWheel
from logfleet.log.directories.disk_failure import OnDiskFailure
from logfleet.log.flushing.flusher import Flusher
from logfleet.log.names import TopicPartition
from logfleet.node.partitions.leader_partition import LeaderPartition

FLUSH_PERIOD_S: Final = 5.0
"""Every written log is flushed this often, whatever its rules (`node.partitions.maintenance`).

A slow disk takes longer: a few logs are flushed at a time. Kafka leaves that to the kernel; a bound
on what recovery has to check and a power loss can take costs one fsync per written log and period.
"""


class FlushRules:
    """Flushes logs early, as their topics want.

    on_disk_failure: called when a flush fails; a full disk is tried again.
    """

    def __init__(
        self, flusher: Flusher, timers: TimerWheel, on_disk_failure: OnDiskFailure
    ) -> None:
        self._flusher = flusher
        self._timers = timers
        self._on_disk_failure = on_disk_failure
        self._running: dict[LeaderPartition, asyncio.Task[None]] = {}
        self._timed: set[LeaderPartition] = set()
        self._is_closed = False

    def appended(self, partition: LeaderPartition) -> None:
        """Flush the log within flush.ms."""
        flush_s = partition.log.config.flush_ms / 1000
        if flush_s < FLUSH_PERIOD_S and not self._is_closed:
            self._flush_in(flush_s, partition)

    def flush(self, partition: LeaderPartition) -> bool:
        """Flush the log now; False if no flush is started any more."""
        self._start(partition)
        return not self._is_closed

    async def close(self) -> None:
        """Start no more flushes; running ones are completed."""
        self._is_closed = True
        running = list(self._running.values())
        if running:
            await asyncio.wait(running)

    def _flush_in(self, seconds: float, partition: LeaderPartition) -> None:
        if partition not in self._timed:
            self._timed.add(partition)
            self._timers.add(seconds, partial(self._due, partition))

    def _due(self, partition: LeaderPartition) -> None:
        self._timed.discard(partition)
        if partition.is_leading:
            self._start(partition)

    def _start(self, partition: LeaderPartition) -> None:
        if partition not in self._running and not self._is_closed:
            task = asyncio.get_running_loop().create_task(self._flush(partition))
            self._running[partition] = task

    async def _flush(self, partition: LeaderPartition) -> None:
        """Flush until nothing waits for it. Appends made meanwhile rely on this running task."""
        log = partition.log
        try:
            while await self._flusher.flush_to(
                log, log.log_end_offset, lambda: partition.is_leading
            ):
                done_end = max(partition.own_end_offset, log.recovery_point)
                if done_end >= log.log_end_offset:
                    return
        except OSError as error:
            self._on_disk_failure(TopicPartition(partition.topic, partition.index), error)
            if is_shortage(error):  # the waiters for this flush still wait
                self._flush_in(TRY_AGAIN_S, partition)
        finally:
            del self._running[partition]
