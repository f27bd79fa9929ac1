import errno
from pathlib import Path

import pytest
from logfleet.io.files import PosixFiles
from logfleet.log.config import LogConfig
from logfleet.log.directories.log_dir import LogDir, LogDirRefused
from logfleet.log.directories.log_dirs import LogDirs, OnDisk, inspect_directories
from logfleet.log.names import TopicPartition
from logfleet.log.segments.open_files import OpenFiles

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


def test_the_cluster_id_is_read_before_directories_are_opened(tmp_path: Path) -> None:
    files = PosixFiles()
    paths = [str(tmp_path / name) for name in ("a", "b", "c")]
    assert inspect_directories(files, paths, 1) == OnDisk(None)
    opened = LogDir(OpenFiles(files), paths[1], "mine", 1)
    opened.abandon()
    known = OnDisk("mine", directory_ids=frozenset({opened.identity.directory_id}))
    assert inspect_directories(files, paths, 1) == known
    (tmp_path / "a").write_text("no directory")
    told = inspect_directories(files, paths, 1)
    assert (told.cluster_id, list(told.unreadable)) == ("mine", [paths[0]])
    LogDir(OpenFiles(files), paths[2], "yours", 1).abandon()
    with pytest.raises(LogDirRefused, match="different clusters"):
        inspect_directories(files, paths, 1)


@pytest.mark.parametrize(
    "text, why",
    [
        ("no equals sign", "is unreadable"),
        ("", "has no cluster.id"),
        ("version=1\ncluster.id=c\nnode.id=1\n", "has no directory.id: .* before 3.7"),
        ("version=1\ncluster.id=c\nnode.id=2\ndirectory.id=d\n", "belongs to node.id=2"),
        ("version=0\nbroker.id=1\ncluster.id=c\n", "Kafka with ZooKeeper: migrate"),
    ],
)
def test_an_unusable_identity_is_refused_with_the_reason(
    tmp_path: Path, text: str, why: str
) -> None:
    (tmp_path / "meta.properties").write_text(text)
    with pytest.raises(LogDirRefused, match=why):
        inspect_directories(PosixFiles(), [str(tmp_path)], 1)
    assert (tmp_path / "meta.properties").read_text() == text


def test_two_directories_of_one_identity_are_named(tmp_path: Path) -> None:
    """With one of them absent its logs would count as lost by the other, and be created again."""
    paths = [str(tmp_path / name) for name in ("a", "b")]
    LogDir(OpenFiles(PosixFiles()), paths[0], "mine", 1).abandon()
    (tmp_path / "b").mkdir()
    (tmp_path / "b/meta.properties").write_bytes((tmp_path / "a/meta.properties").read_bytes())
    with pytest.raises(
        LogDirRefused, match=f"{paths[0]} and {paths[1]} have the same directory.id"
    ):
        inspect_directories(PosixFiles(), paths, 1)


def test_logs_without_an_identity_are_named(tmp_path: Path) -> None:
    for name in ("t-0", "t-1.0123456789abcdef0123456789abcdef-future", "lost+found", "t-2.x"):
        (tmp_path / name).mkdir()
    (tmp_path / "t-3").write_text("no directory")
    path = str(tmp_path)
    assert inspect_directories(PosixFiles(), [path], 1) == OnDisk(
        None, nameless={path: ("t-0", "t-1")}
    )


@pytest.mark.parametrize("other", ["d/", "d/../d", "link"])
def test_one_directory_that_is_listed_twice_is_named(tmp_path: Path, other: str) -> None:
    (tmp_path / "link").symlink_to(tmp_path / "d")
    paths = [f"{tmp_path}/d", f"{tmp_path}/{other}"]
    with pytest.raises(LogDirRefused, match=f"{paths[0]} and {paths[1]} are one directory"):
        inspect_directories(PosixFiles(), paths, 1)


def test_a_directory_that_is_a_circle_of_links_cannot_be_read(tmp_path: Path) -> None:
    (tmp_path / "circle").symlink_to(tmp_path / "circle")
    paths = [f"{tmp_path}/circle", f"{tmp_path}/d"]
    assert list(inspect_directories(PosixFiles(), paths, 1).unreadable) == paths[:1]


def test_a_log_that_could_not_be_made_is_made_where_it_was_begun(dirs, monkeypatch) -> None:
    first, second = dirs.dirs
    name = TopicPartition("t", 0)

    def refuse(*_args, **_how):
        raise OSError(errno.EMFILE, "Too many open files")

    for attempt in ("read_file", "LogLoader._new_segment"):
        with monkeypatch.context() as patched:
            patched.setattr(f"logfleet.log.recovery.loader.{attempt}", refuse)
            with pytest.raises(OSError, match="Too many open files"):
                dirs.create(name, ID, LogConfig(), 0)
    assert Path(first.path, "t-0").exists()
    first.create(TopicPartition("u", 0), ID, LogConfig(), 0)
    made = dirs.create(name, ID, LogConfig(), 0)
    assert dirs.dir_of(name) is first
    assert made.topic_id == ID
    assert not Path(second.path, "t-0").exists()
