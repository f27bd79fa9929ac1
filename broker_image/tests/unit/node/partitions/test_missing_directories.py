"""A log directory that is missing at start: its logs stay offline, and no empty log is made."""

import errno
import shutil
from pathlib import Path

import pytest
import structlog
from logfleet.coordinators.partition import partition_for
from logfleet.io.files import PosixFiles, Space
from logfleet.io.sqlite import SqliteStore
from logfleet.log.names import TopicPartition
from logfleet.metadata.image import Partition, Topic
from logfleet.metadata.kinds.brokers import DIRECTORIES
from logfleet.metadata.store import Txn
from logfleet.node.broker import Broker, StartError
from logfleet.node.metrics.cluster import cluster
from logfleet.node.partitions.leadership import Key
from logfleet.node.partitions.pending_work import DesiredState
from logfleet.store.opening import OpenStore, open_store
from logfleet.telemetry.table import OFFLINE_PARTITIONS
from logfleet.wire.errors import ErrorCode
from logfleet.wire.messages import (
    DeleteTopicsRequest,
    DescribeLogDirsRequest,
    FindCoordinatorRequest,
    MetadataRequest,
)

from broker_image.tests.unit.node.broker_rig import (
    ELSEWHERE,
    ask_broker,
    config,
    create_topic,
    registered_again,
)

pytestmark = pytest.mark.asyncio


class Dirs:
    """Two log directories, the metadata in the first unless `given` says otherwise."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.given: dict[str, str] = {}
        self.open_store: OpenStore = open_store
        self.one, self.two = path / "one", path / "two"

    def broker(self, *dirs: Path, files: PosixFiles | None = None, **given: str) -> Broker:
        log_dirs = ",".join(map(str, dirs or (self.one, self.two)))
        given = {"log.dirs": log_dirs, **self.given, **given}
        return Broker(config(self.path, **given), files, open_store=self.open_store)

    async def filled(self) -> set[int]:
        """Four partitions of topic `t`, two in each directory; those that are in the second."""
        async with self.broker() as broker:
            await create_topic(broker, "t", 4)
        there = {int(path.name.removeprefix("t-")) for path in self.two.glob("t-*")}
        assert len(there) == 2, "logs are spread over both directories"
        return there

    async def forget_record(self) -> None:
        """As a version that kept none has left it."""
        store = await SqliteStore.open(self.one / "logfleet-metadata.db")
        await store.txn(Txn(success=[DIRECTORIES.delete(1)]))
        await store.close()


class NoStrays(PosixFiles):
    """Disks that refuse to let a stray be renamed. broken: their directories."""

    def __init__(self, *broken: Path) -> None:
        self._broken = broken

    def rename(self, source: str, target: str) -> None:
        if target.endswith("-stray") and Path(target).parent in self._broken:
            raise OSError(errno.EIO, "Input/output error", source)
        super().rename(source, target)


@pytest.fixture
def dirs(tmp_path: Path) -> Dirs:
    return Dirs(tmp_path)


def metadata_in(path: Path) -> OpenStore:
    async def opens(*_: object) -> SqliteStore:
        return await SqliteStore.open(path)

    return opens


def offline(broker: Broker, topic: str, partitions: int) -> set[int]:
    found = {index: broker.rooms.partitions.find(topic, index) for index in range(partitions)}
    served = {index for index in found if broker.rooms.partitions.get(topic, index) is not None}
    assert all(found[index] is ErrorCode.KAFKA_STORAGE_ERROR for index in found.keys() - served)
    return found.keys() - served


async def no_leader(broker: Broker, topic: str) -> set[int]:
    """Partitions without a leader, each with its replica offline, as Metadata returns them."""
    answer = await ask_broker(broker, MetadataRequest(topics=None), 12)
    (row,) = (row for row in answer.topics if row.name == topic)
    without = set()
    for each in row.partitions:
        if each.leader_id != 1:
            told = (each.error_code, each.leader_id, each.offline_replicas)
            assert told == (ErrorCode.LEADER_NOT_AVAILABLE, -1, [1])
            without.add(each.partition_index)
    return without


def states(broker: Broker, name: str) -> tuple[Partition, ...]:
    topic = broker.image.topic(name)
    assert topic is not None
    return topic.partitions


def has_leaders_but(broker: Broker, topic: str, without: set[int]) -> bool:
    found = enumerate(states(broker, topic))
    return {index for index, state in found if not state.has_leader} == without


def recorded(broker: Broker) -> frozenset[str]:
    """The directories that the store says may hold logs of this broker."""
    return broker.image.directories[1].ids


@pytest.mark.parametrize("how", ["emptied", "taken out of log.dirs"])
async def test_what_a_missing_directory_holds_stays_offline_however_often_it_starts(
    dirs: Dirs, how: str
) -> None:
    there = await dirs.filled()
    shutil.rmtree(dirs.two)
    present = [dirs.one, dirs.two] if how == "emptied" else [dirs.one]
    for number in range(3):
        with structlog.testing.capture_logs() as logs:
            async with dirs.broker(*present) as broker:
                (said,) = (row for row in logs if row["event"] == "log_directories_missing")
                assert (said["partitions"], len(said["directories"])) == (2, 1)
                assert offline(broker, "t", 4) == there
                await create_topic(broker, f"later-{number}", 4)
                for earlier in range(number + 1):
                    assert offline(broker, f"later-{earlier}", 4) == set()
        made = {path.name for path in dirs.path.glob("*/t-*")}
        assert made == {f"t-{index}" for index in {0, 1, 2, 3} - there}


async def test_a_broker_whose_volume_was_replaced_by_an_empty_one_makes_no_log(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A fleet's metadata is elsewhere: it still has the topics of a broker that lost its disk."""

    elsewhere = metadata_in(tmp_path / "metadata.db")
    async with Broker(config(tmp_path), open_store=elsewhere) as broker:
        await create_topic(broker, "t", 2)
    for _ in range(2):
        shutil.rmtree(tmp_path / "data")
        async with Broker(config(tmp_path), open_store=elsewhere) as broker:
            assert offline(broker, "t", 2) == {0, 1}
        assert list((tmp_path / "data").glob("t-*")) == []


