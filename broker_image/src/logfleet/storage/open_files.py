"""Open files of all partitions, the least recently used ones closed again."""

import threading
from collections import OrderedDict

from logfleet.io.descriptors import OPEN_FILES_MAX
from logfleet.io.files import File, Files


class OpenFiles:
    """A bounded cache of open files by path. limit: how many of them, over all log directories.

    A file that is dropped from the cache stays open for whoever still refers to it. At a start logs are opened in several threads.
    """

    __slots__ = ("_by_path", "_limit", "_lock", "files")

    def __init__(self, files: Files, limit: int = OPEN_FILES_MAX) -> None:
        self.files = files
        self._limit = limit
        self._by_path: OrderedDict[str, File] = OrderedDict()
        self._lock = threading.Lock()

    def __len__(self) -> int:
        return len(self._by_path)

    def get(self, path: str, *, create: bool = False) -> File:
        """The file at `path`, opened if it is not yet. No two threads may ask for the same one."""
        with self._lock:
            file = self._by_path.get(path)
            if file is not None:
                self._by_path.move_to_end(path)
                return file
        file = self.files.open(path, create=create)
        with self._lock:
            self._by_path[path] = file
            if len(self._by_path) > self._limit:
                self._by_path.popitem(last=False)
        return file

    def forget(self, path: str) -> None:
        """Drop the file from the cache, because it was renamed, removed or replaced."""
        with self._lock:
            self._by_path.pop(path, None)
