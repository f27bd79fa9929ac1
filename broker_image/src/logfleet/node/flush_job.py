"""What has to reach the disk for a log to be durable up to an offset: decided on the loop, done in a thread."""

from collections.abc import Sequence

import msgspec

from logfleet.io.files import File, Files, write_file


class FlushJob(msgspec.Struct, frozen=True):
    """Makes everything below `end_offset` survive a power loss.

    files are fsynced, then `writes` (path, content) replace their files, then the names in `directories` are made durable.
    """

    end_offset: int
    files: Sequence[File]
    writes: Sequence[tuple[str, bytes]]
    directories: Sequence[str]

    def run(self, files: Files) -> None:
        """Blocks as long as the disk takes. An OSError means that the log directory can no longer be trusted."""
        for file in self.files:
            file.fsync()
        for path, content in self.writes:
            write_file(files, path, content, durable=True)
        for directory in self.directories:
            files.fsync_directory(directory)
