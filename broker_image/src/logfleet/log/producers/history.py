"""Producer state of one partition and its snapshots on disk."""

from collections.abc import Collection, Sequence

from logfleet.io.files import Files, read_file, remove_if_there, write_file
from logfleet.log.directories.disk import Disk
from logfleet.log.names import SNAPSHOT, offset_file
from logfleet.log.producers.queued_snapshot import AT_ROLL, QueuedSnapshot
from logfleet.log.producers.snapshots import SNAPSHOT_INTERVAL_BYTES, superfluous_snapshots
from logfleet.log.producers.states import CorruptSnapshot, ProducerStates, SeenBatch
from logfleet.log.segments.segment import Segment, segment_number
from logfleet.records.batch import (
    CONTROL_BIT,
    LENGTH_OVERHEAD,
    TRANSACTIONAL_BIT,
    BatchHeader,
)
from logfleet.records.control import Marker
from logfleet.types import FILE_START, Position
from logfleet.wire.errors import ErrorCode

RECALL_BYTES = 1024 * 1024
"""Bytes of the log's end in which to search for batches of a producer that no snapshot holds:
more than five full batches of a client's default size, little enough for the loop."""

PRODUCERS_AT_ROLL_MAX = 20_000
"""Beyond this number of producers a roll writes no snapshot: one of 20,000 is a megabyte, copied
and written to the page cache in about a millisecond."""


NONE_QUEUED: dict[int, QueuedSnapshot] = {}

NOTHING_UNINDEXED = range(0)

_TRANSACTIONS = TRANSACTIONAL_BIT | CONTROL_BIT


