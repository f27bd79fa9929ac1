"""Decides what follows from a disk error of a log: the one policy for disks.

A disk that fails is not used again (KIP-112). A full disk goes on without new records
(`logfleet.log.directories.disk_space`). Running out of file descriptors says nothing about the
disk: clients and the broker retry. A disk that is held up for so long that its queue is full
refuses appends, which clients retry (`logfleet.log.directories.disk`).
"""

from collections.abc import Callable, Iterable

import structlog

from logfleet.io.files import is_out_of_descriptors, is_out_of_space
from logfleet.io.logging import LogLimiter
from logfleet.log.directories.disk import DiskBusy
from logfleet.log.directories.disk_space import DiskSpace
from logfleet.log.directories.log_dir import LogDir
from logfleet.log.directories.log_dirs import LogDirs
from logfleet.log.names import TopicPartition
from logfleet.log.partition_log import PartitionLog

log = structlog.get_logger(__name__)

OnDiskFailure = Callable[[TopicPartition, OSError], None]
"""Called when an operation on the disk failed for a partition's log; in a broker it is a
DiskFailure."""


class DiskFailure:
    """on_directory_failed: each is called with the logs of a directory that has failed.

    fail: called with the reason if the broker cannot go on.
    """

    def __init__(
        self,
        log_dirs: LogDirs,
        disk_space: DiskSpace,
        *,
        fail: Callable[[str], None],
    ) -> None:
        self._log_dirs = log_dirs
        self._disk_space = disk_space
        self.on_directory_failed: list[Callable[[Iterable[PartitionLog]], None]] = []
        self._fail = fail
        self._out_of_descriptors = LogLimiter()
        self._busy = LogLimiter()

    def __call__(self, name: TopicPartition, error: OSError) -> None:
        """Act on an error of the disk in an operation for a partition's log."""
        if is_out_of_descriptors(error):
            if count := self._out_of_descriptors.count_event():
                log.error("out_of_descriptors", error=str(error), count=count)
            return
        if isinstance(error, DiskBusy):
            if count := self._busy.count_event():
                log.error("disk_busy", path=error.filename, count=count)
            return
        log_dir = self._log_dirs.failed_directory(name, error)
        if log_dir is not None:
            self._failed(log_dir, str(name), error)

    def write_failed(self, path: str, error: OSError) -> None:
        """A queued write failed; its caller no longer waits for it (see Disk)."""
        for log_dir in self._log_dirs:
            if path.startswith(f"{log_dir.path}/"):
                self._failed(log_dir, path.rsplit("/", 2)[1], error)

    def _failed(self, log_dir: LogDir, partition: str, error: OSError) -> None:
        if is_out_of_space(error):
            self._disk_space.on_full(log_dir.path)
            return
        log.critical(
            "log_directory_failed", path=log_dir.path, partition=partition, error=str(error)
        )
        for callback in self.on_directory_failed:
            callback(log_dir.logs.values())
        self._log_dirs.take_out(log_dir)
        self._disk_space.drop(log_dir.path)
        if not self._log_dirs.dirs:
            self._fail(f"no log directory is left: {error}")
