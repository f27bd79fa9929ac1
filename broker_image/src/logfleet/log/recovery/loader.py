"""Opens the directory of one partition, and cuts off or rebuilds what is not true.

After a clean stop only the end of the last segment is read. After a crash everything from the
recovery point on is checked: the valid prefix stays, a torn tail is cut off, indexes, leader epochs
and producer state are rebuilt from the batches (I18). Durable segments are only read if their
offset index is missing. A damaged one is then cut at the damage, and the segments behind it stay
(Kafka: `LogSegment.recover`, `LogLoader.loadSegmentFiles`).
"""

from collections.abc import Sequence
from typing import Self

import msgspec

from logfleet.io.files import read_file, remove_if_there, write_file
from logfleet.log.checkpoints.files import CorruptCheckpoint, parse_epochs, parse_partition_metadata
from logfleet.log.config import LONG_MAX, LogConfig
from logfleet.log.directories.trash import Trash
from logfleet.log.flushing.unflushed import NOT_CLOSED, Stored, Unflushed, topic_id_file
from logfleet.log.names import (
    CLEANED,
    DELETED,
    LEADER_EPOCHS,
    LOG,
    PARTITION_METADATA,
    SNAPSHOT,
    SWAP,
    TEMPORARY,
    TRANSACTION_INDEX,
    offset_file,
    parse_offset_file,
)
from logfleet.log.producers.history import NOTHING_UNINDEXED, ProducerHistory
from logfleet.log.segments import sidecars
from logfleet.log.segments.open_files import OpenFiles
from logfleet.log.segments.segment import Segment, segment_number
from logfleet.log.segments.sidecars import IfMissing
from logfleet.log.segments.swap import recover
from logfleet.records.batch import BatchHeader
from logfleet.replication.leader_epochs import EpochStart, LeaderEpochs


class LoadRequest(msgspec.Struct, frozen=True):
    """The state of a partition's log that its directory has recorded before it is opened.

    clean: its log directory was closed properly. recovery_point: everything below it is durable.
    log_start_offset: records below it are deleted, whatever the segments still hold.
    first_dirty_offset: below it the log is compacted, and batches are missing. gaps_are_damage:
    missing batches between two segments that were neither durable nor compacted count as lost, with
    everything behind them. False if it is unknown what was durable, and for a log that Kafka wrote:
    it compacts what is not durable yet, and checkpoints that afterwards. Kafka itself goes on
    behind any gap (`LogLoader.recoverLog`).
    """

    directory: str
    config: LogConfig
    clean: bool
    recovery_point: int
    log_start_offset: int
    now_ms: int
    first_dirty_offset: int = 0
    gaps_are_damage: bool = True

    @classmethod
    def of_new(
        cls, directory: str, config: LogConfig, now_ms: int, *, start_offset: int = 0
    ) -> Self:
        """The request for an empty log that was just created (`prepare_directory`)."""
        return cls(
            directory=directory,
            config=config,
            clean=True,
            recovery_point=0,
            log_start_offset=start_offset,
            now_ms=now_ms,
        )

    @property
    def compacted_end(self) -> int:
        """Segments that end at or below it may lack their last batches.

        They were durable when they were compacted. Beyond it missing batches mean that a power loss
        took them.
        """
        if not self.gaps_are_damage:
            return LONG_MAX
        return max(self.recovery_point, self.first_dirty_offset)

    @property
    def durable_end(self) -> int:
        """Everything below it was durable: what cannot be read there is damaged, not torn."""
        return LONG_MAX if self.clean else self.recovery_point


