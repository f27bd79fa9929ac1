import asyncio
import contextlib
import errno
import random
from collections.abc import Callable
from typing import Any

import pytest
import pytest_asyncio
from logfleet.io.timers import TimerWheel
from logfleet.log.config import LogConfig
from logfleet.log.directories.log_dir import LogDir
from logfleet.log.flushing.flusher import Flusher
from logfleet.log.names import TopicPartition
from logfleet.log.partition_log import PartitionLog
from logfleet.log.segments.file_slice import FileSlice
from logfleet.log.segments.open_files import OpenFiles
from logfleet.node.partitions.flush_rules import FlushRules
from logfleet.node.partitions.leader_partition import LeaderPartition, NotLeading
from logfleet.records.batch import iterate_headers
from logfleet.records.record import Record, build_batch, read_records
from logfleet.replication.leader import LeaderReplicas
from logfleet.replication.waiters import COMMITTED
from logfleet.types import LeaderEpoch

from broker_image.tests.sim.disk import PowerLoss, SimDisk
from broker_image.tests.unit.node.partitions.replicas_rig import Told, replicated
from broker_image.tests.unit.waiting import Until

NOW = 1_700_000_000_000
TOPIC_ID = bytes(range(16))
pytestmark = pytest.mark.asyncio


class SlowDisk(Flusher):
    """Completes or fails a flush on request."""

    def __init__(self, files: Any) -> None:
        super().__init__(files)
        self.flushes = 0
        self.gate: asyncio.Future[None] | None = None

    async def flush(self, log: PartitionLog) -> None:
        self.flushes += 1
        job = log.begin_flush()
        self.gate = asyncio.get_running_loop().create_future()
        await self.gate
        log.complete_flush(job)


class Bench:
    """A partition with rules, on a slow disk."""

    def __init__(self, rig: Any, until: Until) -> None:
        self.rig = rig
        self.until = until
        self.disk = SlowDisk(rig.files)
        self.timers = TimerWheel()
        self.failures: list[tuple[TopicPartition, OSError]] = []
        self.rules = FlushRules(self.disk, self.timers, lambda *each: self.failures.append(each))
        self.partition: LeaderPartition

    def open(self, replicas_state: LeaderReplicas | None = None, **config: Any) -> LeaderPartition:
        log = self.rig.open(LogConfig(**config))
        self.partition = LeaderPartition(
            "topic",
            TOPIC_ID,
            0,
            log,
            LeaderEpoch(0),
            rule=self.rules,
            replicas_state=replicas_state,
        )
        return self.partition

    def append(self, count: int = 1) -> None:
        for _ in range(count):
            self.partition.append(build_batch([Record(None, b"v", NOW)]), NOW)

    async def flushing(self, number: int) -> None:
        """The disk works on its flush of this number."""
        await self.until(lambda: self.disk.flushes == number and self.disk.gate is not None)

    async def flushed(self) -> None:
        """The disk has done what it works on."""
        assert self.disk.gate is not None
        gate, self.disk.gate = self.disk.gate, None
        point = self.partition.log.recovery_point
        gate.set_result(None)
        await self.until(lambda: self.partition.log.recovery_point > point)
        await asyncio.sleep(0)


@pytest_asyncio.fixture
async def bench(rig, until) -> Bench:
    return Bench(rig, until)


async def test_without_rules_nothing_waits_for_the_disk(bench) -> None:
    partition = bench.open()
    bench.append(3)
    assert (partition.high_watermark, bench.disk.flushes) == (3, 0)


async def test_what_reaches_flush_messages_is_committed_once_it_is_durable(bench) -> None:
    partition = bench.open(flush_messages=3)
    bench.append(2)
    assert partition.high_watermark == 2
    bench.append()
    assert partition.high_watermark == 2
    waiting = asyncio.ensure_future(partition.wait_committed(3))
    await bench.flushing(1)
    assert not waiting.done()
    await bench.flushed()
    await waiting
    assert (partition.high_watermark, partition.log.recovery_point) == (3, 3)
    bench.append(2)
    assert (partition.high_watermark, bench.disk.flushes) == (5, 1)


async def test_appends_during_a_flush_share_the_next(bench) -> None:
    partition = bench.open(flush_messages=1)
    bench.append()
    await bench.flushing(1)
    bench.append(20)
    await bench.flushed()
    assert partition.high_watermark == 1
    await bench.flushing(2)
    await bench.flushed()
    await partition.wait_committed(21)
    assert bench.disk.flushes == 2
    await bench.rules.close()


async def test_a_flush_does_not_wait_for_followers(bench) -> None:
    partition = bench.open(flush_messages=1, replicas_state=replicated())
    bench.append()
    await bench.flushing(1)
    (flush,) = bench.rules._running.values()
    await bench.flushed()
    await flush
    assert (partition.high_watermark, partition.own_end_offset) == (0, 1)