async def test_a_directory_that_is_back_is_served_again_and_nothing_else_is_waited_for(
    dirs: Dirs, until
) -> None:
    there = await dirs.filled()
    dirs.two.rename(dirs.path / "elsewhere")
    async with dirs.broker() as broker:
        assert offline(broker, "t", 4) == there
        assert len(recorded(broker)) == 3, "the empty one may hold logs by now"
    shutil.rmtree(dirs.two)
    (dirs.path / "elsewhere").rename(dirs.two)
    async with dirs.broker() as broker:
        assert offline(broker, "t", 4) == set()
        await until(lambda: len(recorded(broker)) == 2)
        online = {log_dir.identity.directory_id for log_dir in broker.rooms.disks.log_dirs}
        assert recorded(broker) == online


async def test_a_missing_directory_is_forgotten_with_the_last_topic_that_it_held(
    dirs: Dirs, until
) -> None:
    there = await dirs.filled()
    async with dirs.broker(dirs.one) as broker:
        assert offline(broker, "t", 4) == there
        assert len(recorded(broker)) == 2
        await ask_broker(broker, DeleteTopicsRequest(topic_names=["t"], timeout_ms=10_000), 5)
        await until(lambda: len(recorded(broker)) == 1)
        assert not broker.rooms.partitions.offline
        await create_topic(broker, "t", 4)
        assert offline(broker, "t", 4) == set()


async def test_a_log_in_two_directories_refuses_the_start(dirs: Dirs) -> None:
    """Kafka's LogManager: only a person can find out which of them is right."""
    there = await dirs.filled()
    name = f"t-{min(there)}"
    shutil.copytree(dirs.two / name, dirs.one / name)
    with pytest.raises(StartError) as caught:
        await dirs.broker().__aenter__()
    assert str(dirs.one / name) in str(caught.value)
    assert str(dirs.two / name) in str(caught.value)
    assert "\n" not in str(caught.value)


async def test_a_former_topic_of_the_same_name_in_a_directory_that_is_back_is_set_aside(
    dirs: Dirs,
) -> None:
    there = await dirs.filled()
    async with dirs.broker(dirs.one) as broker:
        await ask_broker(broker, DeleteTopicsRequest(topic_names=["t"], timeout_ms=10_000), 5)
        await create_topic(broker, "t", 4)
    async with dirs.broker() as broker:
        assert offline(broker, "t", 4) == set()
        assert {path.name[:3] for path in dirs.two.glob("*-stray")} == {f"t-{i}" for i in there}
        assert all((dirs.one / f"t-{index}").exists() for index in range(4))


async def test_data_of_a_version_without_the_record_is_served_and_gets_one(dirs: Dirs) -> None:
    await dirs.filled()
    await dirs.forget_record()
    async with dirs.broker() as broker:
        assert offline(broker, "t", 4) == set()
        assert len(recorded(broker)) == 2