class FoundSegment(msgspec.Struct, frozen=True):
    """A segment as seen from the file names, before anything is read, and how it has to be treated.

    end_offset: where the next one begins, LONG_MAX for the last. missing: what is to be done for
    sidecars that are not there. is_unsafe: a crash may have taken some of it.
    """

    segment: Segment
    end_offset: int
    missing: frozenset[IfMissing]
    is_unsafe: bool

    @property
    def is_indexed(self) -> bool:
        """Whether it has all the sidecars that only its batches could give back."""
        return IfMissing.READ_SEGMENT not in self.missing

    @property
    def is_trusted(self) -> bool:
        """Whether it need not be read.

        Then it is durable and whole, and the next segment tells where it ends.
        """
        return self.is_indexed and not self.is_unsafe and self.end_offset != LONG_MAX

    @property
    def is_rebuilt(self) -> bool:
        """Whether the segment has sidecars in memory that are to be written."""
        return not self.is_trusted or IfMissing.REBUILD in self.missing


class LoadedLog(msgspec.Struct):
    """A partition's log as found, ready for appends.

    notes: messages for the operator about how it was found. has_lost: batches are missing or
    unreadable that would be there if the process had merely been killed.
    """

    segments: list[Segment]
    epochs: LeaderEpochs
    producers: ProducerHistory
    topic_id: str | None
    log_start_offset: int
    log_end_offset: int
    recovered_bytes: int
    unflushed: Unflushed
    notes: list[str]
    has_lost: bool


