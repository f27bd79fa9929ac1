import errno
from pathlib import Path

import pytest
from logfleet.io.files import PosixFiles
from logfleet.log.config import LogConfig
from logfleet.log.names import TopicPartition
from logfleet.storage.log_dir import LogDir, LogDirRefused
from logfleet.storage.log_dirs import LogDirs, OnDisk, look_at
from logfleet.storage.open_files import OpenFiles

ID = "bQrxV1XaQAyDOV5OYVsTsQ"


@pytest.fixture
def dirs(tmp_path: Path):
    open_files = OpenFiles(PosixFiles())
    made = [LogDir(open_files, str(tmp_path / name), "cluster", 1) for name in ("a", "b")]
    yield LogDirs(open_files, made)
    for log_dir in made:
        log_dir.abandon()


def test_new_logs_go_where_there_are_fewest(dirs) -> None:
    for index in range(5):
        dirs.create(TopicPartition("t", index), ID, LogConfig(), 0)
    assert sorted(len(log_dir.logs) for log_dir in dirs) == [2, 3]
    name = TopicPartition("t", 3)
    assert name in dirs.dir_of(name).logs
    assert dirs.log_of(name).partition == name
    assert dirs.log_of(TopicPartition("t", 9)) is None
    assert dirs.dir_of(TopicPartition("t", 9)) is None


def test_a_failed_directory_is_used_no_more(dirs) -> None:
    first, second = dirs.dirs
    dirs.take_out(first)
    for index in range(3):
        dirs.create(TopicPartition("t", index), ID, LogConfig(), 0)
    assert len(second.logs) == 3
    assert dirs.failed == [first.path]


def test_the_cluster_of_data_is_known_before_it_is_opened(tmp_path: Path) -> None:
    files = PosixFiles()
    paths = [str(tmp_path / name) for name in ("a", "b", "c")]
    assert look_at(files, paths) == OnDisk(None)
    LogDir(OpenFiles(files), paths[1], "mine", 1).abandon()
    assert look_at(files, paths) == OnDisk("mine")
    (tmp_path / "a").write_text("no directory")
    told = look_at(files, paths)
    assert (told.cluster_id, list(told.unreadable)) == ("mine", [paths[0]])
    LogDir(OpenFiles(files), paths[2], "yours", 1).abandon()
    with pytest.raises(LogDirRefused, match="different clusters"):
        look_at(files, paths)
    (tmp_path / "b" / "meta.properties").write_text("no equals sign")
    with pytest.raises(LogDirRefused, match="unreadable"):
        look_at(files, paths)


def test_a_log_that_could_not_be_made_is_made_where_it_was_begun(dirs, monkeypatch) -> None:
    first, second = dirs.dirs
    name = TopicPartition("t", 0)

    def refuse(*_args, **_how):
        raise OSError(errno.EMFILE, "Too many open files")

    for attempt in ("read_file", "LogLoader._new_segment"):
        with monkeypatch.context() as patched:
            patched.setattr(f"logfleet.storage.log_loader.{attempt}", refuse)
            with pytest.raises(OSError, match="Too many open files"):
                dirs.create(name, ID, LogConfig(), 0)
    assert Path(first.path, "t-0").exists()
    first.create(TopicPartition("u", 0), ID, LogConfig(), 0)
    made = dirs.create(name, ID, LogConfig(), 0)
    assert dirs.dir_of(name) is first
    assert made.topic_id == ID
    assert not Path(second.path, "t-0").exists()
