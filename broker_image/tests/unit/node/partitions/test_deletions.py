"""Deleted topics leave nothing behind, not even in a new topic with the same name."""

import errno
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest
from logfleet.controller.changes.topics import confirm_deleted
from logfleet.io.files import PosixFiles
from logfleet.log.config import LogConfig
from logfleet.log.directories.log_dir import LogDir
from logfleet.log.partition_log import PartitionLog
from logfleet.log.segments.open_files import OpenFiles
from logfleet.metadata.image_builder import Changes
from logfleet.metadata.store import Txn
from logfleet.node.broker import Broker
from logfleet.node.partitions import local_partitions

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


def after_a_kill(broker: Broker, path: Path) -> PartitionLog:
    """The log of t-0 as another start finds it if this broker is killed now."""
    (log_dir,) = broker.rooms.disks.log_dirs
    shutil.copytree(log_dir.path, path)
    found = LogDir(OpenFiles(PosixFiles()), str(path), broker.cluster_id, 1)
    for _ in found.load(lambda _topic: LogConfig(), NOW):
        pass
    found.abandon()
    return found.logs[T0]


async def checkpoint(broker: Broker) -> None:
    """As maintenance does it every five seconds."""
    (log_dir,) = broker.rooms.disks.log_dirs
    await broker.rooms.workers.flusher.flush(led(broker))
    await broker.rooms.disks.checkpointer.write(log_dir, lambda _: None)


@pytest.mark.parametrize("how", ["deleted", "set aside", "gone before the start"])
async def test_checkpoints_of_an_old_log_do_not_hold_for_a_new_one_after_a_kill(
    tmp_path: Path, how: str
) -> None:
    """Kafka: LogManager.asyncDelete with checkpoint=true."""
    async with Broker(config(tmp_path)) as broker:
        await create_topic(broker, "t")
        append(led(broker), 20)
        led(broker).ends.appended(20)
        led(broker).delete_records_before(15)
        await checkpoint(broker)
        if how == "set aside":
            led(broker).topic_id = "A" * 22  # as one that a directory brought back
        if how in {"deleted", "set aside"}:
            await delete_topic(broker)
            await create_topic(broker, "t")
            append(led(broker), 10)
            found = after_a_kill(broker, tmp_path / "killed")
    if how == "gone before the start":
        shutil.rmtree(tmp_path / "data" / "t-0")
        (tmp_path / "data" / ".kafka_cleanshutdown").unlink()
        async with Broker(config(tmp_path)) as broker:
            append(led(broker), 10)
            found = after_a_kill(broker, tmp_path / "killed")
    assert (found.log_start_offset, found.log_end_offset, found.notes) == (0, 10, [])
    assert found.checkpointed_point == 0


class Recorded(PosixFiles):
    """Notes what becomes of the names in the log directory."""

    def __init__(self) -> None:
        self.steps: list[str] = []

    def rename(self, source: str, target: str) -> None:
        super().rename(source, target)
        if target.endswith("-delete"):
            self.steps.append("renamed")

    def fsync_directory(self, path: str) -> None:
        super().fsync_directory(path)
        if path.endswith("/data"):
            self.steps.append("durable")


async def test_a_deletion_is_durable_before_it_is_confirmed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else a power loss could bring back the directory, and no broker would delete it."""
    files = Recorded()
    async with Broker(config(tmp_path), files) as broker:

        def recorded(*given: Any) -> Txn:
            files.steps.append("confirmed")
            return confirm_deleted(*given)

        monkeypatch.setattr("logfleet.node.partitions.deletions.confirm_deleted", recorded)
        await create_topic(broker, "t")
        files.steps.clear()
        await delete_topic(broker)
        assert files.steps[0] == "renamed"
        assert "durable" in files.steps[: files.steps.index("confirmed")]


@pytest.mark.parametrize("error", [errno.ENOSPC, errno.EMFILE])
async def test_a_deletion_that_the_disk_refused_is_tried_again_until_it_is_done(
    tmp_path: Path, until: Any, monkeypatch: pytest.MonkeyPatch, error: int
) -> None:
    async with Broker(config(tmp_path), Refusing(error, 2)) as broker:
        retries: list[Callable[[], None]] = []
        monkeypatch.setattr(broker.rooms.hosting.local, "_try_later", retries.append)
        await create_topic(broker, "t")
        append(led(broker), 5)
        await delete_topic(broker)
        for failed in (1, 2):
            await until(lambda failed=failed: len(retries) == failed)
            assert broker.image.deleted, "nothing is confirmed that is not done"
            retries[-1]()
        await until(lambda: not broker.image.deleted)
        assert not (tmp_path / "data" / "t-0").exists()
        await create_topic(broker, "t")
        assert await offsets(broker, until) == (0, 0)
        assert broker.rooms.disks.log_dirs.failed == []


async def test_a_directory_in_which_nothing_can_be_deleted_has_failed(
    tmp_path: Path, until: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """KIP-112. The deletion is done then: what is there will be a stray, should it be back."""
    monkeypatch.setattr(local_partitions, "TRY_AGAIN_S", 0)
    dirs = f"{tmp_path / 'one'},{tmp_path / 'two'}"
    async with Broker(config(tmp_path, **{"log.dirs": dirs}), Refusing(errno.EIO, 1)) as broker:
        await create_topic(broker, "t")
        append(led(broker), 5)
        await delete_topic(broker)
        await create_topic(broker, "t")
        assert await offsets(broker, until) == (0, 0)
        await until(lambda: not broker.image.deleted)
        assert len(broker.rooms.disks.log_dirs.failed) == 1
        assert not broker.rooms.partitions.offline
        assert broker.failure is None


@pytest.mark.parametrize("refused", [0, 1])
async def test_a_partition_that_was_moved_to_others_leaves_nothing(
    tmp_path: Path, until: Any, monkeypatch: pytest.MonkeyPatch, refused: int
) -> None:
    """Once the image says so while the broker runs, at the second attempt if need be."""
    monkeypatch.setattr(local_partitions, "TRY_AGAIN_S", 0.01)
    async with Broker(config(tmp_path), files=Refusing(errno.ENOSPC, refused)) as broker:
        await create_topic(broker, "t", partitions=2)
        append(led(broker), 3)
        topic = broker.image.topic("t")
        assert topic is not None
        state = msgspec.structs.replace(
            topic.partitions[0], replicas=(2,), isr=((2, 9),), leader=2, leader_epoch=1
        )
        moved = msgspec.structs.replace(topic, partitions=(state, topic.partitions[1]))
        entries = broker.image.entries.updated({topic.id: moved})
        subscription = broker.rooms.hosting.local._subscription
        assert subscription is not None
        image = msgspec.structs.replace(broker.image, entries=entries)
        monkeypatch.setattr(broker.rooms.hosting.local._follower, "_image", image)
        subscription.publish(image, Changes(topics={topic.id}))
        await until(lambda: broker.rooms.disks.log_dirs.log_of(T0) is None)
        assert broker.rooms.partitions.replica(topic.id, 0) is None
        assert broker.rooms.partitions.get("t", 1) is not None
        assert not (tmp_path / "data" / "t-0").exists()