class LogLoader:
    """Loads one partition; used once."""

    def __init__(self, open_files: OpenFiles, trash: Trash, request: LoadRequest) -> None:
        self._open_files = open_files
        self._trash = trash
        self._files = open_files.files
        self._request = request
        self._notes: list[str] = []
        self._recovered_bytes = 0
        self._has_lost = False
        self._unindexed = NOTHING_UNINDEXED  # markers that were read because of a crash
        self._epochs_from = 0  # the epoch file covers batches from this offset on
        self._epochs = LeaderEpochs()

    def load(self) -> LoadedLog:
        """Load the log; the directory is changed where its contents are not true.

        Raises OSError.
        """
        names = self._names()
        stored_epochs = self._read_epochs()
        self._epochs = LeaderEpochs(stored_epochs)
        self._epochs_from = stored_epochs[0].start_offset if stored_epochs else 0
        topic_id = self._read_topic_id()
        found = self._found(names)
        segments, rebuilt, log_end = self._restore(found)
        log_start = max(self._request.log_start_offset, segments[0].base_offset if found else 0)
        producers = self._producers(names)
        self._notes += producers.restore(segments, log_end, self._unindexed)
        self._write_rebuilt(segments, rebuilt)
        is_as_closed = self._request.clean and not self._recovered_bytes
        if not found or log_end < log_start:
            if found:
                self._notes.append(
                    f"the log ends at {log_end}, below its start {log_start}: it is emptied and "
                    "begins there"
                )
                self._remove_segments(segments)
                # they may have gone on in what is lost, and their transactions may have ended
                producers.clear()
                producers.write([], log_start)
            segments, rebuilt, log_end = [self._new_segment(log_start)], [], log_start
            is_as_closed = False
        self._epochs.truncate_end(log_end)
        self._complete_epochs(segments, log_start, log_end)
        self._epochs.truncate_start(log_start)
        durable_end = min(self._request.durable_end, log_end)
        return LoadedLog(
            segments=segments,
            epochs=self._epochs,
            producers=producers,
            topic_id=topic_id,
            log_start_offset=log_start,
            log_end_offset=log_end,
            recovered_bytes=self._recovered_bytes,
            unflushed=Unflushed(
                self._files,
                self._request.directory,
                Stored(durable_end, stored_epochs, topic_id),
                segments=rebuilt,
                is_new=not found,
                closed_end=log_end if is_as_closed else NOT_CLOSED,
            ),
            notes=self._notes,
            has_lost=self._has_lost,
        )

    def _producers(self, names: set[tuple[int, str]]) -> ProducerHistory:
        snapshots = [offset for offset, suffix in names if suffix == SNAPSHOT]
        return ProducerHistory(self._files, self._request.directory, snapshots)

    def _path(self, offset: int, suffix: str) -> str:
        return f"{self._request.directory}/{offset_file(offset, suffix)}"

    def _names(self) -> set[tuple[int, str]]:
        """The (offset, suffix) of the files; leftovers of a crash are removed."""
        found = set()
        directory = self._request.directory
        entries = self._files.list_directory(directory)
        if any(entry.name.endswith((CLEANED, SWAP)) for entry in entries):
            self._notes += recover(self._files, directory, [entry.name for entry in entries])
            entries = self._files.list_directory(directory)
        for entry in entries:
            if entry.name.endswith((DELETED, TEMPORARY)):
                remove_if_there(self._files, f"{directory}/{entry.name}")
            elif (parsed := parse_offset_file(entry.name)) is not None:
                found.add(parsed)
        for offset, suffix in list(found):
            if suffix in sidecars.suffixes() and (offset, LOG) not in found:
                self._notes.append(f"{offset_file(offset, suffix)} has no segment: removed")
                remove_if_there(self._files, self._path(offset, suffix))
                found.discard((offset, suffix))
        return found

    def _read_topic_id(self) -> str | None:
        data = read_file(self._files, f"{self._request.directory}/{PARTITION_METADATA}")
        if data is None:
            return None
        try:
            return parse_partition_metadata(data)
        except CorruptCheckpoint as error:
            self._notes.append(f"{PARTITION_METADATA} is unreadable: {error}")
            return None

    def _read_epochs(self) -> tuple[EpochStart, ...]:
        data = read_file(self._files, f"{self._request.directory}/{LEADER_EPOCHS}")
        try:
            return parse_epochs(data) if data is not None else ()
        except CorruptCheckpoint as error:
            self._notes.append(f"{LEADER_EPOCHS} is unreadable ({error}): rebuilt from the batches")
            return ()

    def _complete_epochs(self, segments: Sequence[Segment], log_start: int, log_end: int) -> None:
        """Rebuild from the batches the epochs of the log's first part, if the file lacks them.

        The file may be lost, or newer than the rest of the directory after a power loss.
        """
        cached = self._epochs.entries
        cached_from = cached[0].start_offset if cached else log_end
        if cached_from <= log_start:
            return
        self._epochs = LeaderEpochs()
        for segment in segments[segment_number(segments, log_start) :]:
            if segment.base_offset >= cached_from:
                break
            for _, header in segment.headers(segment.position_of(log_start)):
                if header.base_offset >= cached_from:
                    break
                self._epochs.observe(header.leader_epoch, header.base_offset)
        for entry in cached:
            self._epochs.observe(entry.epoch, entry.start_offset)

    def _found(self, names: set[tuple[int, str]]) -> list[FoundSegment]:
        """All segments in order, judged by their file names and by what is durable."""
        bases = sorted(offset for offset, suffix in names if suffix == LOG)
        return [
            FoundSegment(
                self._segment(base, names),
                end_offset,
                missing=sidecars.missing(base, names),
                # One that ends at the recovery point was active then: its last time index entry
                # came later.
                is_unsafe=not self._request.clean and end_offset >= self._request.recovery_point,
            )
            for base, end_offset in zip(bases, [*bases[1:], LONG_MAX], strict=False)
        ]

    def _segment(self, base_offset: int, names: set[tuple[int, str]]) -> Segment:
        segment = Segment(
            self._open_files,
            self._request.directory,
            base_offset,
            size=self._files.status(self._path(base_offset, LOG)).size,
            interval_bytes=self._request.config.index_interval_bytes,
            created_ms=self._request.now_ms,
        )
        if (base_offset, TRANSACTION_INDEX) not in names:
            segment.transaction_index.set_missing()
        return segment

    def _new_segment(self, base_offset: int) -> Segment:
        return Segment.create(
            self._open_files,
            self._request.directory,
            base_offset,
            interval_bytes=self._request.config.index_interval_bytes,
            created_ms=self._request.now_ms,
        )

    def _restore(self, found: Sequence[FoundSegment]) -> tuple[list[Segment], list[Segment], int]:
        """Restore the segments.

        Returns them, the older ones whose indexes were rebuilt, and the log end (0 without
        segments). The log ends where a crash took batches: everything behind that is removed.
        """
        segments: list[Segment] = []
        log_end = 0
        for number, each in enumerate(found, 1):
            segments.append(each.segment)
            if each.is_trusted:
                continue
            log_end, ends_log = self._restore_segment(each)
            if ends_log:
                self._remove_segments([behind.segment for behind in found[number:]])
                break
        older = found[: len(segments) - 1]
        return segments, [each.segment for each in older if each.is_rebuilt], log_end

    def _write_rebuilt(self, segments: Sequence[Segment], rebuilt: Sequence[Segment]) -> None:
        """Write the indexes of closed segments, and before them all transaction indexes, durably.

        The next start would trust a segment that has its other indexes, and is durable.
        """
        indexes = [segment.transaction_index for segment in segments] if self._unindexed else []
        for index in indexes:
            if not index.is_durable:
                index.write_durably()
        if indexes:
            self._files.fsync_directory(self._request.directory)
        for segment in rebuilt:
            segment.finish()

    def _restore_segment(self, found: FoundSegment) -> tuple[int, bool]:
        """Find the end of a segment's batches, and cut off what lies behind it.

        Returns the offset after its last batch, and whether the log ends there: a crash took what
        followed. What is missing below the recovery point the disk has lost: that ends no more
        than this segment.
        """
        segment, request = found.segment, self._request
        verify = found.is_unsafe or not found.is_indexed
        size_before = segment.size
        log_end = segment.restore(
            verify=verify,
            distrust_offset=request.recovery_point if found.is_indexed else 0,
            end_offset=found.end_offset,
            on_batch=self._observe_distrusted if verify else self._record_epoch,
        )
        unread = segment.file.size() - segment.size
        if verify or unread:
            self._recovered_bytes += size_before
        if unread:
            self._cut(segment, unread)
        is_gap = log_end < found.end_offset and found.end_offset > request.compacted_end
        lacks_batches = unread > 0 or (found.is_unsafe and is_gap)
        is_damaged = lacks_batches and log_end < request.durable_end
        self._has_lost = self._has_lost or is_damaged
        return log_end, lacks_batches and not is_damaged

    def _observe_distrusted(self, header: BatchHeader) -> None:
        self._record_epoch(header)
        if header.is_control:
            first = self._unindexed.start if self._unindexed else header.base_offset
            self._unindexed = range(first, header.next_offset)

    def _record_epoch(self, header: BatchHeader) -> None:
        """Record the batch's epoch, unless it lies below the file's first epoch.

        Those are deleted, or `_complete_epochs` reads them.
        """
        if header.base_offset >= self._epochs_from:
            self._epochs.observe(header.leader_epoch, header.base_offset)

    def _cut(self, segment: Segment, torn: int) -> None:
        self._notes.append(
            f"{offset_file(segment.base_offset, LOG)} has no valid batch at position "
            f"{segment.size}: {torn} bytes cut off"
        )
        segment.file.truncate(segment.size)
        segment.file.fsync()

    def _remove_segments(self, segments: Sequence[Segment]) -> None:
        """Rename them out of use as Kafka does, newest first.

        Source: LogLoader.removeAndDeleteSegmentsAsync. Durably: if they came back after the next
        crash, they would seem to continue what is appended meanwhile.
        """
        due_ms = self._request.now_ms + self._request.config.file_delete_delay_ms
        for segment in reversed(segments):
            self._has_lost = True
            self._notes.append(f"segment {segment.base_offset} lies behind the log's end: removed")
            for path in segment.paths:
                self._trash.discard(path, due_ms)
        if segments:
            self._files.fsync_directory(self._request.directory)


def prepare_directory(open_files: OpenFiles, directory: str, topic_id: str) -> None:
    """Create the directory of a new partition. topic_id: Kafka's text form of the topic's uuid."""
    open_files.files.make_directory(directory)
    write_file(open_files.files, *topic_id_file(directory, topic_id), durable=False)
