"""One truncation of a log, or its emptying: decided on the loop, done in a thread.

`Truncater` carries it out. Files are removed newest first, and durably before their offsets are
used again: after a crash at any moment the directory holds a prefix of the old log or of the new
one. Until `PartitionLog.complete_truncation` the log in memory is the old one.
"""

import errno
from collections.abc import Collection, Sequence

from logfleet.io.files import remove_if_there
from logfleet.log.producers.history import ProducerHistory
from logfleet.log.segments.open_files import OpenFiles
from logfleet.log.segments.segment import Segment, segment_number
from logfleet.types import FILE_START


class Truncation:
    """Call first `find`, then `run`; their results are in the attributes.

    offset: the batch that holds it is cut off, with everything behind. empties: everything is, and
    the log begins at `offset`. A log that would keep nothing above its start is emptied, too, and
    begins there or at `offset`, whichever is lower. snapshots: their offsets.

    segments, producers, end_offset: of the new log. is_emptied: no batch is left. notes: messages
    for the operator.
    """

    producers: ProducerHistory

    def __init__(
        self,
        open_files: OpenFiles,
        directory: str,
        segments: Sequence[Segment],
        snapshots: Collection[int],
        *,
        offset: int,
        log_start_offset: int,
        empties: bool,
        interval_bytes: int,
        now_ms: int,
    ) -> None:
        self.segments: list[Segment] = []
        self.end_offset = offset
        self.is_emptied = empties
        self.notes: list[str] = []
        self._open_files = open_files
        self._files = open_files.files
        self._directory = directory
        self._old = segments
        self._snapshots = snapshots
        self._offset = offset
        self._position = FILE_START
        self._log_start_offset = log_start_offset
        self._interval_bytes = interval_bytes
        self._now_ms = now_ms

    def find(self) -> None:
        """Find where the log is to end; changes nothing. Blocks. Raises OSError."""
        if self.is_emptied:
            return
        number = segment_number(self._old, self._offset)
        last = self._old[number].copy(self._open_files)
        self._position = last.position_of(self._offset)
        self.end_offset = last.end_before(self._position)
        self.segments = [*self._old[:number], last]
        if self.end_offset < self._log_start_offset:
            self.is_emptied = True
            self.end_offset = min(self._offset, self._log_start_offset)

    def run(self) -> None:
        """Bring the log's files into the new state, durably. Blocks.

        Raises OSError: then their state is unknown until the next start. The errno is EIO even if a
        retry could work, as the log cannot be used.
        """
        try:
            self._cut()
        except OSError as error:
            reason = f"truncated half way: {error.strerror}"
            raise OSError(errno.EIO, reason, error.filename or self._directory) from error

    def _cut(self) -> None:
        # a snapshot that a roll has queued must not be written behind the new end afterwards
        self._open_files.disk(self._directory.rpartition("/")[0]).drain()
        self._remove(self._old[len(self.segments) :])
        self.producers = ProducerHistory(self._files, self._directory, self._snapshots)
        if self.segments:
            last = self.segments[-1]
            end_offset = last.truncate(self._position)
            last.file.fsync()
            self.notes = self.producers.restore(self.segments, end_offset)
        else:
            self.producers.clear()
        if self.is_emptied:
            self._remove(self.segments)
            self._begin()
        self._files.fsync_directory(self._directory)

    def _remove(self, segments: Sequence[Segment]) -> None:
        """Remove newest first, so that a crash leaves a log. Readers keep the files open."""
        for segment in reversed(segments):
            for path in segment.paths:
                self._open_files.drop(path)
                remove_if_there(self._files, path)
        if segments:
            self._files.fsync_directory(self._directory)

    def _begin(self) -> None:
        created = Segment.create(
            self._open_files,
            self._directory,
            self.end_offset,
            interval_bytes=self._interval_bytes,
            created_ms=self._now_ms,
        )
        self.segments = [created]
        self.producers.write(self.segments, self.end_offset)
