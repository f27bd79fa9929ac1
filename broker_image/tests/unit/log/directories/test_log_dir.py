import pytest
from logfleet.io.files import PosixFiles
from logfleet.log.checkpoints.files import parse_offsets, parse_properties
from logfleet.log.config import LogConfig
from logfleet.log.directories import trash
from logfleet.log.directories.log_dir import LogDir, LogDirRefused
from logfleet.log.names import TopicPartition
from logfleet.log.segments.open_files import OpenFiles
from logfleet.records.record import Record, build_batch

NOW = 1_700_000_000_000
TOPIC_ID = "bQrxV1XaQAyDOV5OYVsTsQ"
A0, A1, B0 = TopicPartition("a", 0), TopicPartition("a", 1), TopicPartition("b", 0)


@pytest.fixture
def path(tmp_path):
    return tmp_path / "logs"


def opened(path, *, cluster="c1", node=1, config_of=lambda _topic: LogConfig()):
    log_dir = LogDir(OpenFiles(PosixFiles()), str(path), cluster, node)
    for _ in log_dir.load(config_of, NOW):
        pass
    return log_dir


def append(log, count=1):
    for _ in range(count):
        log.append_as_leader(build_batch([Record(None, bytes(100), NOW)]), 0, NOW)


def flush(log_dir):
    for log in log_dir.logs.values():
        job = log.begin_flush()
        job.run(PosixFiles())
        log.complete_flush(job)


def purge(log_dir, now_ms):
    trash.remove(PosixFiles(), log_dir.take_removals(now_ms))


def test_a_new_directory_gets_kafkas_files(path):
    log_dir = opened(path)
    properties = parse_properties((path / "meta.properties").read_bytes())
    assert properties == {
        "version": "1",
        "cluster.id": "c1",
        "node.id": "1",
        "directory.id": log_dir.identity.directory_id,
    }
    assert len(log_dir.identity.directory_id) == 22
    log = log_dir.create(A0, TOPIC_ID, LogConfig(), NOW)
    append(log, 3)
    log_dir.close({A0: 2})
    assert sorted(file.name for file in (path / "a-0").iterdir()) == [
        "00000000000000000000.index",
        "00000000000000000000.log",
        "00000000000000000000.timeindex",
        "00000000000000000003.snapshot",
        "leader-epoch-checkpoint",
        "partition.metadata",
    ]
    assert (path / "a-0/partition.metadata").read_text() == f"version: 0\ntopic_id: {TOPIC_ID}"
    assert (path / "a-0/leader-epoch-checkpoint").read_text() == "0\n1\n0 0\n"
    assert (path / "recovery-point-offset-checkpoint").read_text() == "0\n1\na 0 3\n"
    assert (path / "replication-offset-checkpoint").read_text() == "0\n1\na 0 2\n"
    assert (path / "log-start-offset-checkpoint").read_text() == "0\n0\n"
    assert (path / ".kafka_cleanshutdown").exists()


def test_the_names_of_a_new_directory_and_its_parents_are_durable(tmp_path, monkeypatch):
    synced = []
    monkeypatch.setattr(PosixFiles, "fsync_directory", lambda _files, path: synced.append(path))
    opened(tmp_path / "broker" / "data").abandon()
    assert synced[:2] == [str(tmp_path), str(tmp_path / "broker")]
    synced.clear()
    opened(tmp_path / "broker" / "data").abandon()
    assert synced == []


def test_a_closed_directory_is_opened_as_it_was(path):
    log_dir = opened(path)
    for partition in (A0, A1, B0):
        append(log_dir.create(partition, TOPIC_ID, LogConfig(), NOW), 5)
    log_dir.logs[A1].delete_records_before(3)
    log_dir.close({A0: 4, A1: 5})
    again = opened(path)
    assert again.was_clean
    assert again.identity == log_dir.identity
    assert again.high_watermarks == {A0: 4, A1: 5}
    assert sorted(again.logs) == [A0, A1, B0]
    assert [again.logs[tp].log_end_offset for tp in (A0, A1, B0)] == [5, 5, 5]
    assert [again.logs[tp].log_start_offset for tp in (A0, A1, B0)] == [0, 3, 0]
    assert all(log.recovered_bytes == 0 for log in again.logs.values())
    assert again.logs[B0].topic_id == TOPIC_ID
    assert not (path / ".kafka_cleanshutdown").exists()


