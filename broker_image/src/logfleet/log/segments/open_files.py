"""The open files of all partitions; the least recently used ones are closed."""

import threading
from collections import OrderedDict

from logfleet.io.descriptors import OPEN_FILES_MAX
from logfleet.io.files import File, Files
from logfleet.log.directories.disk import Disk, DiskFile, OnWriteFailed


class OpenFiles:
    """A bounded cache of open files by path. limit: how many, over all log directories.

    A file that is dropped from the cache stays open while it is referenced. Thread-safe, as a start
    opens logs in several threads. on_write_failed: each is called for queued writes whose caller no
    longer waits, see Disk.
    """

    __slots__ = ("_by_path", "_disks", "_limit", "_lock", "files", "on_write_failed")

    def __init__(self, files: Files, limit: int = OPEN_FILES_MAX) -> None:
        self.files = files
        self.on_write_failed: list[OnWriteFailed] = []
        self._disks: dict[str, Disk] = {}
        self._limit = limit
        self._by_path: OrderedDict[str, File] = OrderedDict()
        self._lock = threading.Lock()

    def __len__(self) -> int:
        return len(self._by_path)

    def separate(self, limit: int) -> "OpenFiles":
        """Another cache of files on the same disks, for another thread."""
        others = OpenFiles(self.files, limit)
        others._disks = self._disks
        return others

    def disk(self, log_dir: str) -> Disk:
        """The disk of a log directory."""
        with self._lock:
            disk = self._disks.get(log_dir)
            if disk is None:
                disk = self._disks[log_dir] = Disk(log_dir, self._write_failed)
            return disk

    def get(self, path: str, *, create: bool = False) -> File:
        """The file at `path`, opened if it is not yet.

        Two threads must not ask for the same path.
        """
        try:  # on every append and read, so without the costly lock: both steps are atomic
            self._by_path.move_to_end(path)
            return self._by_path[path]
        except KeyError:  # not open, or another thread has just closed it
            pass
        opened = self.files.open(path, create=create)
        file = DiskFile(opened, self.disk(path.rsplit("/", 2)[0]))
        with self._lock:
            self._by_path[path] = file
            if len(self._by_path) > self._limit:
                self._by_path.popitem(last=False)
        return file

    def drop(self, path: str) -> None:
        """Drop the file from the cache, because it was renamed, removed or replaced."""
        with self._lock:
            self._by_path.pop(path, None)
        disk = self._disks.get(path.rsplit("/", 2)[0])
        if disk is not None:
            disk.drop(path)

    def _write_failed(self, path: str, error: OSError) -> None:
        assert self.on_write_failed, f"no handler for a failed write to {path}: {error}"
        for callback in self.on_write_failed:
            callback(path, error)
