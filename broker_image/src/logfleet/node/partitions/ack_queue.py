"""Producers that wait for an acknowledgement: one queue for each partition that this broker leads.

A wait has two parts. First comes what this broker itself delays (a disk, flush.messages): that has
no time limit, as within Kafka's append. With acks=all the followers come next, for as long as the
request allows. A queue lives for one leader epoch, as its partition does, so a batch is
acknowledged in the epoch of its append or not at all.

Source: Kafka's DelayedProduce, Partition.checkEnoughReplicasReachOffset.
"""

import asyncio
from bisect import bisect_right, insort
from operator import attrgetter
from typing import Final, Protocol

from logfleet.io.timers import Alarm
from logfleet.replication.ends import ReplicaEnds
from logfleet.wire.errors import ErrorCode

ALL: Final = -1
"""A value of acks: all in-sync replicas."""
_END_OFFSET: Final = attrgetter("end_offset")


class AckWait(Protocol):
    """A wait until all records below `end_offset` may be acknowledged.

    acks: 1 waits for this broker alone, ALL for all in-sync replicas. timeout_s: how long to wait
    for the followers, None for no limit. deadline_s: set by the queue.
    """

    end_offset: int
    acks: int
    timeout_s: float | None
    deadline_s: float

    def ended(self, error: ErrorCode) -> None:
        """The wait has ended. Called once, in a later step of the loop than `AckQueue.add`."""


class AwaitedAck:
    """A wait for a coroutine. outcome: NONE if the records are acknowledged, else the error."""

    __slots__ = ("acks", "deadline_s", "end_offset", "outcome", "timeout_s")

    def __init__(self, end_offset: int, acks: int, timeout_s: float | None) -> None:
        self.end_offset = end_offset
        self.acks = acks
        self.timeout_s = timeout_s
        self.deadline_s = 0.0
        self.outcome: asyncio.Future[ErrorCode] = asyncio.get_running_loop().create_future()

    def ended(self, error: ErrorCode) -> None:
        if not self.outcome.done():  # else the waiting task was cancelled
            self.outcome.set_result(error)


class AckPartition(Protocol):
    """The parts of a partition that its queue needs."""

    @property
    def is_leading(self) -> bool: ...
    @property
    def is_at_min_isr(self) -> bool: ...
    @property
    def ends(self) -> ReplicaEnds: ...

    def is_acked(self, end_offset: int, acks: int) -> bool:
        """Whether the records below `end_offset` may be acknowledged."""


class AckQueue:
    """The waits of one partition. count: those whose end has not been reported yet."""

    __slots__ = ("_alarm", "_ended", "_following", "_own", "_partition", "count")

    def __init__(self, partition: AckPartition) -> None:
        self._partition = partition
        # waits for this broker itself, and for the followers; both are sorted by end offset
        self._own: list[AckWait] = []
        self._following: list[AckWait] = []
        # waits that are over; their method `ended` is called in the next step of the event loop
        self._ended: list[AckWait] = []
        self._alarm = Alarm(self._time_out)
        self.count = 0

    def add(self, wait: AckWait) -> None:
        """Call `wait.ended` once the wait has ended, however it ends."""
        self.count += 1
        partition = self._partition
        if partition.is_leading and wait.end_offset > partition.ends.own_end_offset:
            insort(self._own, wait, key=_END_OFFSET)
        else:
            self._own_part_done(wait)

    def check(self) -> None:
        """End the waits that are over: the partition has moved on, or its leadership has ended."""
        partition = self._partition
        is_over, ends = not partition.is_leading, partition.ends
        if self._own:
            for wait in _taken(self._own, None if is_over else ends.own_end_offset):
                self._own_part_done(wait)
        if self._following:
            for wait in _taken(self._following, None if is_over else ends.high_watermark):
                self._end(wait)
        if is_over:
            self._alarm.cancel()

    def _own_part_done(self, wait: AckWait) -> None:
        """This broker's own part is done: acks=all goes on to wait for the followers."""
        partition = self._partition
        if (
            wait.acks != ALL
            or wait.end_offset <= partition.ends.high_watermark
            or not partition.is_leading
        ):
            self._end(wait)
            return
        insort(self._following, wait, key=_END_OFFSET)
        if wait.timeout_s is not None:
            wait.deadline_s = asyncio.get_running_loop().time() + wait.timeout_s
            self._alarm.set(wait.deadline_s)

    def _time_out(self, now_s: float) -> float | None:
        """End the waits whose time is up; return the deadline of the next one."""
        left, self._following = self._following, []
        next_s = None
        for wait in left:
            if wait.timeout_s is not None and wait.deadline_s <= now_s:
                self._end(wait)
                continue
            self._following.append(wait)
            if wait.timeout_s is not None and (next_s is None or wait.deadline_s < next_s):
                next_s = wait.deadline_s
        return next_s

    def _end(self, wait: AckWait) -> None:
        if not self._ended:
            asyncio.get_running_loop().call_soon(self._call_ended)
        self._ended.append(wait)

    def _call_ended(self) -> None:
        """Call `ended` of all waits that ended in this step: it may append to the partition."""
        ended, self._ended = self._ended, []
        self.count -= len(ended)
        for wait in ended:
            wait.ended(self._error_of(wait))

    def _error_of(self, wait: AckWait) -> ErrorCode:
        """Why the records are not acknowledged; NONE if they are."""
        partition = self._partition
        if partition.is_acked(wait.end_offset, wait.acks):
            if wait.acks == ALL and partition.is_leading and not partition.is_at_min_isr:
                return ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND
            return ErrorCode.NONE
        if partition.is_leading:
            return ErrorCode.REQUEST_TIMED_OUT
        return ErrorCode.NOT_LEADER_OR_FOLLOWER


def _taken(queue: list[AckWait], end_offset: int | None) -> list[AckWait]:
    """Remove and return the waits for `end_offset` or less; None: all of them."""
    count = len(queue) if end_offset is None else bisect_right(queue, end_offset, key=_END_OFFSET)
    taken = queue[:count]
    del queue[:count]
    return taken