class ProducerHistory:
    """The last batches of each producer, and its open transaction. Upholds I33.

    Restored from the newest readable snapshot and the batches after it. segments and
    log_end_offset: of the log as it is. offsets: the snapshots in the directory.
    """

    def __init__(self, files: Files, directory: str, offsets: Collection[int]) -> None:
        self.states = ProducerStates()
        self._files = files
        self._directory = directory
        self._offsets = set(offsets)
        self._bytes_since_snapshot = 0
        self._queued = NONE_QUEUED  # by offset

    def restore(
        self,
        segments: Sequence[Segment],
        log_end_offset: int,
        unindexed: range = NOTHING_UNINDEXED,
    ) -> list[str]:
        """Restore the state as of this log end; returns messages for the operator.

        unindexed: offsets of the markers that may lack an entry in their transaction index. These
        are restored as well.
        """
        is_beyond = any(offset > log_end_offset for offset in self._offsets)
        self._drop_superfluous(segments, log_end_offset)
        # else a power loss may bring such a snapshot back when other batches have its offsets
        if is_beyond:
            self._files.fsync_directory(self._directory)
        notes: list[str] = []
        if unindexed:
            start = self._load_newest(unindexed.start, notes)
            self._replay(segments, start, unindexed.stop)
        start = self._load_newest(log_end_offset, notes)
        self._replay(segments, start, log_end_offset)
        return notes

    def _load_newest(self, end: int, notes: list[str]) -> int:
        """Take the state of the newest readable snapshot up to `end`, and return its offset."""
        for offset in sorted(self._offsets, reverse=True):
            if offset > end:
                continue
            data = read_file(self._files, self.path(offset)) or b""
            try:
                self.states = ProducerStates.from_snapshot(data)
            except CorruptSnapshot as error:
                notes.append(f"{offset_file(offset, SNAPSHOT)} is unreadable: {error}")
                self.remove(offset)
            else:
                return offset
        self.states = ProducerStates()
        return 0

    def _replay(self, segments: Sequence[Segment], start: int, end: int) -> None:
        """Record the batches in [start, end), and add what the transaction indexes lack of them."""
        for number, segment in enumerate(segments):
            if segment.base_offset >= end:
                break
            next_base = segments[number + 1].base_offset if number + 1 < len(segments) else end
            if next_base <= start or segment.size == 0:
                continue
            for header, marker in segment.markers(segment.position_of(start)):
                if header.base_offset >= end:
                    return
                if header.base_offset >= start:
                    self.update(header, header.base_offset)
                    if marker is not None:
                        self.end(marker, header, segment)

    def check(
        self, header: BatchHeader, segments: Sequence[Segment]
    ) -> SeenBatch | ErrorCode | None:
        """As ProducerStates.check, for a batch with a producer id.

        A snapshot holds one batch of each producer, but a client may have five in flight: before a
        batch of a producer restored from a snapshot is refused, the earlier ones are searched for
        in the log.
        """
        seen = self.states.check(header)
        if seen is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER:
            entry = self.states.get(header.producer_id)
            assert entry is not None, "only a producer with state can be out of order"
            if entry.restored and entry.batches:
                self._recall(header.producer_id, segments)
                seen = self.states.check(header)
        return seen

    def _recall(self, producer_id: int, segments: Sequence[Segment]) -> None:
        entry = self.states.get(producer_id)
        assert entry is not None
        oldest = entry.batches[0].last_offset
        number = segment_number(segments, oldest)
        end, rest = segments[number].position_of(oldest), RECALL_BYTES
        begin = segments[number].boundary_before(Position(max(0, end - rest)))
        while number > 0 and (rest := rest - (end - begin)) > 0:
            number -= 1
            end = segments[number].size
            begin = segments[number].boundary_before(Position(max(0, end - rest)))
        earlier = []
        for segment in segments[number:]:
            for _, header in segment.headers(begin):
                if header.last_offset >= oldest:
                    break
                if (
                    header.producer_id == producer_id
                    and header.producer_epoch == entry.epoch
                    and not header.is_control
                ):
                    earlier.append(SeenBatch.of(header, header.base_offset))
            begin = FILE_START
            if segment.base_offset > oldest:
                break
        self.states.recall(producer_id, earlier)

    def update(self, header: BatchHeader, base_offset: int) -> None:
        """Record a batch that was appended, by this leader or by a followed one, unchecked.

        A marker is then passed to `end` as well.
        """
        if header.producer_id >= 0:
            kind = header.attributes & _TRANSACTIONS
            if not kind:
                self.states.update(header, base_offset)
            elif kind == TRANSACTIONAL_BIT:
                self.states.update_transactional(header, base_offset)
        self._bytes_since_snapshot += LENGTH_OVERHEAD + header.batch_length

    def end(self, marker: Marker, header: BatchHeader, segment: Segment) -> bool:
        """Record a marker in its segment, which `update` has accounted for.

        Returns whether the segment's transaction index got its first entry, and so a file.
        """
        aborted = self.states.end(marker, header, header.base_offset)
        if aborted is None:
            return False
        is_first = not len(segment.transaction_index)
        segment.transaction_index.add_entry(aborted)
        return is_first

    def take_over(self, directory: str, states: ProducerStates) -> None:
        """Use the renamed directory, and these states, which are newer than its snapshots."""
        self.drop_queued()
        self._directory, self.states = directory, states
        self._bytes_since_snapshot = SNAPSHOT_INTERVAL_BYTES

    # Snapshots

    def path(self, offset: int) -> str:
        return f"{self._directory}/{offset_file(offset, SNAPSHOT)}"

    @property
    def offsets(self) -> Collection[int]:
        """Offsets of the snapshots in the directory."""
        return self._offsets

    @property
    def is_due(self) -> bool:
        """Whether enough was appended since the last snapshot for the next flush to write one."""
        return self._bytes_since_snapshot >= SNAPSHOT_INTERVAL_BYTES

    def on_roll(self, segments: Sequence[Segment], log_end_offset: int, disk: Disk) -> None:
        """A segment begins at the log's end: write a snapshot there.

        The thread of a held-up disk writes it; with too many producers for the loop the next flush
        does.
        """
        if len(self.states) > PRODUCERS_AT_ROLL_MAX:
            self._bytes_since_snapshot = SNAPSHOT_INTERVAL_BYTES
        elif disk.is_held_up:
            self._queue(segments, log_end_offset, disk)
        else:
            self.write(segments, log_end_offset)

    def _queue(self, segments: Sequence[Segment], log_end_offset: int, disk: Disk) -> None:
        path, content = self.take(log_end_offset)
        self._offsets.add(log_end_offset)
        superseded = self._superfluous(segments, log_end_offset)
        self._offsets.difference_update(superseded)
        snapshot = QueuedSnapshot(self._files, path, [self.path(each) for each in superseded])
        left = {offset: each for offset, each in self._queued.items() if not each.is_done}
        self._queued = {**left, log_end_offset: snapshot}
        if not disk.write(snapshot, content, 0):
            snapshot.pwrite(content, 0)

    def drop_queued(self) -> None:
        """Write none that is queued: the log's directory is renamed or given up."""
        for offset, snapshot in self._queued.items():
            snapshot.is_wanted = False
            if not snapshot.is_done:
                self._offsets.discard(offset)
        self._queued = NONE_QUEUED

    def write(self, segments: Sequence[Segment], log_end_offset: int) -> None:
        """Write a snapshot at the log's end.

        It is not durable; its checksum shows whether it reached the disk.
        """
        path, content = self.take(log_end_offset)
        write_file(self._files, path, content, durable=False, writer=AT_ROLL)
        self.on_snapshot_written(log_end_offset, segments, log_end_offset)

    def take(self, log_end_offset: int) -> tuple[str, bytes]:
        """(path, content) of a snapshot at the log's end, for the caller to write."""
        self._bytes_since_snapshot = 0
        return self.path(log_end_offset), self.states.snapshot()

    def on_snapshot_written(
        self, offset: int, segments: Sequence[Segment], log_end_offset: int
    ) -> None:
        """The snapshot at `offset` was written; remove those that it replaces."""
        self._offsets.add(offset)
        self._drop_superfluous(segments, log_end_offset)

    def clear(self) -> None:
        """Drop all producers, and remove their snapshots."""
        self.states = ProducerStates()
        for offset in list(self._offsets):
            self.remove(offset)

    def drop(self, offset: int) -> None:
        """Stop counting the snapshot at `offset`, if there was one.

        The caller has removed the file.
        """
        self._offsets.discard(offset)
        if offset in self._queued:
            self._queued.pop(offset).is_wanted = False

    def drop_before(self, end: int) -> list[str]:
        """Stop counting the snapshots before `end`; returns their paths, for the caller to remove.

        They may hold transactions as open whose marker compaction removes: a state restored from
        them would leave those open for ever.
        """
        dropped = [offset for offset in self._offsets if offset < end]
        for offset in dropped:
            self.drop(offset)
        return [self.path(offset) for offset in dropped]

    def remove(self, offset: int) -> None:
        self.drop(offset)
        remove_if_there(self._files, self.path(offset))

    def _drop_superfluous(self, segments: Sequence[Segment], log_end_offset: int) -> None:
        for offset in self._superfluous(segments, log_end_offset):
            self.remove(offset)

    def _superfluous(self, segments: Sequence[Segment], log_end_offset: int) -> list[int]:
        bases = {segment.base_offset for segment in segments}
        return superfluous_snapshots(self._offsets, bases, log_end_offset)
