import asyncio
from pathlib import Path
from types import SimpleNamespace

import pytest
import pytest_asyncio
from logfleet.io.files import PosixFiles
from logfleet.log.checkpoints.checkpointer import Checkpointer
from logfleet.log.config import LogConfig
from logfleet.log.directories.disk_space import DiskSpace
from logfleet.log.directories.free_space import DiskRoom
from logfleet.log.directories.log_dir import LogDir
from logfleet.log.directories.log_dirs import LogDirError, LogDirs
from logfleet.log.flushing.flusher import Flusher
from logfleet.log.moves.incoming import IncomingLogs
from logfleet.log.names import TopicPartition
from logfleet.log.segments.open_files import OpenFiles
from logfleet.node.partitions.leader_partition import LeaderPartition
from logfleet.node.partitions.log_moves import Future, LogMoves
from logfleet.node.partitions.partition_table import PartitionTable
from logfleet.node.partitions.replica import Replica
from logfleet.records.record import Record, build_batch
from logfleet.types import LeaderEpoch
from logfleet.wire.errors import ErrorCode

NOW = 1_700_000_000_000
TOPIC_ID = "bQrxV1XaQAyDOV5OYVsTsQ"
NAME = TopicPartition("t", 0)

pytestmark = pytest.mark.asyncio


class Rig:
    """Three directories; this broker leads the partitions of t that `add` makes.

    wait_ms: of the throttle.
    """

    def __init__(self, path: Path) -> None:
        open_files = OpenFiles(PosixFiles())
        paths = [str(path / name) for name in "abc"]
        self.dirs = LogDirs(open_files, [LogDir(open_files, each, "cluster", 1) for each in paths])
        self.a, self.b, self.c = self.dirs.dirs
        self.flusher = Flusher(open_files.files)
        self.table = PartitionTable(lambda: self)  # type: ignore[arg-type, return-value]
        self.known = 3  # partitions of the topic t, as the image has it
        self.wait_ms = 0
        self.failures: list[tuple[TopicPartition, OSError]] = []
        self.disk_space = DiskSpace(open_files.files, self.flusher, self.dirs, 0)
        throttle = SimpleNamespace(moved=lambda _: None, move_wait_ms=lambda: self.wait_ms)
        self.moves = LogMoves(
            self.table,
            self.dirs,
            self.flusher,
            Checkpointer(open_files.files, self.flusher),
            throttle=throttle,  # type: ignore[arg-type]
            disk_space=self.disk_space,
            on_disk_failure=lambda *each: self.failures.append(each),
        )

    def topic(self, name: str) -> SimpleNamespace | None:
        return SimpleNamespace(id=b"t", partitions=[None] * self.known) if name == "t" else None

    def add(self, index: int = 0, count: int = 10) -> LeaderPartition:
        log = self.a.create(TopicPartition("t", index), TOPIC_ID, LogConfig(), NOW)
        partition = LeaderPartition("t", b"t", index, log, LeaderEpoch(0))
        self.table.add(partition)
        for _ in range(count):
            partition.append(build_batch([Record(None, bytes(100), NOW)]), NOW)
        return partition

    def ask(self, path: str, name: TopicPartition = NAME) -> ErrorCode:
        return self.moves.request(name, path)


@pytest_asyncio.fixture
async def rig(tmp_path):
    made = Rig(tmp_path)
    await made.dirs.load(lambda _: LogConfig(), NOW, 1)
    running = asyncio.create_task(made.moves.run())
    yield made
    assert not running.done()
    running.cancel()
    await asyncio.wait([running])
    for log_dir in made.dirs:
        log_dir.abandon()
    made.flusher.stop()


async def test_logs_move_one_after_the_other(rig, until) -> None:
    for index in range(3):
        rig.add(index)
        assert rig.ask(rig.b.path, TopicPartition("t", index)) is ErrorCode.NONE
    assert [each.offset_lag for each in rig.moves.futures(rig.b)] == [10, 10, 10]
    assert list(rig.moves.futures(rig.c)) == []
    await until(lambda: len(rig.b.logs) == 3 and not rig.moves._wanted)
    assert (rig.a.logs, list(rig.moves.futures(rig.b)), rig.failures) == ({}, [], [])


async def test_what_is_copied_is_reported(rig, until) -> None:
    partition = rig.add()
    rig.wait_ms = 1
    rig.ask(rig.b.path)
    await until(lambda: rig.b.incoming.futures)
    assert list(rig.moves.futures(rig.b)) == [Future(NAME, partition.log.size, 0)]
    partition.append(build_batch([Record(None, bytes(100), NOW)]), NOW)
    assert [each.offset_lag for each in rig.moves.futures(rig.b)] in ([1], [])


