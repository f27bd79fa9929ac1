"""The files of a log as one value, which passes from a copy to the log that takes its place."""

import msgspec

from logfleet.log.directories.disk import Disk
from logfleet.log.directories.trash import Trash
from logfleet.log.flushing.unflushed import Unflushed
from logfleet.log.newest_batches import RecentBatches
from logfleet.log.producers.history import ProducerHistory
from logfleet.log.producers.states import ProducerStates
from logfleet.log.recovery.loader import LoadedLog
from logfleet.log.segments.open_files import OpenFiles
from logfleet.log.segments.segment import Segment


class LogFiles(msgspec.Struct, frozen=True):
    """What holds a log's batches, and what is known of it.

    disk, trash: of the log directory. segments: oldest first, the last is the active one. recent:
    the newest batches of that. unflushed: what a power loss would take.
    """

    directory: str
    disk: Disk
    trash: Trash
    segments: list[Segment]
    recent: RecentBatches
    producers: ProducerHistory
    unflushed: Unflushed

    @classmethod
    def of(
        cls, loaded: LoadedLog, directory: str, open_files: OpenFiles, trash: Trash
    ) -> "LogFiles":
        """The files of a log that was just opened in this directory."""
        return cls(
            directory,
            open_files.disk(directory.rpartition("/")[0]),
            trash,
            loaded.segments,
            RecentBatches(loaded.log_end_offset, loaded.segments[-1].size),
            loaded.producers,
            loaded.unflushed,
        )

    def renamed(self, directory: str, states: ProducerStates) -> "LogFiles":
        """The same files after their directory was renamed.

        states: of the log that takes over; they are newer than the snapshots.
        """
        self.producers.take_over(directory, states)
        self.unflushed.moved_to(directory)
        for segment in self.segments:
            segment.moved_to(directory)
        return msgspec.structs.replace(self, directory=directory)