def test_a_directory_left_by_a_crash_is_recovered_from_the_recovery_point(path):
    log_dir = opened(path)
    log = log_dir.create(A0, TOPIC_ID, LogConfig(segment_bytes=1000), NOW)
    append(log, 50)
    flush(log_dir)
    log_dir.checkpoint({A0: 50}).run(PosixFiles())
    append(log, 20)
    log_dir.abandon()
    again = opened(path)
    assert not again.was_clean
    assert again.high_watermarks == {A0: 50}
    assert again.logs[A0].log_end_offset == 70
    assert 0 < again.logs[A0].recovered_bytes < 5000


def test_a_crash_while_loading_is_a_crash(path):
    log_dir = opened(path)
    append(log_dir.create(A0, TOPIC_ID, LogConfig(), NOW), 5)
    log_dir.close({})
    opened(path).abandon()
    assert not opened(path).was_clean


def test_a_directory_in_use_is_refused_in_one_line(path):
    opened(path)
    with pytest.raises(LogDirRefused, match="in use by process") as refused:
        opened(path)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize("other", [{"cluster": "c2"}, {"node": 2}])
def test_another_brokers_directory_is_refused_and_left_alone(path, other):
    opened(path).abandon()
    before = {file.name: file.read_bytes() for file in path.iterdir()}
    with pytest.raises(LogDirRefused, match="belongs to"):
        opened(path, **other)
    assert {file.name: file.read_bytes() for file in path.iterdir()} == before
    opened(path)


@pytest.mark.parametrize("content", [b"garbage\n", b"version=1\ncluster.id=c1\nnode.id=1\n"])
def test_a_damaged_identity_is_refused(path, content):
    path.mkdir()
    (path / "meta.properties").write_bytes(content)
    with pytest.raises(LogDirRefused, match=r"meta\.properties"):
        opened(path)


def test_a_directory_of_a_java_broker_is_taken(path):
    path.mkdir()
    (path / "meta.properties").write_text(
        "#\n#Tue Jan 02 03:04:05 UTC 2024\ndirectory.id=2hmyZPSRTy6VLvOESCaaxw\nversion=1\n"
        "cluster.id=c1\nnode.id=1\n"
    )
    assert opened(path).identity.directory_id == "2hmyZPSRTy6VLvOESCaaxw"


def test_a_deleted_partition_is_gone_at_once_and_its_bytes_later(path):
    log_dir = opened(path)
    config = LogConfig(file_delete_delay_ms=1000)
    log = log_dir.create(A0, TOPIC_ID, config, NOW)
    append(log, 5)
    piece = log.read(0, 1000)
    log_dir.delete(A0, NOW)
    assert A0 not in log_dir.logs
    assert not (path / "a-0").exists()
    append(log_dir.create(A0, TOPIC_ID, config, NOW))
    purge(log_dir, NOW + 999)
    assert len(list(path.glob("a-0.*-delete"))) == 1
    purge(log_dir, NOW + 1000)
    assert list(path.glob("*-delete")) == []
    assert len(piece.read()) == len(piece)
    assert log_dir.logs[A0].log_end_offset == 1


def test_what_was_being_deleted_at_a_crash_is_deleted_at_the_next_start(path):
    log_dir = opened(path)
    append(log_dir.create(A0, TOPIC_ID, LogConfig(), NOW))
    log_dir.delete(A0, NOW)
    log_dir.abandon()
    again = opened(path)
    assert again.logs == {}
    purge(again, NOW)
    assert list(path.glob("*-delete")) == []


def test_a_partition_that_was_moved_and_linked_to_is_found_and_only_its_link_deleted(
    path, tmp_path
):
    log_dir = opened(path)
    log = log_dir.create(A0, TOPIC_ID, LogConfig(file_delete_delay_ms=0), NOW)
    append(log, 5)
    log.delete_records_before(3)
    log_dir.close({})
    moved = (path / "a-0").rename(tmp_path / "elsewhere")
    (path / "a-0").symlink_to(moved)
    again = opened(path)
    found = again.logs[A0]
    assert (found.log_start_offset, found.log_end_offset) == (3, 5)
    append(found)
    flush(again)
    assert PosixFiles().status(str(moved / "00000000000000000000.log")).size == found.size
    again.delete(A0, NOW)
    purge(again, NOW + LogConfig().file_delete_delay_ms)
    assert list(path.glob("a-0*")) == []
    assert (moved / "00000000000000000000.log").exists()


