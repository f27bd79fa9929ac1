"""All entries of `log.dirs` together: where a partition's log is, or where a new one goes."""

import errno
from collections.abc import Iterator, Sequence
from pathlib import Path

from logfleet.control.log_directories import LogDirectories
from logfleet.io.files import Files, read_file
from logfleet.log.checkpoints import CorruptCheckpoint, parse_properties
from logfleet.log.config import LogConfig
from logfleet.log.names import META_PROPERTIES, TopicPartition
from logfleet.node.log_dir import LogDir, LogDirRefused
from logfleet.node.open_files import OpenFiles
from logfleet.node.partition_log import PartitionLog


def cluster_id_on_disk(files: Files, paths: Sequence[str]) -> str | None:
    """cluster.id that the directories were written for; None if none of them holds anything.

    Raises LogDirRefused if they disagree or cannot be read.
    """
    found: dict[str, str] = {}
    for path in paths:
        data = read_file(files, str(Path(path) / META_PROPERTIES))
        if data is None:
            continue
        try:
            found[path] = parse_properties(data)["cluster.id"]
        except (CorruptCheckpoint, KeyError) as error:
            raise LogDirRefused(f"{path}/{META_PROPERTIES} is unreadable: {error}") from error
    if len(set(found.values())) > 1:
        raise LogDirRefused(f"log.dirs belong to different clusters: {found}")
    return next(iter(found.values()), None)


class LogNotMade(OSError):
    """A new log could not be made in this directory; errno is the cause's."""

    def __init__(self, log_dir: LogDir, cause: OSError) -> None:
        super().__init__(cause.errno, cause.strerror, cause.filename)
        self.log_dir = log_dir


class LogDirs:
    """The open log directories of a broker. A failed one is taken out, never used again, and remembered in `failed`."""

    def __init__(self, open_files: OpenFiles, dirs: Sequence[LogDir]) -> None:
        self.open_files = open_files
        self.dirs = list(dirs)
        self.failed: list[str] = []

    def __iter__(self) -> Iterator[LogDir]:
        return iter(list(self.dirs))

    def as_found(self) -> LogDirectories:
        """What the start has found: to be asked once the logs are loaded."""
        return LogDirectories(frozenset(log_dir.identity.directory_id for log_dir in self.dirs))

    def dir_of(self, partition: TopicPartition) -> LogDir | None:
        """The directory that holds the partition's log."""
        for log_dir in self.dirs:
            if partition in log_dir.logs:
                return log_dir
        return None

    def log_of(self, partition: TopicPartition) -> PartitionLog | None:
        log_dir = self.dir_of(partition)
        return None if log_dir is None else log_dir.logs[partition]

    def refuse_duplicates(self) -> None:
        """After loading and without strays: LogDirRefused if a partition has two logs (Kafka: LogManager.loadLog)."""
        seen: dict[TopicPartition, LogDir] = {}
        for log_dir in self.dirs:
            for partition in log_dir.logs:
                first = seen.setdefault(partition, log_dir)
                if first is not log_dir:
                    raise LogDirRefused(
                        f"{partition} has two logs, {first.path}/{partition} and {log_dir.path}/{partition}: "
                        "take one of them away, rather the one in the directory that failed or was away last"
                    )

    def create(
        self, partition: TopicPartition, topic_id: str, config: LogConfig, now_ms: int
    ) -> PartitionLog:
        """A new log where it was begun before, else in the directory that holds the fewest (Kafka: LogManager.nextLogDirs). Raises LogNotMade."""
        if not self.dirs:
            raise OSError(errno.EIO, "no log directory is left")
        chosen = min(self.dirs, key=lambda each: (partition not in each.begun, len(each.logs)))
        try:
            return chosen.create(partition, topic_id, config, now_ms)
        except OSError as error:
            raise LogNotMade(chosen, error) from error

    def where_failed(self, partition: TopicPartition, error: OSError) -> LogDir | None:
        """The directory that an error of the partition's log is about; None if it is not used any more."""
        return error.log_dir if isinstance(error, LogNotMade) else self.dir_of(partition)

    def take_out(self, log_dir: LogDir) -> None:
        """The directory failed: its logs are no longer there, its files stay as they are."""
        self.dirs.remove(log_dir)
        self.failed.append(log_dir.path)
        log_dir.abandon()
