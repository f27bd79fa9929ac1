"""The log of one partition on disk: segments, leader epochs, producer state.

Everything here runs on the loop and is short: one write per append, no sync. An OSError means that
the log directory is failing; the log in memory then still has its state from before.
"""

import random
from collections.abc import Callable, Iterable, Sequence
from functools import partial

from logfleet.log.aborted import AbortedEntry
from logfleet.log.batch_rules import BatchRefusal
from logfleet.log.config import LONG_MAX, LogConfig
from logfleet.log.directories.trash import Trash
from logfleet.log.durable_log import DurableLog
from logfleet.log.log_files import LogFiles
from logfleet.log.markers import MarkerRun, refuse_marker
from logfleet.log.names import TopicPartition
from logfleet.log.newest_batches import RecentBatches
from logfleet.log.producers.repeated import check_producer
from logfleet.log.reading import number_of, read_slice
from logfleet.log.recovery.loader import LoadRequest, LogLoader
from logfleet.log.recovery.truncation import Truncation
from logfleet.log.replicated import replicated_batches
from logfleet.log.retention import REMOVED_AT_ONCE, Retention, ages_of, plan_retention
from logfleet.log.segments.file_slice import FileSlice
from logfleet.log.segments.open_files import OpenFiles
from logfleet.log.segments.roll import NO_ROOM, base_of_next, room_in, should_roll
from logfleet.log.segments.segment import Segment, segment_number
from logfleet.log.segments.swap import Swap
from logfleet.log.validation import Appended, AppendResult, Prepared, prepare
from logfleet.records.batch import CONTROL_BIT, BatchHeader, assign_offsets
from logfleet.records.control import Marker, read_marker
from logfleet.replication.ends import ReplicaEnds
from logfleet.replication.leader_epochs import LeaderEpochs
from logfleet.types import FILE_START, LeaderEpoch
from logfleet.wire.errors import ErrorCode