async def test_the_present_path_ends_a_move_and_another_path_starts_a_new_one(
    rig, until, monkeypatch
) -> None:
    rig.add(count=5000)
    monkeypatch.setattr("logfleet.log.moves.log_move.LAST_BYTES", 1000)
    rig.wait_ms = 1
    rig.ask(rig.b.path)
    await until(lambda: rig.b.incoming.futures)
    assert rig.ask(rig.a.path) is ErrorCode.NONE
    assert list(rig.moves.futures(rig.b)) == []
    await until(lambda: not rig.b.incoming.futures)
    assert NAME in rig.a.logs
    rig.ask(rig.b.path)
    await until(lambda: rig.b.incoming.futures)
    rig.wait_ms = 0
    rig.ask(rig.c.path)
    await until(lambda: NAME in rig.c.logs)
    assert rig.b.incoming.futures == {}


async def test_what_cannot_be_is_refused(rig) -> None:
    rig.add()
    ask = rig.ask
    assert ask(rig.b.path, TopicPartition("t" * 220, 0)) is ErrorCode.INVALID_TOPIC_EXCEPTION
    assert ask(f"{rig.b.path}/") is ErrorCode.LOG_DIR_NOT_FOUND
    assert ask("relative") is ErrorCode.LOG_DIR_NOT_FOUND
    assert ask(rig.b.path, TopicPartition("u", 0)) is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert ask(rig.b.path, TopicPartition("t", 3)) is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    rig.dirs.take_out(rig.c)
    assert ask(rig.c.path) is ErrorCode.KAFKA_STORAGE_ERROR
    rig.table.offline.add({(b"t", 2)})
    assert ask(rig.b.path, TopicPartition("t", 2)) is ErrorCode.KAFKA_STORAGE_ERROR
    assert rig.moves._wanted == {}


async def test_a_replica_that_comes_later_is_made_where_it_was_asked_for(rig) -> None:
    name = TopicPartition("t", 1)
    rig.add()
    for path in (rig.a.path, rig.b.path, rig.c.path, rig.a.path):
        assert rig.ask(path, name) is ErrorCode.REPLICA_NOT_AVAILABLE
    rig.dirs.create(name, TOPIC_ID, LogConfig(), NOW)
    assert name in rig.a.logs  # though it holds the most


async def test_a_partition_that_is_deleted_meanwhile_moves_no_more(rig, until, monkeypatch) -> None:
    partition = rig.add(count=5000)
    monkeypatch.setattr("logfleet.log.moves.log_move.LAST_BYTES", 1000)
    rig.wait_ms = 1
    rig.ask(rig.b.path)
    await until(lambda: rig.b.incoming.futures)
    rig.table.remove(partition)
    rig.a.delete(NAME, NOW)
    await until(lambda: not rig.moves._wanted and not rig.b.incoming.futures)
    assert (rig.a.logs, rig.b.logs) == ({}, {})


async def test_another_role_goes_on_with_the_move(rig, until, monkeypatch) -> None:
    partition = rig.add(count=5000)
    monkeypatch.setattr("logfleet.log.moves.log_move.LAST_BYTES", 1000)
    rig.wait_ms = 1
    rig.ask(rig.b.path)
    await until(lambda: rig.b.incoming.futures)
    rig.table.add(Replica.of(partition))
    rig.wait_ms = 0
    await until(lambda: NAME in rig.b.logs)
    assert rig.table.replica(b"t", 0).log.log_end_offset == 5000


async def test_a_disk_that_refuses_is_reported_and_the_next_move_begins(
    rig, until, monkeypatch
) -> None:
    rig.add()
    rig.add(1)

    def refuse(*_args):
        raise OSError(5, "bad sector")

    with monkeypatch.context() as patched:
        patched.setattr(IncomingLogs, "begin", refuse)
        rig.ask(rig.b.path)
        await until(lambda: rig.failures)
    ((name, error),) = rig.failures
    assert name == NAME
    assert isinstance(error, LogDirError)
    assert error.log_dir is rig.b
    rig.ask(rig.c.path, TopicPartition("t", 1))
    await until(lambda: TopicPartition("t", 1) in rig.c.logs)
    assert NAME in rig.a.logs


async def test_a_disk_without_room_gets_nothing(rig, until, monkeypatch) -> None:
    partition = rig.add(count=5000)
    rig.disk_space.rooms[rig.b.path] = DiskRoom(1 << 40, partition.log.size - 1)
    rig.ask(rig.b.path)
    await until(lambda: not rig.moves._wanted)
    assert NAME in rig.a.logs
    rig.disk_space.rooms[rig.b.path] = DiskRoom(1 << 40, partition.log.size)
    monkeypatch.setattr("logfleet.log.moves.log_move.LAST_BYTES", 1000)
    rig.wait_ms = 1
    rig.ask(rig.b.path)
    await until(lambda: rig.b.incoming.futures)
    rig.disk_space.full.add(rig.b.path)  # others have filled it meanwhile
    await until(lambda: not rig.moves._wanted and not rig.b.incoming.futures)
    assert NAME in rig.a.logs
    assert rig.failures == []
