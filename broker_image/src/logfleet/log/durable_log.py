"""What a log has on disk, and how that becomes durable.

Blocking work is returned as a FlushJob for a thread.
"""

from collections.abc import Sequence
from typing import Self

from logfleet.log.directories.disk import Disk
from logfleet.log.directories.trash import Trash
from logfleet.log.flushing.job import FlushJob
from logfleet.log.flushing.unflushed import Stored, Unflushed
from logfleet.log.log_ends import HasEnds
from logfleet.log.log_files import LogFiles
from logfleet.log.newest_batches import RecentBatches
from logfleet.log.producers.history import ProducerHistory
from logfleet.log.segments.open_files import OpenFiles
from logfleet.log.segments.roll import NO_ROOM, SegmentRoom
from logfleet.log.segments.segment import Segment
from logfleet.replication.leader_epochs import LeaderEpochs


class DurableLog(HasEnds):
    """The files of one log; see `PartitionLog` for its attributes."""

    directory: str
    disk: Disk
    producers: ProducerHistory
    epochs: LeaderEpochs
    topic_id: str | None
    open_files: OpenFiles
    _aborted_end: int  # every marker in a transaction index is before it
    _active: Segment
    _segments: list[Segment]
    _recent: RecentBatches
    _room: SegmentRoom
    _trash: Trash
    _unflushed: Unflushed

    @property
    def size(self) -> int:
        """Bytes of all segments."""
        return sum(segment.size for segment in self._segments)

    @property
    def segments(self) -> Sequence[Segment]:
        """The log's segments, oldest first; the last is the active one."""
        return self._segments

    @property
    def unflushed(self) -> bool:
        """Whether a flush would make anything durable that is not yet."""
        return self._unflushed.differs(self._to_store())

    def _to_store(self) -> Stored:
        return Stored(self.log_end_offset, self.epochs.entries, self.topic_id)

    def begin_flush(self) -> FlushJob:
        """Begin a flush up to the present end: run the job, then call `complete_flush`."""
        snapshots = [self.producers.take(self.log_end_offset)] if self.producers.is_due else []
        return self._unflushed.begin(self._to_store(), self._segments, snapshots)

    def abandon_flush(self) -> None:
        """End a flush that found no room, or failed."""
        self._unflushed.abandoned()

    def complete_flush(self, job: FlushJob) -> None:
        """End a flush that has run: everything below its end needs no recovery."""
        if self.producers.path(job.end_offset) in (path for path, _ in job.writes):
            self.producers.on_snapshot_written(job.end_offset, self._segments, self.log_end_offset)
        self._unflushed.completed()
        self.ends.flushed(job.end_offset)

    def close(self) -> FlushJob:
        """Close the log: once the returned job has run, a start needs no recovery. Last call."""
        if not self._unflushed.is_as_closed(self._to_store()):
            self._active.finish()
            self.producers.write(self._segments, self.log_end_offset)
            self._unflushed.closed(self._active, self.log_end_offset)
        return self.begin_flush()

    def switch_to(self, future: Self, directory: str) -> None:
        """Take over the files of `future`, whose directory was just renamed to `directory`.

        It holds the same batches and is as durable: users of this log notice nothing. Changes of
        this log that began before are refused, as after a truncation.
        """
        self.ends.moved(future.ends)
        self.drop_files()
        self._take(future.all_files().renamed(directory, self.producers.states))

    def all_files(self) -> LogFiles:
        """The log's files as one value."""
        return LogFiles(
            self.directory,
            self.disk,
            self._trash,
            self._segments,
            self._recent,
            self.producers,
            self._unflushed,
        )

    def _take(self, files: LogFiles) -> None:
        self.directory, self.disk, self._trash = files.directory, files.disk, files.trash
        self._segments, self._active = files.segments, files.segments[-1]
        self._recent, self.producers = files.recent, files.producers
        self._unflushed = files.unflushed
        self._room = NO_ROOM
        self._aborted_end = self._end_of_aborted()

    def _end_of_aborted(self) -> int:
        end = self.log_end_offset
        for segment in reversed(self._segments):
            if not segment.transaction_index.is_missing:
                return end
            end = segment.base_offset
        return 0

    def drop_files(self) -> None:
        """Drop the log's files from the cache: its directory is being renamed or given up."""
        self.producers.drop_queued()
        for path in (path for segment in self._segments for path in segment.paths):
            self.open_files.drop(path)
