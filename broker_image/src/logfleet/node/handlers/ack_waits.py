"""Waiting until batches may be acknowledged: what a Produce request is parked for (Kafka's DelayedProduce).

What this broker itself holds back, a disk or flush.messages, is waited for as long as it takes, as within Kafka's append; the request's timeout
is for its followers. A partition object lives for one leader epoch, so a batch is acknowledged in the epoch of its append or not at all.
"""

import asyncio
from collections.abc import Sequence
from typing import Final

from logfleet.node.handlers.host import PartitionHost
from logfleet.node.partitions.partition import ALL, Partition
from logfleet.wire.errors import ErrorCode

OWN: Final = 1
"""As acks: of this broker alone."""

Batch = tuple[Partition, int]
"""A batch that was appended: its partition and its end offset."""


async def wait_acked(
    broker: PartitionHost, batches: Sequence[Batch], acks: int, timeout_ms: int
) -> None:
    """Return once nothing of them is to be waited for any more; `ack_error` says what became of each."""
    broker.parked.produces += 1
    try:
        await _wait(broker, batches, OWN, None)
        if acks == ALL:
            await _wait(broker, batches, ALL, max(0, timeout_ms) / 1000)
    finally:
        broker.parked.produces -= 1


async def _wait(
    broker: PartitionHost, batches: Sequence[Batch], acks: int, timeout_s: float | None
) -> None:
    waiting = [
        (partition, end_offset)
        for partition, end_offset in batches
        if partition.is_leading and not partition.is_acked(end_offset, acks)
    ]
    if not waiting:
        return
    done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    left = len(waiting)

    def end() -> None:
        if not done.done():
            done.set_result(None)

    def one_is_over() -> None:
        nonlocal left
        left -= 1
        if not left:
            end()

    waits = [
        (partition, partition.call_when_acked(end_offset, acks, one_is_over))
        for partition, end_offset in waiting
    ]
    timer = None if timeout_s is None else broker.timers.add(timeout_s, end)
    try:
        await done
    finally:
        if timer is not None:
            timer.cancel()
        for partition, wait in waits:
            partition.forget_ack(wait)


def ack_error(partition: Partition, end_offset: int, acks: int) -> ErrorCode:
    """Why what was appended below `end_offset` is not acknowledged after the wait; NONE if it is (Partition.checkEnoughReplicasReachOffset)."""
    if partition.is_acked(end_offset, acks):
        if acks == ALL and partition.is_leading and not partition.is_at_min_isr:
            return ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND
        return ErrorCode.NONE
    if partition.is_leading:
        return ErrorCode.REQUEST_TIMED_OUT
    return ErrorCode.NOT_LEADER_OR_FOLLOWER