@pytest.mark.parametrize("how", ["no directory", "its checkpoint cannot be read"])
@pytest.mark.parametrize("data_of", ["this version", "one without the record"])
async def test_a_broker_starts_without_a_directory_that_is_bad(
    dirs: Dirs, how: str, data_of: str
) -> None:
    """Kafka: LogManager.createAndValidateLogDirs and loadLogs.

    Without a record too: data of an earlier version.
    """
    there = await dirs.filled()
    if data_of == "one without the record":
        await dirs.forget_record()
    saved = dirs.path / "elsewhere"
    dirs.two.rename(saved)
    if how == "no directory":
        dirs.two.write_text("no directory")
    else:
        shutil.copytree(saved, dirs.two)
        (dirs.two / "recovery-point-offset-checkpoint").unlink()
        (dirs.two / "recovery-point-offset-checkpoint").mkdir()
    for _ in range(2):
        with structlog.testing.capture_logs() as logs:
            async with dirs.broker() as broker:
                assert offline(broker, "t", 4) == there
                answer = await ask_broker(broker, DescribeLogDirsRequest(topics=None), 4)
                errors = {row.log_dir: row.error_code for row in answer.results}
                assert errors == {str(dirs.one): 0, str(dirs.two): ErrorCode.KAFKA_STORAGE_ERROR}
        (said,) = (row for row in logs if row["event"] == "log_directory_failed")
        assert said["path"] == str(dirs.two)
    async with dirs.broker(dirs.one) as broker:
        assert offline(broker, "t", 4) == there
    shutil.rmtree(dirs.two, ignore_errors=True)
    dirs.two.unlink(missing_ok=True)
    saved.rename(dirs.two)
    async with dirs.broker() as broker:
        assert offline(broker, "t", 4) == set()


async def test_a_broker_starts_without_a_directory_whose_stray_cannot_be_set_aside(
    dirs: Dirs,
) -> None:
    """Kafka: LogManager.loadLogs. Its other logs are not handled then: some may lack a topic id."""
    there = await dirs.filled()
    shutil.copytree(dirs.two / f"t-{min(there)}", dirs.two / "a-0")
    (dirs.two / f"t-{max(there)}" / "partition.metadata").unlink()
    with structlog.testing.capture_logs() as logs:
        async with dirs.broker(files=NoStrays(dirs.two)) as broker:
            assert broker.failure is None
            assert offline(broker, "t", 4) == there
            answer = await ask_broker(broker, DescribeLogDirsRequest(topics=None), 4)
            errors = {row.log_dir: row.error_code for row in answer.results}
            assert errors == {str(dirs.one): 0, str(dirs.two): ErrorCode.KAFKA_STORAGE_ERROR}
    (said,) = (row for row in logs if row["event"] == "log_directory_failed")
    assert (said["path"], said["log_level"]) == (str(dirs.two), "critical")
    assert {path.name for path in dirs.one.glob("t-*")} == {f"t-{i}" for i in {0, 1, 2, 3} - there}
    async with dirs.broker() as broker:
        assert offline(broker, "t", 4) == set()
    assert [path.name[:3] for path in dirs.two.glob("*-stray")] == ["a-0"]


class Full(PosixFiles):
    """No room in one of the directories. path: that one."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def space(self, path: str) -> Space:
        found = super().space(path)
        return Space(found.total_bytes, 0) if path == str(self._path) else found


async def test_a_directory_that_is_bad_at_a_start_does_not_count_as_full(dirs: Dirs) -> None:
    """Its being full, which is not checked any more, would slow down producing to the others."""
    await dirs.filled()
    async with dirs.broker(files=Full(dirs.two)) as broker:
        assert broker.rooms.disks.disk_space.full == {str(dirs.two)}
    (dirs.two / "recovery-point-offset-checkpoint").unlink()
    (dirs.two / "recovery-point-offset-checkpoint").mkdir()
    async with dirs.broker(files=Full(dirs.two)) as broker:
        assert broker.rooms.disks.log_dirs.failed == [str(dirs.two)]
        assert broker.rooms.disks.disk_space.full == set()
        assert set(broker.rooms.disks.disk_space.rooms) == {str(dirs.one)}


async def test_a_start_is_refused_if_strays_cannot_be_set_aside_in_any_directory(
    dirs: Dirs,
) -> None:
    there = await dirs.filled()
    for path in (dirs.one, dirs.two):
        shutil.copytree(dirs.two / f"t-{min(there)}", path / "a-0")
    with pytest.raises(StartError, match=f"^log directory {dirs.two}: .*Input/output error"):
        await dirs.broker(files=NoStrays(dirs.one, dirs.two)).__aenter__()


async def test_without_any_directory_that_is_good_the_start_is_refused_in_one_line(
    dirs: Dirs,
) -> None:
    await dirs.filled()
    dirs.open_store = metadata_in(dirs.one / "logfleet-metadata.db")
    for path in (dirs.one, dirs.two):
        (path / "recovery-point-offset-checkpoint").unlink()
        (path / "recovery-point-offset-checkpoint").mkdir()
    with pytest.raises(StartError, match=f"^log directory {dirs.two}: .*recovery-point"):
        await dirs.broker().__aenter__()
    bad = [dirs.path / name for name in ("bad", "worse")]
    for path in bad:
        path.write_text("no directory")
    with pytest.raises(StartError, match=f"^log directory {bad[1]}: .*"):
        await dirs.broker(*bad).__aenter__()


async def test_no_cluster_is_begun_while_a_directory_cannot_be_read(
    dirs: Dirs, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It may hold an older cluster's data; the readable directories may have lost their disks."""
    dirs.open_store = metadata_in(dirs.path / "metadata.db")
    dirs.given = ELSEWHERE
    dirs.two.write_text("no directory")
    with pytest.raises(StartError, match=f"no new cluster is created .*{dirs.two}"):
        await dirs.broker().__aenter__()
    assert not (dirs.one / "meta.properties").exists()


