"""A producer snapshot that a held-up disk's thread writes, as a roll must not wait for the disk."""

import contextlib
from collections.abc import Sequence

from logfleet.io.files import Files, Writable, remove_if_there, write_file

AT_ROLL = ".roll"
"""Distinguishes the writer at a roll: a flush may write a snapshot of the same name meanwhile."""


class QueuedSnapshot:
    """One snapshot, in the place of a file among the writes of `log.directories.disk.Disk`.

    superseded: paths of the snapshots to remove once it is written. is_wanted: cleared once it is
    not to be written any more, as its segment or directory is gone. is_done: nothing is left to do.
    """

    def __init__(self, files: Files, path: str, superseded: Sequence[str]) -> None:
        self.path = path
        self.is_wanted = True
        self.is_done = False
        self._files = files
        self._superseded = superseded

    def pwrite(self, data: Writable, position: int) -> None:
        """Make `data` the file's whole content."""
        assert position == 0, "a snapshot is written whole"
        with contextlib.suppress(FileNotFoundError):  # its directory was renamed or removed
            if self.is_wanted:
                self._write(data)
        self.is_done = True

    def _write(self, data: Writable) -> None:
        write_file(self._files, self.path, data, durable=False, writer=AT_ROLL)
        if not self.is_wanted:  # since it was begun: another log may have its directory's name
            remove_if_there(self._files, self.path)
            return
        for path in self._superseded:
            remove_if_there(self._files, path)
