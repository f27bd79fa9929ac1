"""Topics that are deleted and made anew under their names: nothing of the old one is in the new one, whatever failed meanwhile."""

import asyncio
import errno
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from logfleet.io.files import PosixFiles
from logfleet.log.config import LogConfig
from logfleet.log.names import TopicPartition
from logfleet.node.broker import Broker
from logfleet.node.partitions import local_partitions
from logfleet.records.record import Record, build_batch
from logfleet.storage.log_dir import LogDir
from logfleet.storage.open_files import OpenFiles
from logfleet.storage.partition_log import PartitionLog
from logfleet.wire.messages import DeleteTopicsRequest, IncrementalAlterConfigsRequest

from broker_image.tests.unit.node.broker_rig import ask_broker, config, create_topic

pytestmark = pytest.mark.asyncio

NOW = 1_700_000_000_000
T0 = TopicPartition("t", 0)


async def delete_topic(broker: Broker) -> None:
    request = DeleteTopicsRequest(topic_names=["t"], timeout_ms=10_000)
    answer = await ask_broker(broker, request, 5)
    assert [row.error_code for row in answer.responses] == [0]
    await broker.local.until_applied(broker.image.revision)


def led(broker: Broker) -> PartitionLog:
    partition = broker.partitions.get("t", 0)
    assert partition is not None
    return partition.log


def append(log: PartitionLog, count: int) -> None:
    for _ in range(count):
        log.append_as_leader(build_batch([Record(None, b"value", NOW)]), 0, NOW)


def after_a_kill(broker: Broker, path: Path) -> PartitionLog:
    """The log of t-0 as another start finds it if this broker is killed now."""
    (log_dir,) = broker.log_dirs
    shutil.copytree(log_dir.path, path)
    found = LogDir(OpenFiles(PosixFiles()), str(path), broker.cluster_id, 1)
    for _ in found.load(lambda _topic: LogConfig(), NOW):
        pass
    found.abandon()
    return found.logs[T0]


async def checkpoint(broker: Broker) -> None:
    """As maintenance does it every five seconds."""
    (log_dir,) = broker.log_dirs
    await broker._flusher.flush(led(broker))
    await broker.checkpointer.write(log_dir, dict)


@pytest.mark.parametrize("how", ["deleted", "set aside", "gone before the start"])
async def test_checkpoints_of_an_old_log_do_not_hold_for_a_new_one_after_a_kill(
    tmp_path: Path, how: str
) -> None:
    """Kafka: LogManager.asyncDelete with checkpoint=true."""
    async with Broker(config(tmp_path)) as broker:
        await create_topic(broker, "t")
        append(led(broker), 20)
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
    assert found.recovery_point == 0


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
    """Else the directory could be back after a power loss, and nobody would know that it was to go."""
    files = Recorded()
    async with Broker(config(tmp_path), files) as broker:
        confirm = broker.local._confirm

        async def noted(deleted: Any) -> None:
            files.steps.append("confirmed")
            await confirm(deleted)

        monkeypatch.setattr(broker.local, "_confirm", noted)
        await create_topic(broker, "t")
        files.steps.clear()
        await delete_topic(broker)
        assert files.steps[0] == "renamed"
        assert "durable" in files.steps[: files.steps.index("confirmed")]


@pytest.mark.parametrize("metadata", [None, "", "version: 0\n", "version: 0\ntopic_id: ?"])
async def test_a_log_that_does_not_say_whose_it_is_goes_with_the_topic_of_its_name(
    tmp_path: Path, metadata: str | None
) -> None:
    """A power loss may leave that; Kafka calls each of them a stray (TopicsImage.isStrayReplica)."""
    async with Broker(config(tmp_path)) as broker:
        await create_topic(broker, "t")
    file = tmp_path / "data" / "t-0" / "partition.metadata"
    told = file.read_text()
    if metadata is None:
        file.unlink()
    else:
        file.write_text(metadata)
    async with Broker(config(tmp_path)) as broker:
        assert file.read_text() == told, "before anything is appended"
        append(led(broker), 5)
        await delete_topic(broker)
        assert not file.exists()
        await create_topic(broker, "t")
        assert led(broker).log_end_offset == 0
        assert file.read_text() != told


async def set_retention(broker: Broker, retention_ms: int) -> None:
    resource = IncrementalAlterConfigsRequest.AlterConfigsResource(
        resource_type=2,
        resource_name="t",
        configs=[
            IncrementalAlterConfigsRequest.AlterableConfig(
                name="retention.ms", value=str(retention_ms)
            )
        ],
    )
    request = IncrementalAlterConfigsRequest(resources=[resource])
    answer = await ask_broker(broker, request, 1)
    assert [row.error_code for row in answer.responses] == [0]
    await broker.local.until_applied(broker.image.revision)


