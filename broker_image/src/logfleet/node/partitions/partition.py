"""A partition that this broker leads: its log, its leader epoch, what is committed, who waits for more.

With one replica what is appended is committed at once, unless the topic wants it durable first (`logfleet.node.partitions.flush_rules`)
or its disk is held up, and it is not even written yet (`logfleet.storage.disk`).
"""

import asyncio
from collections import deque
from functools import partial
from typing import Protocol

from logfleet.log.validation import NeedsThread, Prepared, Rejected
from logfleet.metadata.image import INTERNAL_TOPICS
from logfleet.node.partitions.replica import Replica
from logfleet.node.partitions.traffic import Traffic
from logfleet.storage.partition_log import AppendResult, PartitionLog
from logfleet.wire.errors import ErrorCode

HIGH_WATERMARK = -1
"""In DeleteRecords: everything that is committed."""


class NotLeading(Exception):
    """This broker does not lead the partition (any more); the client asks another."""


class Waiter(Protocol):
    """A parked request that wants to know when a partition moves on."""

    def appended(self, size: int) -> None:
        """Records of `size` bytes were committed."""

    def log_start_moved(self) -> None:
        """Old records went; the log starts later."""

    def leadership_lost(self) -> None:
        """The partition is led elsewhere, or gone."""


class CommitRule(Protocol):
    """What may stand between a record in the log and its being committed."""

    def hold(self, partition: "Partition", /) -> bool:
        """Whether what was just appended waits for `Partition.commit`."""


class Partition(Replica):
    """One partition of a topic, from the moment this broker leads it until it stops doing so.

    high_watermark: consumers see no more. is_internal: clients may not write to it.
    epoch_start_offset: where the log ended when leading began. bytes_in, bytes_out: appended, and sent to consumers, since then.
    """

    __slots__ = (
        "_held",
        "_moved",
        "_rule",
        "_waiters",
        "bytes_in",
        "bytes_out",
        "epoch_start_offset",
        "is_internal",
    )

    def __init__(
        self,
        topic: str,
        topic_id: bytes,
        index: int,
        log: PartitionLog,
        leader_epoch: int,
        *,
        rule: CommitRule | None = None,
    ) -> None:
        super().__init__(
            topic, topic_id, index, log, leader_epoch, high_watermark=log.log_end_offset
        )
        self.epoch_start_offset = log.log_end_offset
        self.bytes_in = self.bytes_out = 0
        self.is_internal = topic in INTERNAL_TOPICS
        self._rule = rule
        self._held: deque[tuple[int, int]] = deque()  # end offset and bytes of each batch
        self._moved: list[asyncio.Future[None]] = []
        self._waiters: set[Waiter] = set()
        log.on_start_moved = self._log_start_moved

    @property
    def is_leading(self) -> bool:
        """False once leadership ended; then nothing may be appended or read."""
        return self.is_current

    @property
    def commits_at_once(self) -> bool:
        """Whether everything is committed, and what is appended now will be with its append."""
        log = self.log
        return not (log.has_flush_rules or log.disk.is_held_up) and (
            self.high_watermark == log.log_end_offset
        )

    @property
    def traffic(self) -> Traffic:
        """What went in and out since leading began."""
        messages_in = self.log.log_end_offset - self.epoch_start_offset
        return Traffic(self.bytes_in, self.bytes_out, messages_in)

    def append(
        self, batch: bytearray | memoryview | Prepared, now_ms: int
    ) -> AppendResult | Rejected | NeedsThread:
        """Append one batch from a client; see PartitionLog.append_as_leader. Raises OSError.

        It is committed if it lies below the high watermark afterwards; else `wait_committed` tells when it is.
        """
        assert self.is_current, f"append to {self.topic}-{self.index}, which is led elsewhere"
        log = self.log
        disk = log.disk
        is_held_up = disk.is_held_up  # should this very write be slow, it is done when that shows
        if is_held_up:
            disk.require_room()
        size_before = log.log_end_offset
        result = log.append_as_leader(batch, self.leader_epoch, now_ms)
        end_offset = log.log_end_offset
        if end_offset != size_before:
            size = len(batch.buffer if isinstance(batch, Prepared) else batch)
            self.bytes_in += size
            if is_held_up:
                self._held.append((end_offset, size))
                disk.when_written(partial(self._written, end_offset))
                return result
            if self._waits_for_flush():
                self._held.append((end_offset, size))
                return result
            self.high_watermark = end_offset
            if self._held or self._moved:
                self.commit(end_offset)
            if self._waiters:
                for waiter in tuple(self._waiters):
                    waiter.appended(size)
        return result

    def _waits_for_flush(self) -> bool:
        """Whether what is appended is committed only once it is durable."""
        return self.log.has_flush_rules and self._rule is not None and self._rule.hold(self)

    def _written(self, end_offset: int) -> None:
        """What was appended below `end_offset` while the disk was held up is written."""
        if self.is_leading and not self._waits_for_flush():
            self.commit(end_offset)

    def commit(self, end_offset: int) -> None:
        """What was appended below `end_offset` is committed, and whoever waits for it is told."""
        self.high_watermark = max(self.high_watermark, end_offset)
        while self._held and self._held[0][0] <= end_offset:
            _, size = self._held.popleft()
            for waiter in tuple(self._waiters):
                waiter.appended(size)
        self._wake()

    def _wake(self) -> None:
        moved, self._moved = self._moved, []
        for each in moved:
            if not each.done():
                each.set_result(None)

    def delete_records(self, offset: int) -> int | ErrorCode:
        """Let the log begin at `offset` (-1: at the high watermark), never before where it began; where it begins then.

        Only committed records of a log whose cleanup.policy has delete go: OFFSET_OUT_OF_RANGE, POLICY_VIOLATION. Not yet durable.
        Source: Partition.deleteRecordsOnLeader (KIP-107).
        """
        if not self.log.config.deletes:
            return ErrorCode.POLICY_VIOLATION
        if offset == HIGH_WATERMARK:
            offset = self.high_watermark
        if not 0 <= offset <= self.high_watermark:
            return ErrorCode.OFFSET_OUT_OF_RANGE
        self.log.delete_records_before(offset)
        return self.log.log_start_offset

    def _log_start_moved(self) -> None:
        for waiter in tuple(self._waiters):
            waiter.log_start_moved()

    async def wait_committed(self, end_offset: int) -> None:
        """Return once all records below `end_offset` are committed. Raises NotLeading."""
        while self.is_leading and self.high_watermark < end_offset:
            moved: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._moved.append(moved)
            await moved
        if not self.is_leading:
            raise NotLeading(f"{self.topic}-{self.index}")

    def wait(self, waiter: Waiter) -> None:
        """Tell the waiter of every append, and of what else it can hear of, until `forget`."""
        self._waiters.add(waiter)

    def forget(self, waiter: Waiter) -> None:
        self._waiters.discard(waiter)

    def end(self) -> None:
        """Leadership ended: whoever waits is told."""
        super().end()
        for waiter in tuple(self._waiters):
            waiter.leadership_lost()
        self._wake()
