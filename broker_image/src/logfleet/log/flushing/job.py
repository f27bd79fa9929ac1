"""Makes a log durable up to an offset: decided on the event loop, run in a thread."""

import errno
from collections.abc import Sequence

import msgspec

from logfleet.io.files import File, Files, is_out_of_space, write_file


class FlushJob(msgspec.Struct, frozen=True):
    """Makes everything below `end_offset` survive a power loss.

    `files` are fsynced, then each of `writes` (path, content) replaces its file, then the names in
    `directories` are made durable.
    """

    end_offset: int
    files: Sequence[File]
    writes: Sequence[tuple[str, bytes]]
    directories: Sequence[str]

    def run(self, files: Files) -> None:
        """Blocks as long as the disk takes.

        An OSError means that the log directory can no longer be trusted.

        The exception is ENOSPC: it only means that a checkpoint found no room. Records that are
        lost for want of room raise EIO.
        """
        for file in self.files:
            _sync(file)
        for path, content in self.writes:
            write_file(files, path, content, durable=True)
        for directory in self.directories:
            files.fsync_directory(directory)


def _sync(file: File) -> None:
    """Sync; ENOSPC becomes EIO: a disk that took a write and lacks room later has lost it."""
    try:
        file.fsync()
    except OSError as error:
        if not is_out_of_space(error):
            raise
        raise OSError(errno.EIO, f"not written: {error.strerror}", error.filename) from error