async def test_a_directory_that_another_process_uses_refuses_the_start(dirs: Dirs) -> None:
    """Kafka: LogManager.lockLogDirs. It is not bad, so nothing of it may be taken for lost."""
    await dirs.filled()
    lock = PosixFiles().lock(str(dirs.two / ".lock"), "somebody")
    with pytest.raises(StartError, match=f"{dirs.two} is in use by somebody"):
        await dirs.broker().__aenter__()
    lock.release()


async def test_the_cluster_knows_what_a_failed_directory_holds(dirs: Dirs, until) -> None:
    """KIP-858: while it runs, after restarts, and no more once the directory is back."""
    there = await dirs.filled()
    async with dirs.broker() as broker:
        assert await no_leader(broker, "t") == set()
        await create_topic(broker, "__consumer_offsets", 2)
        groups = {path.name for path in dirs.two.glob("__consumer_offsets-*")}
        (lost,) = (int(name.rpartition("-")[2]) for name in groups)
        broker.rooms.disks.failed(TopicPartition("t", min(there)), OSError("broken"))
        await until(lambda: has_leaders_but(broker, "t", there))
        assert await no_leader(broker, "t") == there
        assert offline(broker, "t", 4) == there
        await until(lambda: has_leaders_but(broker, "__consumer_offsets", {lost}))
        group = next(name for name in "abcdefgh" if partition_for(name, 2) == lost)
        found = await ask_broker(broker, FindCoordinatorRequest(key=group), 3)
        assert found.error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
        ((_, offline_partitions),) = (
            row
            for family in cluster(broker.image, broker.rooms.control.controller, broker.decisions)
            if family.metric is OFFLINE_PARTITIONS
            for row in family.rows
            if row is not None
        )
        assert offline_partitions == len(there) + 1
        epochs = [each.leader_epoch for each in states(broker, "t")]
    for _ in range(2):
        async with dirs.broker(dirs.one) as broker:
            assert await no_leader(broker, "t") == there
            for index in there:
                epoch = states(broker, "t")[index].leader_epoch
                assert epoch == epochs[index], "nobody was elected meanwhile"
    async with dirs.broker() as broker:
        assert await no_leader(broker, "t") == set()


async def test_a_directory_that_fails_while_its_partitions_begin_gets_no_empty_logs_elsewhere(
    dirs: Dirs, monkeypatch: pytest.MonkeyPatch, until
) -> None:
    """They would be served at the next start, and with the directory back it would be refused."""
    dirs.open_store = metadata_in(dirs.path / "metadata.db")
    dirs.given = ELSEWHERE
    there = await dirs.filled()
    async with dirs.broker() as broker:
        start = broker.rooms.hosting.local._start
        began = set()

        async def fails_first(key: Key, desired: DesiredState, topic: Topic) -> DesiredState:
            if not broker.rooms.disks.log_dirs.failed:
                broker.rooms.disks.failed(TopicPartition("t", min(there)), OSError("broken"))
            done = await start(key, desired, topic)
            began.add(key[1])
            return done

        monkeypatch.setattr(broker.rooms.hosting.local, "_start", fails_first)
        broker.rooms.hosting.local.lost_registration()
        registered_again(broker)
        await until(lambda: began == {0, 1, 2, 3})
        assert offline(broker, "t", 4) == there
    kept = {path.name for path in dirs.one.glob("t-*")}
    assert kept == {f"t-{index}" for index in {0, 1, 2, 3} - there}
    async with dirs.broker(dirs.one) as broker:
        assert offline(broker, "t", 4) == there
    async with dirs.broker() as broker:
        assert offline(broker, "t", 4) == set()
