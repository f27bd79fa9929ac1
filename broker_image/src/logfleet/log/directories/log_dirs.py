"""All entries of `log.dirs`: where a partition's log is, and where a new one is created."""

import asyncio
import errno
import os
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Final

import msgspec
import structlog

from logfleet.io.files import Files, read_file
from logfleet.log.config import LogConfig
from logfleet.log.directories.log_dir import ConfigOf, LogDir, LogDirRefused, identity_of
from logfleet.log.names import (
    META_PROPERTIES,
    TopicPartition,
    parse_future_directory,
    parse_partition_directory,
)
from logfleet.log.partition_log import PartitionLog
from logfleet.log.recovery.loader import LoadRequest
from logfleet.log.segments.open_files import OpenFiles
from logfleet.replication.missing_directories import LogDirectories
from logfleet.types import NO_BROKER_EPOCH, BrokerEpoch

log = structlog.get_logger(__name__)

PREFERRED_MAX: Final = 10_000
"""Limit of partitions with a preferred directory, set before they move to this broker."""


class OnDisk(msgspec.Struct, frozen=True):
    """The contents of log directories before they are opened.

    cluster_id: None if none of them names a cluster. unreadable: errors by path. directory_ids: of
    the directories that have one. nameless: partitions, by the path of a directory that has logs
    and no identity.
    """

    cluster_id: str | None
    unreadable: Mapping[str, OSError] = {}
    directory_ids: frozenset[str] = frozenset()
    nameless: Mapping[str, tuple[str, ...]] = {}


def inspect_directories(files: Files, paths: Sequence[str], node_id: int) -> OnDisk:
    """Read the identities of the directories. Nothing is changed.

    Raises LogDirRefused if a directory is listed twice, is another broker's, has the same identity
    as another one or an unusable one, or if their clusters differ.
    """
    refuse_listed_twice(paths)
    found: dict[str, str] = {}
    by_id: dict[str, str] = {}
    unreadable, nameless = {}, {}
    for path in paths:
        try:
            data = read_file(files, f"{path}/{META_PROPERTIES}")
            if data is None and (logs := logs_in(files, path)):
                nameless[path] = logs
        except OSError as error:
            unreadable[path] = error
            continue
        if data is not None:
            identity = identity_of(path, data, node_id)
            found[path] = identity.cluster_id
            first = by_id.setdefault(identity.directory_id, path)
            if first is not path:
                raise LogDirRefused(
                    f"{one_identity(first, path, identity.directory_id)}. Nothing was changed"
                )
    if len(set(found.values())) > 1:
        raise LogDirRefused(f"log.dirs belong to different clusters: {found}")
    cluster_id = next(iter(found.values()), None)
    return OnDisk(cluster_id, unreadable, frozenset(by_id), nameless)


def one_identity(first: str, second: str, directory_id: str) -> str:
    """The message for two directories that have the same identity.

    Source: Kafka's MetaPropertiesEnsemble.verify.
    """
    return (
        f"{first} and {second} have the same directory.id={directory_id} in {META_PROPERTIES}: "
        "one is a copy. Take that file out of where it was copied to, and start the broker, which "
        "says what to write there"
    )


def refuse_listed_twice(paths: Sequence[str]) -> None:
    """Raise LogDirRefused if two entries of log.dirs are the same directory, links resolved."""
    seen: dict[str, str] = {}
    for path in paths:
        real = os.path.realpath(path)  # unlike Path.resolve it accepts a circle of links
        first = seen.setdefault(real, path)
        if first is not path:
            raise LogDirRefused(
                f"log.dirs: {first} and {path} are one directory, {real}: name it once"
            )


def logs_in(files: Files, path: str) -> tuple[str, ...]:
    """Partitions that have a log, or a copy of one, in the directory; none if it does not exist.

    Raises OSError.
    """
    try:
        entries = files.list_directory(path)
    except FileNotFoundError:
        return ()
    named = (
        parse_partition_directory(entry.name) or parse_future_directory(entry.name)
        for entry in entries
        if entry.is_directory
    )
    return tuple(sorted({str(each) for each in named if each is not None}))


class LogDirError(OSError):
    """A disk error that belongs to a directory but to no log in it.

    Raised by creating a log and by writing checkpoints. errno is the cause's.
    """

    def __init__(self, log_dir: LogDir, cause: OSError) -> None:
        super().__init__(cause.errno, cause.strerror, cause.filename)
        self.log_dir = log_dir


