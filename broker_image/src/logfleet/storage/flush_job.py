"""What has to reach the disk for a log to be durable up to an offset: decided on the loop, done in a thread."""

import errno
from collections.abc import Sequence

import msgspec

from logfleet.io.files import File, Files, is_out_of_space, write_file


class FlushJob(msgspec.Struct, frozen=True):
    """Makes everything below `end_offset` survive a power loss.

    files are fsynced, then `writes` (path, content) replace their files, then the names in `directories` are made durable.
    """

    end_offset: int
    files: Sequence[File]
    writes: Sequence[tuple[str, bytes]]
    directories: Sequence[str]

    def run(self, files: Files) -> None:
        """Blocks as long as the disk takes. An OSError means that the log directory can no longer be trusted.

        ENOSPC means no more than that a checkpoint found no room: records that a disk loses for want of it are EIO.
        """
        for file in self.files:
            _sync(file)
        for path, content in self.writes:
            write_file(files, path, content, durable=True)
        for directory in self.directories:
            files.fsync_directory(directory)


def _sync(file: File) -> None:
    """A disk that takes a write and has no room for it later has lost it: that is no mere want of room."""
    try:
        file.fsync()
    except OSError as error:
        if not is_out_of_space(error):
            raise
        raise OSError(errno.EIO, f"not written: {error.strerror}", error.filename) from error
