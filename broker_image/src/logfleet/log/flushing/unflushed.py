"""What a power loss would take of a log, and so what a flush has to write.

One state, and the events that change it. Most of it follows from comparing the log with what is
stored of it, so that appends, new epochs and a new topic id need no event. Events report what
leaves no such trace: changed files below the recovery point, and file names that were made, changed
or removed.
"""

from collections.abc import Sequence
from typing import Final

import msgspec

from logfleet.io.files import Files
from logfleet.log.checkpoints.files import format_epochs, format_partition_metadata
from logfleet.log.flushing.job import FlushJob
from logfleet.log.names import LEADER_EPOCHS, PARTITION_METADATA
from logfleet.log.segments.segment import Segment, segment_number
from logfleet.replication.leader_epochs import EpochStart

NOT_CLOSED: Final = -1


class Stored(msgspec.Struct, frozen=True):
    """The state of a log that is on the disk, or should be.

    end_offset: every batch below it. epochs, topic_id: of leader-epoch-checkpoint and
    partition.metadata; None without the latter.
    """

    end_offset: int
    epochs: tuple[EpochStart, ...]
    topic_id: str | None


class _Flush(msgspec.Struct, frozen=True):
    """A running flush: the log when it began, and the segments and directories that it flushes."""

    log: Stored
    segments: Sequence[Segment]
    directories: set[str]


class Unflushed:
    """The unflushed parts of one log.

    stored: the state that is certainly on the disk; its end is the recovery point. segments: those
    that changed below the recovery point: rebuilt, rolled, or not flushed for want of room. They
    may have left the log since. closed_end: the log end when indexes and producers were last
    complete on the disk, NOT_CLOSED if the log was cut since.
    """

    def __init__(
        self,
        files: Files,
        directory: str,
        stored: Stored,
        *,
        segments: Sequence[Segment],
        is_new: bool,
        closed_end: int,
    ) -> None:
        """is_new: the directory was just made, with its partition.metadata."""
        self.stored = stored
        self._files = files
        self._directory = directory
        self._parent = directory.rpartition("/")[0] or "."
        self._segments = set(segments)
        self._directories = {self._parent} if is_new else set()  # whose entries are not durable
        if (
            closed_end == NOT_CLOSED
        ):  # new, or files may have been made before a crash, or indexes are rebuilt
            self.renamed()
        self._closed_end = closed_end
        self._flush: _Flush | None = None

    @property
    def is_flushing(self) -> bool:
        return self._flush is not None

    def differs(self, log: Stored) -> bool:
        """Whether a flush of the present log would make anything durable that is not yet."""
        return log != self.stored or bool(self._directories)

    def is_as_closed(self, log: Stored) -> bool:
        """Whether closing the present log would write nothing."""
        return log.end_offset == self._closed_end and not self.differs(log)

    # What happens to the log

    def renamed(self) -> None:
        """Record that files in the log's directory were made, renamed or removed."""
        self._directories.add(self._directory)

    def rolled(self, closed: Segment) -> None:
        """Record that a segment got its last index entries: it is no longer the active one."""
        self._segments.add(closed)
        self.renamed()

    def lowered(self, end_offset: int) -> None:
        """Record that everything behind `end_offset` will be cut off, and written again."""
        end_offset = min(self.stored.end_offset, end_offset)
        self.stored = msgspec.structs.replace(self.stored, end_offset=end_offset)
        self._closed_end = NOT_CLOSED

    def truncated(self, active: Segment) -> None:
        """Record that the log was cut in this segment."""
        self._segments.add(active)
        self.renamed()

    def closed(self, active: Segment, end_offset: int) -> None:
        """Record that the log is being closed: its indexes and producer snapshot are written.

        The last flush makes them durable.
        """
        self.rolled(active)
        self._closed_end = end_offset

    def moved_to(self, directory: str) -> None:
        """Use the new path of the log's directory; the rename is durable by the next flush."""
        if self._directory in self._directories:
            self._directories = (self._directories - {self._directory}) | {directory}
        self._directory = directory

    # Flushing

    def begin(
        self, log: Stored, segments: Sequence[Segment], snapshots: Sequence[tuple[str, bytes]]
    ) -> FlushJob:
        """The job that makes the present log durable.

        Run it, then call `completed` or, also after an OSError here, `abandoned`. segments: all of
        the log, oldest first. snapshots: (path, content) to be written as well.
        """
        assert not self.is_flushing, "one flush at a time"
        changed, directories = self._changed(log, segments), self._directories
        self._flush = _Flush(log, changed, directories)
        self._segments, self._directories = set(), set()
        files = [file for segment in changed for file in segment.take_changed()]
        if self._parent in directories and self.stored.topic_id is not None:
            files.append(self._files.open(f"{self._directory}/{PARTITION_METADATA}"))
        writes = list(snapshots)
        if log.epochs != self.stored.epochs:
            writes.append((f"{self._directory}/{LEADER_EPOCHS}", format_epochs(log.epochs)))
        if log.topic_id is not None and log.topic_id != self.stored.topic_id:
            writes.append(topic_id_file(self._directory, log.topic_id))
        return FlushJob(log.end_offset, files, writes, sorted(directories, reverse=True))

    def _changed(self, log: Stored, segments: Sequence[Segment]) -> list[Segment]:
        """The log's segments that have changed since the last flush."""
        first = len(segments)
        if self.stored.end_offset < log.end_offset:
            first = segment_number(segments, self.stored.end_offset)
        changed = self._segments
        return [
            *(each for each in segments[:first] if changed and each in changed),
            *segments[first:],
        ]

    def completed(self) -> None:
        """End a flush whose job has run: its state is on the disk."""
        assert self._flush is not None
        self.stored, self._flush = self._flush.log, None

    def abandoned(self) -> None:
        """End a flush that found no room or failed: the next one repeats all of it."""
        assert self._flush is not None
        for segment in self._flush.segments:
            segment.sidecars.distrust_durability()
        self._segments.update(self._flush.segments)
        self._directories |= self._flush.directories
        self._flush = None


def topic_id_file(directory: str, topic_id: str) -> tuple[str, bytes]:
    """Path and content of the file that holds a log's topic id, in Kafka's text form."""
    return f"{directory}/{PARTITION_METADATA}", format_partition_metadata(topic_id)
