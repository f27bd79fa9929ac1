"""A broker that may open no more files for a while: it fails nothing and loses nothing."""

import errno
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from logfleet.io.files import PosixFiles
from logfleet.log.names import TopicPartition
from logfleet.node.broker import Broker
from logfleet.node.partitions.leader_partition import LeaderPartition
from logfleet.records.record import Record, build_batch
from logfleet.wire.errors import ErrorCode
from logfleet.wire.messages import CreateTopicsRequest, ProduceRequest

from broker_image.tests.unit.node.broker_rig import ask, config
from broker_image.tests.unit.waiting import Until

pytestmark = pytest.mark.asyncio
T0 = TopicPartition("t", 0)


class Starved(PosixFiles):
    """While it is starved whatever needs a descriptor fails."""

    is_starved = False
    refused = 0

    def _need_descriptor(self, path: str) -> None:
        if self.is_starved:
            self.refused += 1
            raise OSError(errno.EMFILE, "Too many open files", path)

    def open(self, path: str, *, create: bool = False) -> Any:
        self._need_descriptor(path)
        return super().open(path, create=create)

    def list_directory(self, path: str) -> Any:
        self._need_descriptor(path)
        return super().list_directory(path)

    def fsync_directory(self, path: str) -> None:
        self._need_descriptor(path)
        super().fsync_directory(path)


class Rig:
    def __init__(self, broker: Broker, files: Starved) -> None:
        self.broker = broker
        self.files = files
        self.port = broker.opened.listeners.all[0].port

    async def create(self, topic: str) -> ErrorCode:
        configs = [CreateTopicsRequest.CreatableTopicConfig(name="segment.bytes", value="1048576")]
        wanted = CreateTopicsRequest.CreatableTopic(
            name=topic, num_partitions=1, replication_factor=1, configs=configs
        )
        request = CreateTopicsRequest(topics=[wanted], timeout_ms=10_000)
        return ErrorCode((await ask(self.port, request, 7)).topics[0].error_code)

    async def produce(self, topic: str = "t") -> ErrorCode:
        batch = build_batch([Record(None, bytes(300_000), time.time_ns() // 1_000_000)])
        data = ProduceRequest.TopicProduceData(
            name=topic, partition_data=[ProduceRequest.PartitionProduceData(records=bytes(batch))]
        )
        request = ProduceRequest(acks=-1, timeout_ms=5_000, topic_data=[data])
        (answer,) = (await ask(self.port, request, 9)).responses
        return ErrorCode(answer.partition_responses[0].error_code)

    def partition(self, topic: str = "t") -> LeaderPartition | None:
        return self.broker.rooms.partitions.get(topic, 0)


@asynccontextmanager
async def running(path: Path) -> AsyncIterator[Rig]:
    files = Starved()
    async with Broker(config(path), files) as broker:
        rig = Rig(broker, files)
        yield rig
        assert broker.failure is None
        assert broker.rooms.disks.log_dirs.failed == []


async def test_a_roll_without_descriptors_is_refused_and_made_up_for(tmp_path: Path) -> None:
    async with running(tmp_path) as rig:
        assert await rig.create("t") is ErrorCode.NONE
        acknowledged = 0
        rig.files.is_starved = True
        while (error := await rig.produce()) is ErrorCode.NONE:
            acknowledged += 1
        assert error is ErrorCode.KAFKA_STORAGE_ERROR
        assert rig.files.refused
        assert await rig.produce() is ErrorCode.KAFKA_STORAGE_ERROR
        rig.files.is_starved = False
        for _ in range(10):
            assert await rig.produce() is ErrorCode.NONE
        partition = rig.partition()
        assert partition is not None
        assert partition.log.log_end_offset == acknowledged + 10
        assert len(partition.log.segments) > 1


async def test_flushes_and_checkpoints_are_made_up_for(tmp_path: Path) -> None:
    async with running(tmp_path) as rig:
        assert await rig.create("t") is ErrorCode.NONE
        assert await rig.produce() is ErrorCode.NONE
        broker, partition = rig.broker, rig.partition()
        assert partition is not None
        (log_dir,) = broker.rooms.disks.log_dirs
        rig.files.is_starved = True
        for work in (
            lambda: broker.rooms.workers.flusher.flush(partition.log),
            lambda: broker.rooms.disks.checkpointer.write(log_dir, lambda _: None),
        ):
            with pytest.raises(OSError, match="Too many open files") as failed:
                await work()
            broker.rooms.disks.storage_failed(partition, failed.value)
        assert partition.log.recovery_point == 0
        rig.files.is_starved = False
        await broker.rooms.workers.flusher.flush(partition.log)
        await broker.rooms.disks.checkpointer.write(log_dir, lambda _: None)
        assert partition.log.recovery_point == partition.log.checkpointed_point == 1


async def test_a_topic_that_could_not_be_begun_is_led_later(
    tmp_path: Path, until: Until, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("logfleet.node.partitions.local_partitions.TRY_AGAIN_S", 0.02)
    async with running(tmp_path) as rig:
        rig.files.is_starved = True
        assert await rig.create("t") is ErrorCode.NONE
        await until(lambda: rig.files.refused)
        assert rig.partition() is None
        rig.files.is_starved = False
        await until(rig.partition)
        assert await rig.produce() is ErrorCode.NONE


async def test_what_could_not_be_removed_is_removed_later(tmp_path: Path) -> None:
    async with running(tmp_path) as rig:
        assert await rig.create("t") is ErrorCode.NONE
        (log_dir,) = rig.broker.rooms.disks.log_dirs
        await rig.broker.rooms.workers.flusher.until_all_idle()
        log_dir.delete(T0, 0)
        maintenance = rig.broker.opened.tasks.maintenance
        monkey_now = 1 << 60
        removed = log_dir.take_removals(monkey_now)
        assert len(removed) == 1
        log_dir.put_back([type(each)(each.path, 0) for each in removed])
        rig.files.is_starved = True
        await maintenance.remove_discarded()
        assert Path(removed[0].path).exists()
        rig.files.is_starved = False
        await maintenance.remove_discarded()
        assert not Path(removed[0].path).exists()