def test_a_log_that_belongs_to_nothing_is_kept_under_another_name(path):
    log_dir = opened(path)
    append(log_dir.create(A0, TOPIC_ID, LogConfig(), NOW))
    kept = log_dir.set_aside(A0)
    log_dir.abandon()
    again = opened(path)
    purge(again, NOW + 10**12)
    assert again.logs == {}
    assert [str(found) for found in path.glob("*-stray")] == [kept]
    assert any("-stray" in note for note in again.notes)


def test_directories_that_are_no_partitions_are_left_alone(path):
    (path / "lost+found").mkdir(parents=True)
    log_dir = opened(path)
    assert log_dir.logs == {}
    assert any("lost+found" in note for note in log_dir.notes)


def test_each_topic_gets_its_configuration(path):
    log_dir = opened(path)
    for partition in (A0, B0):
        log_dir.create(partition, TOPIC_ID, LogConfig(), NOW)
    log_dir.close({})
    again = opened(path, config_of=lambda topic: LogConfig(retention_ms=ord(topic)))
    assert [again.logs[tp].config.retention_ms for tp in (A0, B0)] == [97, 98]


def test_a_damaged_checkpoint_costs_a_longer_recovery_only(path):
    log_dir = opened(path)
    append(log_dir.create(A0, TOPIC_ID, LogConfig(), NOW), 5)
    flush(log_dir)
    log_dir.checkpoint({A0: 5}).run(PosixFiles())
    log_dir.abandon()
    (path / "recovery-point-offset-checkpoint").write_text("0\n7\n")
    again = opened(path)
    assert again.logs[A0].log_end_offset == 5
    assert any("recovery-point" in note for note in again.notes)


def test_checkpoints_name_only_partitions_that_are_there(path):
    log_dir = opened(path)
    log_dir.create(A0, TOPIC_ID, LogConfig(), NOW)
    log_dir.create(B0, TOPIC_ID, LogConfig(), NOW)
    log_dir.delete(B0, NOW)
    log_dir.checkpoint({A0: 0, B0: 7}).run(PosixFiles())
    marks = parse_offsets((path / "replication-offset-checkpoint").read_bytes())
    assert marks == {A0: 0}


def test_checkpoints_are_behind_once_a_log_has_left_until_they_are_written(path):
    log_dir = opened(path)
    log_dir.create(A0, TOPIC_ID, LogConfig(), NOW)
    log_dir.create(B0, TOPIC_ID, LogConfig(), NOW)
    assert not log_dir.has_departed
    log_dir.delete(A0, NOW)
    job = log_dir.checkpoint({})
    log_dir.set_aside(B0)
    job.run(PosixFiles())
    for _ in log_dir.complete_checkpoint(job):
        pass
    assert log_dir.has_departed, "B0 left after it was decided what to write"
    job = log_dir.checkpoint({})
    job.run(PosixFiles())
    assert log_dir.has_departed
    for _ in log_dir.complete_checkpoint(job):
        pass
    assert not log_dir.has_departed


@pytest.mark.parametrize(
    "name",
    [
        "recovery-point-offset-checkpoint",
        "log-start-offset-checkpoint",
        "cleaner-offset-checkpoint",
        "replication-offset-checkpoint",
    ],
)
def test_a_checkpoint_that_names_a_log_which_is_not_there_is_behind(path, name):
    """A crash between the departure of a log and the checkpoints leaves that."""
    opened(path).abandon()
    (path / name).write_text("0\n1\na 0 500\n")
    again = opened(path)
    assert again.has_departed
    job = again.checkpoint({})
    job.run(PosixFiles())
    for _ in again.complete_checkpoint(job):
        pass
    assert (path / name).read_text() == "0\n0\n"
    again.abandon()
    assert not opened(path).has_departed


def test_a_checkpoint_of_compaction_that_was_not_written_is_written_by_the_next(path):
    log_dir = opened(path)
    log = log_dir.create(A0, TOPIC_ID, LogConfig(), NOW)
    append(log, 3)
    log.ends.compacted(3)
    log_dir.checkpoint({})  # and the disk has no room for it
    log_dir.checkpoint({}).run(PosixFiles())
    assert parse_offsets((path / "cleaner-offset-checkpoint").read_bytes()) == {A0: 3}
