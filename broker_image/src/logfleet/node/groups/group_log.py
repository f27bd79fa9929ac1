"""Reads a partition of `__consumer_offsets` up to some offset, and continues from there.

A leader reads to the end of the log; a follower reads up to the high watermark, again and again,
and a new leader starts with what it has read as a follower.
"""

from collections.abc import Awaitable, Callable
from typing import Final

import structlog

from logfleet.coordinators.records import UnknownRecord
from logfleet.groups.config import GroupConfig
from logfleet.groups.coordinator import GroupCoordinator
from logfleet.groups.records import GroupRecord, OffsetRecord, decode_record
from logfleet.groups.replay import Replay
from logfleet.records.batch import BatchHeader, iterate_headers
from logfleet.records.record import Record, read_records
from logfleet.storage.partition_log import PartitionLog
from logfleet.wire.errors import ErrorCode

log = structlog.get_logger(__name__)

READ_BYTES: Final = 1024 * 1024
"""Bytes per read, in a thread: a cold disk does not stop the loop."""

ReadInThread = Callable[[Callable[[], bytes]], Awaitable[bytes]]


class GroupLog:
    """A partition of `__consumer_offsets` as far as it was read.

    coordinator: the state of the log below `offset`; its groups are not started. records: how many
    were applied. topics: name and id of each topic that an offset was ever committed for, ZERO_UUID
    if the commit had no id.
    """

    coordinator: GroupCoordinator
    offset: int
    records: int
    topics: set[tuple[str, bytes]]

    def __init__(self, partition_log: PartitionLog, config: GroupConfig) -> None:
        self.log = partition_log
        self._config = config
        self._begin()

    def _begin(self) -> None:
        self.coordinator = GroupCoordinator(self._config)
        self.topics = set()
        self._replay = Replay(self._apply)
        self.offset = self.log.log_start_offset
        self.records = 0

    def _apply(self, record: GroupRecord) -> None:
        self.coordinator.apply(record)
        if isinstance(record, OffsetRecord) and record.value is not None:
            self.topics.add((record.key.topic, bytes(record.value.topic_id)))

    @property
    def pending(self) -> int:
        """Offsets whose transactions have not ended."""
        return self._replay.pending

    def truncated(self, end_offset: int) -> None:
        """The log was truncated to this offset. If more was read, read all of it again.

        The state before the removed records is not kept.
        """
        if end_offset < self.offset:
            self._begin()

    async def read_on(
        self,
        end_offset: Callable[[], int],
        *,
        is_over: Callable[[], bool],
        run_in_thread: ReadInThread,
        pause_if_due: Callable[[], Awaitable[None]],
    ) -> None:
        """Apply all records below `end_offset`, which may move meanwhile; stop if `is_over`.

        If a call stops or raises within a batch, the next one applies the batch again: that changes
        nothing. Raises OSError, RecordsError, MalformedMessage.
        """
        while not is_over() and self.offset < (end := end_offset()):
            found = self.log.read(self.offset, READ_BYTES, end)
            if found is None:
                return
            if isinstance(found, ErrorCode):  # retention was faster: continue at the log start
                self.offset = self.log.log_start_offset
                continue
            replay = self._replay
            batches = await run_in_thread(found.read)
            for position, header in iterate_headers(batches):
                await pause_if_due()  # a batch may be empty
                for record in read_records(batches, position):
                    if is_over() or replay is not self._replay:
                        break
                    apply_record(replay, record, header)
                    self.records += 1
                    await pause_if_due()
                if is_over() or replay is not self._replay:
                    break
                self.offset = header.next_offset


def apply_record(replay: Replay, record: Record, header: BatchHeader) -> None:
    """Apply one record of the log; skip kinds that only newer brokers write.

    header: of the record's batch.
    """
    if header.is_control:
        replay.end_transaction(header.producer_id, record.key)
        return
    if record.key is None:
        return
    value = None if record.value is None else memoryview(record.value)
    try:
        decoded = decode_record(memoryview(record.key), value)
    except UnknownRecord as unknown:
        log.warning("group_record_skipped", offset=record.offset, reason=str(unknown))
    else:
        if header.is_transactional:
            replay.apply_transactional(decoded, header.producer_id, record.offset)
        else:
            replay.apply(decoded)
