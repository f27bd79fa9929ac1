"""Coordinators of counters with what they need of a broker, for tests."""

import asyncio
from collections.abc import Callable, Coroutine
from contextlib import asynccontextmanager
from typing import Any

import pytest
from logfleet.io.clock import SYSTEM_CLOCK, Clock
from logfleet.log.partition_log import PartitionLog
from logfleet.node.coordinators.runtime import CoordinatorRuntime
from logfleet.node.coordinators.shard import CoordinatorShard
from logfleet.node.coordinators.waiter import Waiter
from logfleet.node.partitions.leader_partition import LeaderPartition
from logfleet.node.partitions.replica import FollowerPartition, Replica
from logfleet.records.record import ProducerStamp, Record, build_batch
from logfleet.types import LeaderEpoch
from logfleet.wire.errors import ErrorCode

from broker_image.tests.unit.node.coordinators.counters import (
    COUNTERS_TOPIC,
    KIND,
    Answer,
    Count,
    Counters,
    encode,
)
from broker_image.tests.unit.node.coordinators.partitions_rig import (
    TOPIC_ID,
    LaggingPartition,
    open_log,
)

CounterShard = CoordinatorShard[Count, Counters]


class Rig:
    """loaded: shards whose log was read and is committed."""

    def __init__(
        self, path: str, write_timeout_ms: int = 5_000, clock: Clock = SYSTEM_CLOCK
    ) -> None:
        self.log = open_log(path, COUNTERS_TOPIC)
        self.failures: list[tuple[LeaderPartition, OSError]] = []
        self.loaded: list[CounterShard] = []
        self.is_hosted = True
        self.runtime = CoordinatorRuntime[Count, Counters, CounterShard](
            KIND,
            CoordinatorShard,
            clock=clock,
            write_timeout_ms=write_timeout_ms,
            loaded=self.loaded.append,
            run_in_thread=self.run_in_thread,
            storage_failed=lambda partition, error: self.failures.append((partition, error)),
            is_hosted=lambda *_: self.is_hosted,
        )

    async def run_in_thread(self, read: Callable[[], bytes]) -> bytes:
        return read()

    @asynccontextmanager
    async def running(self, *others: Coroutine[Any, Any, None]):
        task = asyncio.ensure_future(self.runtime.run(*others))
        yield task
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    def lead(self, log: PartitionLog | None = None) -> LaggingPartition:
        """Begin a leadership of the topic's only partition."""
        partition = LaggingPartition(log or self.log)
        self.runtime.led(partition)
        return partition

    def lose(self, partition: LaggingPartition) -> None:
        """End a leadership, as node.partitions.leadership does."""
        partition.end()
        self.runtime.lost(partition)

    def follow(self) -> FollowerPartition:
        """Follow another leader, whose high watermark is as far as this log goes."""
        partition = FollowerPartition(
            Replica(COUNTERS_TOPIC, TOPIC_ID, 0, self.log), 2, LeaderEpoch(0)
        )
        self.runtime.standby.followed(partition)
        partition.appended(1)
        partition.advance_high_watermark(self.log.log_end_offset)
        return partition

    def found(self) -> CounterShard | ErrorCode:
        return self.runtime.shard_of("a", 1)

    @property
    def is_active(self) -> bool:
        return isinstance(self.found(), CoordinatorShard)

    @property
    def shard(self) -> CounterShard:
        """The shard of the present leadership, in any state."""
        (shard,) = self.runtime.shards()
        return shard

    @asynccontextmanager
    async def leading(self, until):
        """Run, and lead the partition until its counters can be used."""
        async with self.running():
            partition = self.lead()
            await until(lambda: self.is_active)
            yield partition


def add(shard: CounterShard, amount: int, key: str = "a") -> Waiter[Answer]:
    waiter = Waiter[Answer]()
    turn = shard.turn()
    shard.coordinator.add(turn, key, amount, waiter)
    shard.execute(turn)
    return waiter


def read(shard: CounterShard, key: str = "a") -> Waiter[Answer]:
    waiter = Waiter[Answer]()
    turn = shard.turn()
    shard.coordinator.read(turn, key, waiter)
    shard.execute(turn)
    return waiter


def write(rig: Rig, *records: Count, producer: ProducerStamp | None = None) -> None:
    """As an earlier leader has written them."""
    encoded = [Record(*encode(record), 1) for record in records]
    append(rig, build_batch(encoded, producer=producer))


def append(rig: Rig, batch: bytearray) -> None:
    batch[:8] = rig.log.log_end_offset.to_bytes(8, "big")
    rig.log.append_as_follower(memoryview(batch), LeaderEpoch(0), 1)
