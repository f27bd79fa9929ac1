"""Reads a partition into a coordinator up to some offset, and continues from there.

A leader reads to the end of the log; a follower reads up to the high watermark, again and again,
and a new leader starts with what it has read as a follower. Source: Kafka's CoordinatorLoader.
"""

from collections.abc import Awaitable, Callable
from typing import Any, Final, Generic, TypeVar

import structlog

from logfleet.coordinators.coordinator import Coordinator
from logfleet.coordinators.records import UnknownRecord
from logfleet.log.partition_log import PartitionLog
from logfleet.node.coordinators.kind import CoordinatorKind
from logfleet.records.batch import BatchHeader, iterate_headers
from logfleet.records.control import read_marker
from logfleet.records.record import Record, read_records
from logfleet.wire.errors import ErrorCode

R = TypeVar("R")
C = TypeVar("C", bound=Coordinator[Any])

log = structlog.get_logger(__name__)

READ_BYTES: Final = 1024 * 1024
"""Bytes per read, in a thread: a cold disk does not stop the loop."""

ReadInThread = Callable[[Callable[[], bytes]], Awaitable[bytes]]


class CoordinatorLoader(Generic[R, C]):
    """The coordinator of a partition as far as its log was read.

    coordinator: has the state of the log below `offset`, and is not taken up. records: how many
    were read.
    """

    coordinator: C
    offset: int
    records: int

    def __init__(self, kind: CoordinatorKind[R, C], partition_log: PartitionLog) -> None:
        self.kind = kind
        self.log = partition_log
        self._begin()

    def _begin(self) -> None:
        self.coordinator = self.kind.new_coordinator()
        self.offset = self.log.log_start_offset
        self.records = 0

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
            coordinator = self.coordinator
            batches = await run_in_thread(found.read)
            for position, header in iterate_headers(batches):
                await pause_if_due()  # a batch may be empty
                for record in () if header.is_control else read_records(batches, position):
                    if is_over() or coordinator is not self.coordinator:
                        break
                    replay_record(self.kind, coordinator, record, header)
                    self.records += 1
                    await pause_if_due()
                if is_over() or coordinator is not self.coordinator:
                    break
                if header.is_control:
                    replay_marker(coordinator, batches, position)
                self.offset = header.next_offset


def replay_record(
    kind: CoordinatorKind[R, C], coordinator: C, record: Record, header: BatchHeader
) -> None:
    """Apply one record of the log; skip kinds that only newer brokers write.

    header: of the record's batch.
    """
    if record.key is None:
        return
    value = None if record.value is None else memoryview(record.value)
    try:
        decoded = kind.decode(memoryview(record.key), value)
    except UnknownRecord as unknown:
        event = kind.event("record_skipped")
        log.warning(event, offset=record.offset, reason=str(unknown))
    else:
        producer_id = header.producer_id if header.is_transactional else None
        coordinator.replay(decoded, record.offset, producer_id)


def replay_marker(coordinator: Coordinator[Any], batches: bytes, position: int) -> None:
    """Apply the control batch at `position`, if it is a marker."""
    marker = read_marker(batches, position)
    if marker is not None:
        coordinator.end_transaction(marker.producer_id, is_commit=marker.is_commit)
