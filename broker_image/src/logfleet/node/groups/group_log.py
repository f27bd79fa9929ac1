"""Reads a partition of `__consumer_offsets`: what its log says up to some offset, and reading on from there.

A leader reads to the end of the log, a follower as far as is committed, on and on: what it has read then is what a leader begins with.
"""

from collections.abc import Awaitable, Callable
from typing import Final

import structlog

from logfleet.groups.config import GroupConfig
from logfleet.groups.coordinator import GroupCoordinator
from logfleet.groups.records import GroupRecord, OffsetRecord, UnknownRecord, decode_record
from logfleet.groups.replay import Replay
from logfleet.records.batch import BatchHeader, iterate_headers
from logfleet.records.record import Record, read_records
from logfleet.storage.partition_log import PartitionLog
from logfleet.wire.errors import ErrorCode

log = structlog.get_logger(__name__)

READ_BYTES: Final = 1024 * 1024
"""Read at once, in a thread: a cold disk does not stop the loop."""

ReadInThread = Callable[[Callable[[], bytes]], Awaitable[bytes]]


class GroupLog:
    """coordinator: knows what the log says below `offset`; nothing of it is taken up. records: how many were applied.

    topics: name and id of each topic that an offset was ever committed for, ZERO_UUID where no id was told.
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
        self._replay = Replay(self._take_over)
        self.offset = self.log.log_start_offset
        self.records = 0

    def _take_over(self, record: GroupRecord) -> None:
        self.coordinator.apply(record)
        if isinstance(record, OffsetRecord) and record.value is not None:
            self.topics.add((record.key.topic, bytes(record.value.topic_id)))

    @property
    def pending(self) -> int:
        """Offsets whose transactions have not ended."""
        return self._replay.pending

    def truncated(self, end_offset: int) -> None:
        """What stood in the log from this offset on is gone. If that was read, all is read again: what it replaced nobody knows any more."""
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
        """Apply all records below `end_offset`, which may move meanwhile; stop as soon as `is_over`.

        A batch that was begun when it stopped, or when it raised, is applied again by the next call: that changes nothing.
        Raises OSError, RecordsError, MalformedMessage.
        """
        while not is_over() and self.offset < (end := end_offset()):
            found = self.log.read(self.offset, READ_BYTES, end)
            if found is None:
                return
            if isinstance(found, ErrorCode):  # retention was faster: begin where the log begins now
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
    """Take over one record of the log; kinds that only newer brokers write are left alone. header: of the record's batch."""
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
