"""Where a log must be made, another topic's may still be."""

import asyncio
import errno
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from logfleet.log.config import LogConfig
from logfleet.log.partition_log import PartitionLog
from logfleet.metadata.kinds.topics import PARTITION
from logfleet.metadata.store import Put, Txn
from logfleet.node.broker import Broker
from logfleet.node.partitions import local_partitions
from logfleet.wire import uuids

from broker_image.tests.unit.node.broker_rig import config, create_topic
from broker_image.tests.unit.node.partitions.topic_rig import (
    NOW,
    T0,
    Refusing,
    append,
    delete_topic,
    led,
    offsets,
)

pytestmark = pytest.mark.asyncio


async def finished(broker: Broker, retries: list[Callable[[], None]]) -> None:
    """Retry whenever something is to be, until the topic is served and no deletion is left."""
    while broker.rooms.partitions.get("t", 0) is None or broker.image.deleted:
        while retries:
            retries.pop()()
        await asyncio.sleep(0)


@pytest.mark.parametrize("times", [1, 2, 3])
async def test_a_topic_is_made_again_where_the_old_log_could_not_be_removed_yet(
    tmp_path: Path, until: Any, monkeypatch: pytest.MonkeyPatch, times: int
) -> None:
    async with Broker(config(tmp_path), Refusing(errno.ENOSPC, times)) as broker:
        retries: list[Callable[[], None]] = []
        monkeypatch.setattr(broker.rooms.hosting.local, "_try_later", retries.append)
        await create_topic(broker, "t")
        append(led(broker), 5)
        await delete_topic(broker)
        await create_topic(broker, "t")
        await finished(broker, retries)
        assert await offsets(broker, until) == (0, 0)
        assert list((tmp_path / "data").glob("*-stray")) == []


async def test_a_stray_that_could_not_be_set_aside_is_not_taken_for_the_topics_log(
    tmp_path: Path, until: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(local_partitions, "TRY_AGAIN_S", 0)
    async with Broker(config(tmp_path), Refusing(errno.ENOSPC, 2)) as broker:
        (log_dir,) = broker.rooms.disks.log_dirs
        append(log_dir.create(T0, "A" * 22, LogConfig(), NOW), 5)
        await create_topic(broker, "t")
        assert await offsets(broker, until) == (0, 0)
        assert len(list((tmp_path / "data").glob("*-stray"))) == 1


@pytest.mark.parametrize("how", ["deleted", "made way for"])
async def test_a_log_that_took_the_name_meanwhile_is_not_taken_for_the_old_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    """Two wait for the old log's disk: the first deletes it; then the name is another topic's."""
    async with Broker(config(tmp_path)) as broker:
        logs, (log_dir,) = broker.rooms.hosting.local._logs, broker.rooms.disks.log_dirs
        log_dir.create(T0, "A" * 22, LogConfig(), NOW)

        async def replace(_: PartitionLog) -> None:
            log_dir.delete(T0, NOW)
            log_dir.create(T0, "B" * 22, LogConfig(), NOW)

        monkeypatch.setattr(broker.rooms.workers.flusher, "until_idle", replace)
        if how == "deleted":
            await logs.delete(uuids.from_text("A" * 22))
        else:
            await logs._clear_name(broker.image, T0, log_dir.logs[T0], "C" * 22)
        assert log_dir.logs[T0].topic_id == "B" * 22


async def test_a_log_that_is_still_being_cut_begins_no_other_role(
    tmp_path: Path, until: Any
) -> None:
    async with Broker(config(tmp_path)) as broker:
        await create_topic(broker, "t")
        topic, led_before = broker.image.topic("t"), broker.rooms.partitions.get("t", 0)
        assert topic is not None
        assert led_before is not None
        async with broker.rooms.workers.flusher.holding(led_before.log):
            state = topic.partitions[0].changed(leader_epoch=7)
            key = PARTITION.key((topic.id, 0))
            await broker.opened.stored.world.store.txn(
                Txn(success=[Put(key, PARTITION.encode(state))])
            )
            await until(lambda: not led_before.is_leading)
            for _ in range(100):  # it would have begun by then
                await asyncio.sleep(0)
            assert led_before.log.epochs.latest == 0
        await until(lambda: broker.rooms.partitions.get("t", 0) is not None)
        assert led_before.log.epochs.latest == 7


async def test_a_directory_that_fails_before_a_stray_is_set_aside_keeps_nobody_from_beginning(
    tmp_path: Path, until: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    dirs = f"{tmp_path / 'one'},{tmp_path / 'two'}"
    async with Broker(config(tmp_path, **{"log.dirs": dirs})) as broker:
        stray = next(iter(broker.rooms.disks.log_dirs)).create(T0, "A" * 22, LogConfig(), NOW)
        until_idle = broker.rooms.workers.flusher.until_idle

        async def failing(log: PartitionLog) -> None:
            if log is stray and not broker.rooms.disks.log_dirs.failed:
                broker.rooms.disks.failed(T0, OSError(errno.EIO, "broken"))
            await until_idle(log)

        monkeypatch.setattr(broker.rooms.workers.flusher, "until_idle", failing)
        await create_topic(broker, "t")
        assert await offsets(broker, until) == (0, 0)
        assert len(broker.rooms.disks.log_dirs.failed) == 1
        assert broker.failure is None