async def test_readers_are_notified_of_what_is_committed(bench) -> None:
    partition, told = bench.open(flush_messages=1), Told()
    partition.add_waiter(told, COMMITTED)
    bench.append(2)
    assert told.sizes == []
    await bench.flushing(1)
    await bench.flushed()
    assert sum(told.sizes) == partition.log.size


async def test_flush_ms_bounds_how_long_something_is_not_durable(bench) -> None:
    partition = bench.open(flush_ms=20)
    bench.append(2)
    assert partition.high_watermark == 2
    await bench.flushing(1)
    await bench.flushed()
    assert partition.log.recovery_point == 2
    bench.append()
    await bench.flushing(2)
    await bench.flushed()
    bench.timers.stop()


async def test_a_later_flush_of_the_brokers_own_is_soon_enough(bench) -> None:
    bench.open(flush_ms=5000)
    bench.append()
    assert not bench.timers._slots


async def test_a_disk_that_fails_is_reported_and_nothing_is_committed(bench) -> None:
    partition = bench.open(flush_messages=1)
    bench.append()
    waiting = asyncio.ensure_future(partition.wait_committed(1))
    await bench.flushing(1)
    failure = OSError(errno.EIO, "bad sector")
    bench.disk.gate.set_exception(failure)
    await bench.until(lambda: bench.failures)
    assert bench.failures == [(TopicPartition("topic", 0), failure)]
    assert not waiting.done()
    partition.end()  # what the broker does then
    with pytest.raises(NotLeading):
        await waiting
    assert partition.high_watermark == 0


async def test_no_flush_begins_for_what_is_led_elsewhere(bench) -> None:
    partition = bench.open(flush_messages=1, flush_ms=10)
    bench.append()
    partition.end()
    await bench.rules.close()
    assert bench.disk.flushes == 0
    bench.rules._due(partition)
    assert bench.rules._running == {}


async def test_after_the_end_nothing_waits(bench) -> None:
    partition = bench.open(flush_messages=1)
    await bench.rules.close()
    bench.append()
    assert (partition.high_watermark, bench.disk.flushes) == (1, 0)


class InlineFlusher(Flusher):
    """Works in the loop's own thread: a simulated disk has no other."""

    async def run(self, work: Callable[..., Any], *args: object) -> Any:
        await asyncio.sleep(0)
        return work(*args)


@pytest.mark.parametrize("seed", range(40))
async def test_what_was_committed_survives_a_power_loss(seed) -> None:
    """Of a topic with flush.messages, whenever the power goes."""
    name, config = TopicPartition("topic", 0), LogConfig(flush_messages=1 + seed % 3)
    disk, dice = SimDisk(seed), random.Random(seed)
    log_dir = LogDir(OpenFiles(disk), "/logs", "cluster", 1)
    list(log_dir.load(lambda _topic: config, NOW))
    log = log_dir.create(name, "bQrxV1XaQAyDOV5OYVsTsQ", config, NOW)
    flusher = InlineFlusher(disk)
    await flusher.flush(log)
    rules = FlushRules(flusher, TimerWheel(), lambda *_: None)
    partition = LeaderPartition("topic", TOPIC_ID, 0, log, LeaderEpoch(0), rule=rules)
    committed = 0
    disk.fuse = dice.randrange(30, 150)
    with contextlib.suppress(PowerLoss):
        while True:
            for _ in range(dice.randrange(1, 4)):
                value = b"%d" % log.log_end_offset
                partition.append(build_batch([Record(None, value, NOW)]), NOW)
            while running := list(rules._running.values()):
                await asyncio.wait(running)
                for each in running:
                    each.result()
            # fewer than flush.messages are committed without the disk, and may go
            committed = min(partition.high_watermark, log.recovery_point)
            assert partition.high_watermark - committed < config.flush_messages
    disk.lose_power()
    again = LogDir(OpenFiles(disk), "/logs", "cluster", 1)
    list(again.load(lambda _topic: config, NOW))
    assert committed > 0
    assert again.logs[name].log_end_offset >= committed
    piece = again.logs[name].read(0, 1 << 20)
    assert isinstance(piece, FileSlice)
    content = piece.read()
    values = [r.value for at, _ in iterate_headers(content) for r in read_records(content, at)]
    assert values[:committed] == [b"%d" % offset for offset in range(committed)]


@pytest.mark.parametrize("number", [errno.EMFILE, errno.ENOSPC])
async def test_what_waits_is_committed_once_there_are_descriptors_or_room(
    bench, monkeypatch, number
) -> None:
    monkeypatch.setattr("logfleet.node.partitions.flush_rules.TRY_AGAIN_S", 0.01)
    partition = bench.open(flush_messages=1)
    bench.append()
    waiting = asyncio.ensure_future(partition.wait_committed(1))
    await bench.flushing(1)
    bench.disk.gate.set_exception(OSError(number, "for now"))
    await bench.until(lambda: bench.failures)
    partition.log.abandon_flush()  # as Flusher does
    await bench.flushing(2)
    await bench.flushed()
    await waiting
    assert partition.high_watermark == 1
    bench.timers.stop()