class PartitionLog(DurableLog):
    """One partition's log.

    ends: all its offsets (`logfleet.replication.ends`); this object reports to it what happens to
    the files. topic_id: Kafka's text form, None without partition.metadata; a new one is durable
    after the next flush. config may be replaced at any time. notes: messages for the operator about
    how the log was found. has_lost: see LoadedLog. recovered_bytes: read after a crash to find the
    end. files: its file system; disk: of its directory.
    """

    def __init__(
        self, partition: TopicPartition, open_files: OpenFiles, trash: Trash, request: LoadRequest
    ) -> None:
        """Open the log in an existing directory; see LoadRequest. Raises OSError."""
        loaded = LogLoader(open_files, trash, request).load()
        self.ends = ReplicaEnds(
            log_start_offset=loaded.log_start_offset,
            log_end_offset=loaded.log_end_offset,
            recovery_point=loaded.unflushed.stored.end_offset,
            checkpointed_point=min(request.recovery_point, loaded.log_end_offset),
            first_dirty_offset=request.first_dirty_offset,
        )
        self.partition = partition
        self.config = request.config
        self.topic_id = loaded.topic_id
        self.notes, self.has_lost = loaded.notes, loaded.has_lost
        self.recovered_bytes = loaded.recovered_bytes
        self.epochs = loaded.epochs
        self.open_files, self.files = open_files, open_files.files
        self._take(LogFiles.of(loaded, request.directory, open_files, trash))
        self._jitter_ms = 0
        self.flushed_ms = 0  # start of the last flush by maintenance
        self._swap: Swap | None = None
        self._is_truncating = False
        self._draw_jitter()

    @property
    def config(self) -> LogConfig:
        """The topic's configuration; may be set at any time."""
        return self._config

    @config.setter
    def config(self, config: LogConfig) -> None:
        self._config = config
        self._room = NO_ROOM
        self.ends.flush_messages = config.flush_messages
        self.has_flush_rules = min(config.flush_messages, config.flush_ms) < LONG_MAX

    # Appending

    def append_as_leader(
        self, batch: bytearray | memoryview | Prepared, leader_epoch: LeaderEpoch, now_ms: int
    ) -> AppendResult:
        """Append one batch at the log's end. It is written, not yet durable nor committed.

        batch: one in writable memory, which is changed, or the result of `prepare_fully`. Where the
        result is not Appended, or it raises DiskBusy, nothing has changed.
        """
        self.disk.require_room()
        if isinstance(batch, Prepared):
            prepared = batch
        else:
            judged = prepare(batch, self._config, now_ms, self.partition)
            if not isinstance(judged, Prepared):
                return judged
            prepared = judged
        header = prepared.header
        if header.producer_id >= 0:
            seen = check_producer(self.producers, header, self._segments, self.partition)
            if seen is not None:
                prepared.undo()
                return seen
        base_offset = self.ends.log_end_offset
        last_offset = base_offset + header.last_offset_delta
        size = self._active.size + len(prepared.buffer)
        if not self._room.holds(size, last_offset, header.max_timestamp):
            self._make_room(header, last_offset, now_ms)
        assign_offsets(prepared.buffer, base_offset, leader_epoch)
        self._active.append(prepared.buffer, header, base_offset)
        self._appended(header, base_offset, leader_epoch)
        self._wait_written()
        return Appended(base_offset, last_offset, prepared.log_append_time_ms)

    def append_as_follower(
        self, records: memoryview, leader_epoch: LeaderEpoch, now_ms: int
    ) -> int:
        """Append batches as the leader of `leader_epoch` sent them; returns how many bytes.

        `replicated_batches` says which are skipped. Raises CorruptRecords, UnexpectedAppendOffset,
        DiskBusy: nothing has changed; OSError: what went into earlier segments stays appended.
        """
        self.disk.require_room()
        start = end = 0
        run: list[BatchHeader] = []  # batches of one segment, written by one call
        for position, header in replicated_batches(records, self.log_end_offset, leader_epoch):
            end = position + header.size
            size = self._active.size + end - start
            if not self._room.holds(size, header.last_offset, header.max_timestamp):
                self._append_run(records[start:position], run)
                start, run = position, []
                self._make_room(header, header.last_offset, now_ms)
            run.append(header)
        self._append_run(records[start:end], run)
        return end

    def _append_run(self, data: memoryview, run: Sequence[BatchHeader]) -> None:
        if not run:
            return
        start = self._active.size
        try:
            for header in self._active.append_all(data, run):
                self._appended(header, header.base_offset, header.leader_epoch)
                if header.attributes & CONTROL_BIT:
                    self._end_transaction(header, data[self._active.size - header.size - start :])
        finally:
            self._wait_written()

    def _end_transaction(self, header: BatchHeader, batch: memoryview) -> None:
        marker = read_marker(batch)
        if marker is None:
            return
        if not marker.is_commit:
            self._aborted_end = header.next_offset
        if self.producers.end(marker, header, self._active):
            self._unflushed.renamed()  # a file is made for the transaction index
        # forgets the transactions that are stable by now, also if nobody reads the log
        self.last_stable_offset(self.ends.high_watermark)

    def _appended(self, header: BatchHeader, base_offset: int, leader_epoch: LeaderEpoch) -> None:
        """Update the log's state for a batch that was added to the active segment."""
        if leader_epoch != self.epochs.latest:
            self.epochs.assign(leader_epoch, base_offset)
        self.producers.update(header, base_offset)
        end_offset = base_offset + header.last_offset_delta + 1
        self.ends.extended(end_offset)
        self._recent.add(end_offset, self._active.size)

    def when_written(self, then: Callable[[], None]) -> None:
        """Call `then` on the loop once all that was appended is in the files; at once if it is."""
        self.disk.when_written(then)

    def _wait_written(self) -> None:
        """Report the log's end as written: at once, if no write is queued for the disk."""
        ends = self.ends
        if self.disk.is_held_up:
            self.when_written(partial(ends.written, ends.log_end_offset, ends.truncations))
        else:
            ends.written(ends.log_end_offset, ends.truncations)

    def _make_room(self, header: BatchHeader, last_offset: int, now_ms: int) -> None:
        """Roll if this batch must begin a new segment; else compute the room in this one."""
        assert not self._is_truncating
        active = self._active.as_active()
        if should_roll(
            active,
            self._config,
            batch_bytes=header.size,
            last_offset=last_offset,
            max_timestamp=header.max_timestamp,
            now_ms=now_ms,
            jitter_ms=self._jitter_ms,
        ):
            first_offset = last_offset - header.last_offset_delta
            self._roll(base_of_next(self.log_end_offset, first_offset, last_offset), now_ms)
        else:
            self._room = room_in(active, self._config, jitter_ms=self._jitter_ms)

    def start_epoch(self, epoch: LeaderEpoch) -> None:
        """Lead in `epoch`. A FlushJob begun after this must run before serving (KAFKA-16541)."""
        self.epochs.assign(epoch, self.log_end_offset)

    # Rolling

    def roll(self, now_ms: int) -> None:
        """Close the active segment, if it has records, so that it can be compacted or removed."""
        if self._active.size:
            self._roll(self.log_end_offset, now_ms)

    def _roll(self, base_offset: int, now_ms: int) -> None:
        """Close the active segment and begin another one, at the log's end or behind it."""
        self._active.finish()
        self._unflushed.renamed()
        created = Segment.create(
            self.open_files,
            self.directory,
            base_offset,
            interval_bytes=self._config.index_interval_bytes,
            created_ms=now_ms,
        )
        self._unflushed.rolled(self._active)
        self._active = created
        self._room = NO_ROOM
        self._segments.append(self._active)
        self._recent = RecentBatches(self.log_end_offset, FILE_START)
        self._draw_jitter()
        # last, as it may find no room; without a snapshot here a start reads from the previous one
        self.producers.on_roll(self._segments, self.log_end_offset, self.disk)

    def _draw_jitter(self) -> None:
        """Draw a delay, so that segments begun together roll apart (segment.jitter.ms)."""
        bound = min(self._config.segment_jitter_ms, self._config.segment_ms)
        self._jitter_ms = random.randrange(bound) if bound > 0 else 0

    def skip_to(self, offset: int, now_ms: int) -> None:
        """Continue at `offset`: compaction removed all earlier batches of the original log."""
        self.ends.extended(offset)
        self._wait_written()
        self._roll(offset, now_ms)

    # Transactions

    def append_markers(
        self, markers: Iterable[tuple[Marker, int]], leader_epoch: LeaderEpoch, now_ms: int
    ) -> list[Appended | BatchRefusal]:
        """Append (marker, version of its transaction) at the log's end, as one write if possible.

        Returns for each its offset, or why it was refused: see `ProducerStates.check_marker`.
        After DiskBusy, or an OSError, some may be appended: all may be sent again.
        """
        self.disk.require_room()
        run = MarkerRun(self.log_end_offset, self._config.message_timestamp_type)
        results: list[Appended | BatchRefusal] = []
        for marker, version in markers:
            if run.has(marker.producer_id):
                self.append_as_follower(run.take(), leader_epoch, now_ms)
            refusal = refuse_marker(self.producers.states, marker, version, self.partition)
            results.append(refusal or run.add(marker, leader_epoch, now_ms))
        self.append_as_follower(run.take(), leader_epoch, now_ms)
        return results

    def last_stable_offset(self, high_watermark: int) -> int:
        """The end of what readers of committed records see: no open transaction lies below it.

        Nor one whose marker is not below the high watermark, which must not have moved back since
        the last call, unless the log was truncated. Never below the log's start.
        """
        unstable = self.producers.states.unstable
        if not unstable.queue or (first := unstable.first(high_watermark)) is None:
            return high_watermark
        return min(high_watermark, max(first, self.log_start_offset))

    def has_aborted(self, start: int) -> bool:
        """Whether `aborted` may find any from there on; where there is none, that costs nothing."""
        return start < self._aborted_end

    def aborted(self, start: int, end: int) -> list[AbortedEntry]:
        """The aborted transactions with records in [start, end), by their markers.

        end: at most the last stable offset.
        """
        found: list[AbortedEntry] = []
        for segment in self.segments_from(start):
            if segment.base_offset >= self._aborted_end:
                break
            entries, is_all = segment.transaction_index.overlapping(start, end)
            found += entries
            if is_all:
                break
        return found

    # Reading

    def read(
        self,
        offset: int,
        max_bytes: int,
        end_offset: int | None = None,
        *,
        at_least_one: bool = True,
    ) -> FileSlice | ErrorCode | None:
        """Whole batches of one segment, from the one that holds `offset` up to `end_offset`.

        max_bytes: not exceeded, except by a larger first batch if `at_least_one` (KIP-74).
        end_offset: exclusive, None for the written end. Returns None if there is nothing to read,
        OFFSET_OUT_OF_RANGE outside [log start, log end].
        """
        ends = self.ends
        log_end_offset = ends.log_end_offset
        if not ends.log_start_offset <= offset <= log_end_offset:
            return ErrorCode.OFFSET_OUT_OF_RANGE
        if end_offset is None:
            end_offset = ends.written_end_offset
        elif end_offset > log_end_offset:
            end_offset = log_end_offset
        return read_slice(
            self._segments,
            self._recent,
            offset,
            end_offset,
            log_end_offset=log_end_offset,
            max_bytes=max_bytes,
            at_least_one=at_least_one,
        )

    def segments_from(self, offset: int) -> Sequence[Segment]:
        """The segment that holds `offset`, and all later ones."""
        return self._segments[number_of(self._segments, offset) :]

    def epoch_end_offset(self, epoch: LeaderEpoch) -> tuple[LeaderEpoch, int]:
        """(epoch, end offset) for OffsetForLeaderEpoch; see LeaderEpochs.end_offset."""
        return self.epochs.end_offset(epoch, self.log_end_offset)

    # Shortening

    def begin_truncation(self, offset: int, now_ms: int, *, empties: bool) -> Truncation:
        """Begin to cut off everything from the batch on that holds `offset`, or all.

        `Truncater` does the work (see Truncation). Until it ends nothing is appended, flushed,
        swapped or removed; slices beyond the new end are read short.
        """
        assert not self._unflushed.is_flushing
        assert self._swap is None
        assert not self._is_truncating
        self._is_truncating = True
        self._room = NO_ROOM  # an append meanwhile fails an assertion
        return Truncation(
            self.open_files,
            self.directory,
            self._segments,
            self.producers.offsets,
            offset=offset,
            log_start_offset=self.log_start_offset,
            empties=empties,
            interval_bytes=self._config.index_interval_bytes,
            now_ms=now_ms,
        )

    def lower_end(self, end_offset: int) -> bool:
        """Lower all offsets to a new end; returns whether a checkpoint may have a higher one."""
        self._unflushed.lowered(end_offset)
        self._aborted_end = min(self._aborted_end, end_offset)
        return self.ends.lowered(end_offset)

    def complete_truncation(self, done: Truncation) -> None:
        """Take over the result of a truncation that has run."""
        self._segments = done.segments
        self._active = done.segments[-1]
        self.producers, self.notes = done.producers, done.notes
        self.ends.truncated(done.end_offset, is_emptied=done.is_emptied)
        if done.is_emptied:
            self.epochs = LeaderEpochs()
        self.epochs.truncate_end(done.end_offset)
        self._unflushed.truncated(self._active)
        self._recent = RecentBatches(self.log_end_offset, self._active.size)
        self._is_truncating = False

    def abandon_truncation(self) -> None:
        """End a truncation that has failed."""
        self._is_truncating = False
        self._wait_written()

    def delete_records_before(self, offset: int) -> None:
        """Move the log start up to `offset`; the next retention removes segments below."""
        if self.ends.deleted(offset):
            self.epochs.truncate_start(offset)

    def follow_log_start(self, leader_start: int, high_watermark: int) -> None:
        """Follow the leader's log start up to the high watermark (maybeIncrementLogStartOffset)."""
        self.delete_records_before(min(leader_start, high_watermark))

    def apply_retention(self, now_ms: int, high_watermark: int) -> Retention | None:
        """Do a short step of what `plan_retention` allows; None if nothing is left to remove."""
        if self._swap is not None or self._is_truncating:
            return None
        plan = plan_retention(
            ages_of(self._segments, self.log_end_offset),
            self._config,
            now_ms=now_ms,
            high_watermark=high_watermark,
            log_start_offset=self.log_start_offset,
            count_max=REMOVED_AT_ONCE,
        )
        if plan.count == 0:
            return None
        if plan.count == len(self._segments):  # first a new active segment, in a step of its own
            self._roll(self.log_end_offset, now_ms)
            return Retention(0, plan.reason)
        due_ms = now_ms + self._config.file_delete_delay_ms
        replaced, self._segments = self._segments[: plan.count], self._segments[plan.count :]
        self._discard(replaced, replaced, due_ms)
        self.delete_records_before(self._segments[0].base_offset)
        return plan

    def _discard(
        self, replaced: Sequence[Segment], snapshots_of: Sequence[Segment], due_ms: int
    ) -> None:
        self._unflushed.renamed()
        for path in (path for segment in replaced for path in segment.paths):
            self._trash.discard(path, due_ms)
        for segment in snapshots_of:
            self._trash.discard(self.producers.path(segment.base_offset), due_ms)
            self.producers.drop(segment.base_offset)

    # Compaction

    def begin_swap(self, base_offsets: Sequence[int], truncations: int) -> bool:
        """Reserve closed segments for a swap; False if the log was truncated or they changed."""
        number = segment_number(self._segments, base_offsets[0])
        held = self._segments[number:-1][: len(base_offsets)]
        is_same = [segment.base_offset for segment in held] == list(base_offsets)
        if self._swap is not None or truncations != self.truncations or not is_same:
            return False
        self._swap = Swap.of(held)
        return True

    def complete_swap(self, size: int, now_ms: int) -> None:
        """Put a promoted segment in place of the reserved ones; retry it after an OSError."""
        swap, due_ms = self._swap, now_ms + self._config.file_delete_delay_ms
        assert swap is not None
        if not swap.is_cleared:
            self._discard(swap.replaced, swap.replaced[1:], due_ms)
            swap.is_cleared = True
        self._unflushed.renamed()
        swap.complete(self.files, self.directory)
        first = self._segments.index(swap.replaced[0])
        self._segments[first : first + len(swap.replaced)] = [swap.replaced[0].successor(size)]
        self._swap = None

    def cancel_swap(self) -> None:
        """Keep the reserved segments: the new one was not promoted, or was demoted."""
        self._swap = None
        self._unflushed.renamed()
