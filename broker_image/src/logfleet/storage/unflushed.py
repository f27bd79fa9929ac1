"""What a power loss would take of a log, and so what a flush has to bring to the disk: one state, and what each event does to it.

Most of it follows from comparing the log with what is stored of it, so that appends, new epochs and a new topic id are not told here. Told
is what leaves no such trace: files below the recovery point that changed, and names that were made, changed or removed.
"""

from collections.abc import Sequence
from typing import Final

import msgspec

from logfleet.io.files import Files
from logfleet.log.checkpoints import format_epochs, format_partition_metadata
from logfleet.log.epochs import EpochStart
from logfleet.log.names import LEADER_EPOCHS, PARTITION_METADATA
from logfleet.storage.flush_job import FlushJob
from logfleet.storage.segment import Segment, segment_number

NOT_CLOSED: Final = -1


class Stored(msgspec.Struct, frozen=True):
    """What is on the disk of a log, or should be.

    end_offset: every batch below it. epochs, topic_id: what leader-epoch-checkpoint and partition.metadata say; None without the latter.
    """

    end_offset: int
    epochs: tuple[EpochStart, ...]
    topic_id: str | None


class _Flush(msgspec.Struct, frozen=True):
    """A flush under way: how the log was when it began, and what it has taken from those that have to be flushed."""

    log: Stored
    segments: Sequence[Segment]
    directories: set[str]


class Unflushed:
    """Of one log. stored: what the disk surely has; its end is the recovery point.

    segments: changed below the recovery point: rebuilt, rolled, or not flushed for want of room. They need not be in the log any more.
    closed_end: where the log ended when its indexes and producers were last complete on the disk, NOT_CLOSED if it was cut since.
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
        """is_new: the directory was made just now, with its partition.metadata."""
        self.stored = stored
        self._files = files
        self._directory = directory
        self._parent = directory.rpartition("/")[0] or "."
        self._segments = set(segments)
        self._directories = {self._parent} if is_new else set()  # whose names are not durable
        if (
            closed_end == NOT_CLOSED
        ):  # it is new, or nobody knows what was made before a crash, or indexes are made anew
            self.renamed()
        self._closed_end = closed_end
        self._flush: _Flush | None = None

    @property
    def is_flushing(self) -> bool:
        return self._flush is not None

    def differs(self, log: Stored) -> bool:
        """Whether a flush of the log as it is would make anything durable that is not yet."""
        return log != self.stored or bool(self._directories)

    def is_as_closed(self, log: Stored) -> bool:
        """Whether the disk has all that closing the log as it is would bring there."""
        return log.end_offset == self._closed_end and not self.differs(log)

    # What happens to the log

    def renamed(self) -> None:
        """Files in its directory were made, renamed or removed."""
        self._directories.add(self._directory)

    def rolled(self, closed: Segment) -> None:
        """This segment has got its last index entries: it is no longer the active one."""
        self._segments.add(closed)
        self.renamed()

    def lowered(self, end_offset: int) -> None:
        """What lies behind is about to be cut off, and to be written anew."""
        end_offset = min(self.stored.end_offset, end_offset)
        self.stored = msgspec.structs.replace(self.stored, end_offset=end_offset)
        self._closed_end = NOT_CLOSED

    def truncated(self, active: Segment) -> None:
        """The log was cut, in this segment."""
        self._segments.add(active)
        self.renamed()

    def closed(self, active: Segment, end_offset: int) -> None:
        """Indexes and producers were completed, to be flushed for the last time."""
        self.rolled(active)
        self._closed_end = end_offset

    def moved_to(self, directory: str) -> None:
        """The log's directory goes by another name, durably by the time of the next flush."""
        if self._directory in self._directories:
            self._directories = (self._directories - {self._directory}) | {directory}
        self._directory = directory

    # Flushing

    def begin(
        self, log: Stored, segments: Sequence[Segment], snapshots: Sequence[tuple[str, bytes]]
    ) -> FlushJob:
        """What makes the log durable as it is: run it, then say `completed` or, as after an OSError here, `abandoned`.

        segments: all of the log, oldest first. snapshots: (path, content) to be written besides.
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
        """Those of the log's segments that hold anything that is not durable."""
        first = len(segments)
        if self.stored.end_offset < log.end_offset:
            first = segment_number(segments, self.stored.end_offset)
        told = self._segments
        return [*(each for each in segments[:first] if told and each in told), *segments[first:]]

    def completed(self) -> None:
        """The job has run."""
        assert self._flush is not None
        self.stored, self._flush = self._flush.log, None

    def abandoned(self) -> None:
        """The flush found no room, or an error: nothing of it counts, and the next one does it all again."""
        assert self._flush is not None
        for segment in self._flush.segments:
            segment.distrust_durability()
        self._segments.update(self._flush.segments)
        self._directories |= self._flush.directories
        self._flush = None


def topic_id_file(directory: str, topic_id: str) -> tuple[str, bytes]:
    """Path and content of the file that says whose a log is. topic_id: Kafka's text form."""
    return f"{directory}/{PARTITION_METADATA}", format_partition_metadata(topic_id)