class LogDirs:
    """The open log directories of a broker.

    A failed one is taken out and never used again; its path is kept in `failed`. moving: partitions
    whose logs are being copied to another directory, and must not be compacted meanwhile.
    """

    def __init__(self, open_files: OpenFiles, dirs: Sequence[LogDir]) -> None:
        self.open_files = open_files
        self.dirs = list(dirs)
        self.failed: list[str] = []
        self.moving: set[TopicPartition] = set()
        self._preferred: dict[TopicPartition, LogDir] = {}
        self._bad: set[str] = set()
        self._is_settled = False
        self._last_reason = ""

    def __iter__(self) -> Iterator[LogDir]:
        return iter(list(self.dirs))

    def open_each(self, paths: Sequence[str], cluster_id: str, node_id: int) -> Iterator[LogDir]:
        """Open them one by one, skipping those with disk errors.

        Source: Kafka's LogManager.createAndValidateLogDirs. Raises LogDirRefused if one is in use
        or not this broker's, and at the end if none is left.
        """
        for path in paths:
            try:
                log_dir = LogDir(self.open_files, path, cluster_id, node_id)
            except OSError as error:
                self.failed.append(path)
                self._bad.add(path)
                self._record_bad(path, error)
            else:
                self.dirs.append(log_dir)
                yield log_dir
        self.refuse_none()

    async def load(self, config_of: ConfigOf, now_ms: int, threads: int) -> None:
        """Open all logs, skipping directories that cannot be read; slow after a crash.

        Raises LogDirRefused if none is left. threads: logs that are opened at the same time in each
        directory (num.recovery.threads.per.data.dir).
        """
        if len({log_dir.broker_epoch for log_dir in self.dirs}) > 1:
            self.distrust()  # some directories were not in use in the last run
        async with asyncio.TaskGroup() as tasks:
            for log_dir in self:
                tasks.create_task(self._load(log_dir, config_of, now_ms, threads))
        for log_dir in self:
            self._finish_moves(log_dir, now_ms)
        self.refuse_none()

    async def _load(self, log_dir: LogDir, config_of: ConfigOf, now_ms: int, threads: int) -> None:
        was_clean = log_dir.was_clean
        try:
            await _open_all(log_dir, log_dir.begin_load(config_of, now_ms), threads)
        except OSError as error:
            self.fail_at_start(log_dir, error)
            return
        log_dir.complete_load()
        for partition, opened in log_dir.logs.items():
            for note in opened.notes:
                log.warning("log_recovered", partition=str(partition), note=note)
        for note in log_dir.notes:
            log.warning("log_directory_note", note=note)
        log.info(
            "logs_loaded",
            path=log_dir.path,
            partitions=len(log_dir.logs),
            was_clean=was_clean,
            lost_nothing=log_dir.lost_nothing,
        )

    def _finish_moves(self, log_dir: LogDir, now_ms: int) -> None:
        """Finish or undo moves that a stop interrupted, so that each log is in one directory.

        The log is in the new directory if the copy there already had the log's name. The record of
        its origin stays while the old directory is absent: that directory may return. Unfinished
        copies are removed, unless the log exists nowhere else.
        """
        by_id = {each.identity.directory_id: each for each in self.dirs}
        for name, origin in list(log_dir.incoming.origins.items()):
            source = by_id.get(origin)
            if source is None or log_dir not in self.dirs:
                continue
            try:
                if name in log_dir.logs and name in source.logs:
                    log.info("move_completed", partition=str(name), path=log_dir.path)
                    source.delete(name, now_ms)
                source.make_names_durable()
            except OSError as error:
                self.fail_at_start(source, error)
                continue
            try:
                log_dir.incoming.record_origin(name, None)
            except OSError as error:
                self.fail_at_start(log_dir, error)
                return
        for name, path in log_dir.incoming.found:
            if self.log_of(name) is not None:
                log_dir.incoming.drop_found(path, now_ms)
            else:
                log.warning("log_directory_note", note=f"{path} is a copy of no log that is here")

    def found_at_start(self) -> LogDirectories:
        """The directories as found at the start.

        Call it once the logs are loaded and the strays set aside.
        """
        online = frozenset(log_dir.identity.directory_id for log_dir in self.dirs)
        return LogDirectories(online, frozenset(self._bad))

    @property
    def previous_epoch(self) -> BrokerEpoch:
        """The broker epoch of the previous run on all directories, which a registration sends.

        NO_BROKER_EPOCH if a directory has none or another one, or cannot be read (Kafka:
        LogManager.readBrokerEpochFromCleanShutdownFiles).
        """
        epochs = {log_dir.broker_epoch for log_dir in self.dirs}
        epoch = epochs.pop() if len(epochs) == 1 and not self.failed else None
        return NO_BROKER_EPOCH if epoch is None else epoch

    @property
    def lost_nothing(self) -> bool:
        """Whether everything written before is there, except what the cluster does not count on.

        A registration sends it (KIP-966). Valid once the logs are loaded. A directory that cannot
        be read counts as lost until `settle`.
        """
        return self._is_settled or not (
            self._bad or any(not log_dir.lost_nothing for log_dir in self.dirs)
        )

    def distrust(self) -> None:
        """Count all directories as possibly old copies, even if they were closed properly.

        Call it before the logs are loaded.
        """
        for log_dir in self.dirs:
            log_dir.lost_nothing = False

    def settle(self, broker_epoch: BrokerEpoch) -> None:
        """The registration of this epoch is active: the cluster no longer counts on what was lost.

        Call `record_running` after this.
        """
        for log_dir in self:
            log_dir.settle(broker_epoch)
        self._is_settled = True

    def record_running(self) -> None:
        """Let the next start find what `settle` set, even if the process is killed. Blocks."""
        for log_dir in self:
            log_dir.record_running()

    def dir_of(self, partition: TopicPartition) -> LogDir | None:
        """The directory that holds the partition's log."""
        for log_dir in self.dirs:
            if partition in log_dir.logs:
                return log_dir
        return None

    def log_of(self, partition: TopicPartition) -> PartitionLog | None:
        log_dir = self.dir_of(partition)
        return None if log_dir is None else log_dir.logs[partition]

    def high_watermark_of(self, partition: TopicPartition) -> int:
        """The last checkpointed high watermark of a partition; 0 if there is none."""
        log_dir = self.dir_of(partition)
        return 0 if log_dir is None else log_dir.high_watermarks.get(partition, 0)

    def fail_at_start(self, log_dir: LogDir, error: OSError) -> None:
        """Treat a directory as absent, after a disk error before anything is served."""
        self._bad.add(log_dir.identity.directory_id)
        self.take_out(log_dir)
        self._record_bad(log_dir.path, error)

    def _record_bad(self, path: str, error: OSError) -> None:
        self._last_reason = f"log directory {path}: {error}"
        log.critical("log_directory_failed", path=path, error=str(error))

    def refuse_none(self) -> None:
        """Raise LogDirRefused, with the last failure's reason, if no directory is left."""
        if not self.dirs:
            raise LogDirRefused(self._last_reason)

    def refuse_duplicates(self) -> None:
        """Raise LogDirRefused if a partition has two logs; call it after loading, without strays.

        Source: Kafka's LogManager.loadLog.
        """
        seen: dict[TopicPartition, LogDir] = {}
        for log_dir in self.dirs:
            for partition in log_dir.logs:
                first = seen.setdefault(partition, log_dir)
                if first is not log_dir:
                    raise LogDirRefused(
                        f"{partition} has two logs, {first.path}/{partition} and "
                        f"{log_dir.path}/{partition}: take one of them away, "
                        "rather the one in the directory that failed or was away last"
                    )

    def prefer(self, partition: TopicPartition, log_dir: LogDir) -> None:
        """Create the partition's log in this directory once it is needed.

        Source: Kafka's LogManager.maybeUpdatePreferredLogDir.
        """
        self._preferred.pop(partition, None)
        while len(self._preferred) >= PREFERRED_MAX:
            del self._preferred[next(iter(self._preferred))]
        self._preferred[partition] = log_dir

    def create(
        self, partition: TopicPartition, topic_id: str, config: LogConfig, now_ms: int
    ) -> PartitionLog:
        """Create a log: where it is half created, else where it is preferred.

        Otherwise in the directory that holds the fewest logs. Source: Kafka's
        LogManager.nextLogDirs. Raises LogDirError.
        """
        if not self.dirs:
            raise OSError(errno.EIO, "no log directory is left")
        preferred = self._preferred.pop(partition, None)
        chosen = min(
            self.dirs,
            key=lambda each: (
                partition not in each.half_created,
                each is not preferred,
                len(each.logs),
            ),
        )
        try:
            return chosen.create(partition, topic_id, config, now_ms)
        except OSError as error:
            raise LogDirError(chosen, error) from error

    def failed_directory(self, partition: TopicPartition, error: OSError) -> LogDir | None:
        """The directory that an error of the partition's log concerns.

        None if it is not used any more.
        """
        if isinstance(error, LogDirError):
            return error.log_dir if error.log_dir in self.dirs else None
        return self.dir_of(partition)

    def take_out(self, log_dir: LogDir) -> None:
        """Drop a failed directory and its logs; its files stay as they are."""
        self.dirs.remove(log_dir)
        self.failed.append(log_dir.path)
        log_dir.fail()


async def _open_all(
    log_dir: LogDir, named: Iterable[tuple[TopicPartition, LoadRequest]], threads: int
) -> None:
    """Open these logs of the directory with `threads` threads. Raises the first OSError."""
    rest = deque(named)
    loop = asyncio.get_running_loop()
    # However this ends, no thread works in a directory that is then given up: leaving the pool
    # waits for its threads.
    with ThreadPoolExecutor(threads, thread_name_prefix="recovery") as pool:
        try:
            await asyncio.gather(
                *(
                    loop.run_in_executor(pool, _open_some, log_dir, rest)
                    for _ in range(min(threads, len(rest)))
                )
            )
        finally:
            rest.clear()


def _open_some(log_dir: LogDir, rest: deque[tuple[TopicPartition, LoadRequest]]) -> None:
    """Open logs from the shared queue `rest`.

    An error empties it, so that the other threads stop, too.
    """
    try:
        while True:
            try:
                partition, request = rest.popleft()
            except IndexError:
                return
            log_dir.open(partition, request)
    finally:
        rest.clear()
