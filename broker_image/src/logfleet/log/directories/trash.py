"""Files that are no longer part of any log, until they are removed (`file.delete.delay.ms`).

They are renamed at once, so that a restart finds them out of use; readers keep them open.
"""

from collections import deque

import msgspec

from logfleet.io.files import Files, is_out_of_space, remove_if_there, remove_tree
from logfleet.log.names import DELETED
from logfleet.log.segments.open_files import OpenFiles


class Discarded(msgspec.Struct, frozen=True):
    """A file or directory to remove once `due_ms` (wall clock) has come."""

    path: str
    due_ms: int


class Trash:
    """The files of one log directory that wait for removal."""

    def __init__(self, open_files: OpenFiles) -> None:
        self._open_files = open_files
        self._files = open_files.files
        self._waiting: deque[Discarded] = deque()

    def __len__(self) -> int:
        return len(self._waiting)

    def discard(self, path: str, due_ms: int) -> None:
        """Rename the file out of use; a missing file is no error.

        The directory of a full disk may have no room for the new name: then the file is removed at
        once.
        """
        self._open_files.drop(path)
        try:
            self._files.rename(path, path + DELETED)
        except FileNotFoundError:
            return
        except OSError as error:
            if not is_out_of_space(error):
                raise
            remove_if_there(self._files, path)
            return
        self._waiting.append(Discarded(path + DELETED, due_ms))

    def add(self, discarded: Discarded) -> None:
        """Add something that was already renamed out of use."""
        self._waiting.append(discarded)

    def take_due(self, now_ms: int) -> list[Discarded]:
        """Take out what is to be removed now, with `remove` in a thread.

        Large files take a while.
        """
        due = [discarded for discarded in self._waiting if discarded.due_ms <= now_ms]
        if due:
            self._waiting = deque(d for d in self._waiting if d.due_ms > now_ms)
        return due


def remove(files: Files, due: list[Discarded]) -> None:
    """Remove for good. A file that is already gone is no error."""
    for discarded in due:
        remove_tree(files, discarded.path)