async def test_a_log_obeys_what_was_set_while_it_was_not_led(tmp_path: Path, until: Any) -> None:
    async with Broker(config(tmp_path)) as broker:
        await create_topic(broker, "t")
        broker.local.lost_registration()
        await set_retention(broker, 1000)
        broker.local.registered(broker.image.brokers[1].epoch)
        await until(lambda: broker.partitions.get("t", 0) is not None)
        assert led(broker).config.retention_ms == 1000


class Refusing(PosixFiles):
    """Refuses to rename the directory of t-0 as often as it is told to."""

    def __init__(self, error: int, times: int) -> None:
        self.error, self.times = error, times

    def rename(self, source: str, target: str) -> None:
        if source.endswith("/t-0") and self.times:
            self.times -= 1
            raise OSError(self.error, "it was told to", source)
        super().rename(source, target)


async def finished(broker: Broker, retries: list[Callable[[], None]]) -> None:
    """Retry whenever something is to be, until the topic is served and no deletion is left."""
    while broker.partitions.get("t", 0) is None or broker.image.deleted:
        while retries:
            retries.pop()()
        await asyncio.sleep(0)


async def offsets(broker: Broker, until: Any) -> tuple[int, int]:
    await until(lambda: broker.partitions.get("t", 0) is not None)
    return led(broker).log_start_offset, led(broker).log_end_offset


@pytest.mark.parametrize("error", [errno.ENOSPC, errno.EMFILE])
async def test_a_deletion_that_the_disk_refused_is_tried_again_until_it_is_done(
    tmp_path: Path, until: Any, monkeypatch: pytest.MonkeyPatch, error: int
) -> None:
    async with Broker(config(tmp_path), Refusing(error, 2)) as broker:
        retries: list[Callable[[], None]] = []
        monkeypatch.setattr(broker.local, "_try_later", retries.append)
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
        assert broker._log_dirs.failed == []


@pytest.mark.parametrize("times", [1, 2, 3])
async def test_a_topic_is_made_anew_where_the_old_log_could_not_be_removed_yet(
    tmp_path: Path, until: Any, monkeypatch: pytest.MonkeyPatch, times: int
) -> None:
    async with Broker(config(tmp_path), Refusing(errno.ENOSPC, times)) as broker:
        retries: list[Callable[[], None]] = []
        monkeypatch.setattr(broker.local, "_try_later", retries.append)
        await create_topic(broker, "t")
        append(led(broker), 5)
        await delete_topic(broker)
        await create_topic(broker, "t")
        await finished(broker, retries)
        assert await offsets(broker, until) == (0, 0)
        assert list((tmp_path / "data").glob("*-stray")) == []


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
        assert len(broker._log_dirs.failed) == 1
        assert broker.partitions.offline == set()
        assert broker.failure is None


async def test_a_stray_that_could_not_be_set_aside_is_not_taken_for_the_topics_log(
    tmp_path: Path, until: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(local_partitions, "TRY_AGAIN_S", 0)
    async with Broker(config(tmp_path), Refusing(errno.ENOSPC, 2)) as broker:
        (log_dir,) = broker.log_dirs
        append(log_dir.create(T0, "A" * 22, LogConfig(), NOW), 5)
        await create_topic(broker, "t")
        assert await offsets(broker, until) == (0, 0)
        assert len(list((tmp_path / "data").glob("*-stray"))) == 1


async def test_a_directory_that_fails_before_a_stray_is_set_aside_keeps_nobody_from_beginning(
    tmp_path: Path, until: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    dirs = f"{tmp_path / 'one'},{tmp_path / 'two'}"
    async with Broker(config(tmp_path, **{"log.dirs": dirs})) as broker:
        stray = next(iter(broker.log_dirs)).create(T0, "A" * 22, LogConfig(), NOW)
        until_idle = broker._flusher.until_idle

        async def failing(log: PartitionLog) -> None:
            if log is stray and not broker.log_dirs.failed:
                broker._disk_failed(T0, OSError(errno.EIO, "broken"))
            await until_idle(log)

        monkeypatch.setattr(broker._flusher, "until_idle", failing)
        await create_topic(broker, "t")
        assert await offsets(broker, until) == (0, 0)
        assert len(broker.log_dirs.failed) == 1
        assert broker.failure is None
