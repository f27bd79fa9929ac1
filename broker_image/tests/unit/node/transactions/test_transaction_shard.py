"""What a shard of transactions does beside what every shard does."""

import asyncio
from collections.abc import Sequence

import pytest
from logfleet.node.coordinators.waiter import Waiter
from logfleet.node.transactions.additions import PartitionErrors
from logfleet.node.transactions.transaction_shard import TransactionShard
from logfleet.transactions.adding import Addition
from logfleet.transactions.markers import MarkerAnswer, MarkersDue
from logfleet.transactions.state import TopicPartition
from logfleet.types import ProducerEpoch
from logfleet.wire.errors import ErrorCode
from logfleet.wire.messages import EndTxnRequest, EndTxnResponse

from broker_image.tests.unit.node.transactions.transactions_rig import (
    FIRST_PRODUCER_ID,
    TransactionsRig,
)

pytestmark = pytest.mark.asyncio

T0 = TopicPartition("t", 0)
DAY_MS = 24 * 3_600_000


async def begin(rig: TransactionsRig, epoch: int = 0) -> PartitionErrors:
    """Add t-0 to the transaction of "a"; its producer has this epoch."""
    addition = Addition("a", FIRST_PRODUCER_ID, ProducerEpoch(epoch), frozenset({T0}))
    return await rig.coordinators.add(addition).arrived()


async def commit(rig: TransactionsRig) -> EndTxnResponse:
    request = EndTxnRequest(
        transactional_id="a", producer_id=FIRST_PRODUCER_ID, producer_epoch=0, committed=True
    )
    waiter: Waiter[EndTxnResponse] = rig.coordinators.ask(
        "a",
        lambda it, turn, waiter: it.end(turn, request, 5, waiter),
        lambda error: EndTxnResponse(error_code=error),
    )
    return await waiter.arrived()


async def test_the_next_coordinator_has_the_markers_written_of_what_was_decided(
    rig: TransactionsRig,
) -> None:
    async with rig.coordinating() as partition:
        await rig.init()
        await begin(rig)
        assert (await commit(rig)).error_code == ErrorCode.NONE
        former = rig.shard()
        rig.lose(partition)
        assert rig.closed == [former]
        rig.due.clear()

        rig.lead()
        shard = await rig.loaded()
        ((owner, due),) = rig.due
        assert owner is shard
        assert due.is_commit
        assert due.partitions == {T0}
        former.markers_written(MarkerAnswer(former, due.key, due.partitions))
        assert await begin(rig, epoch=1) is ErrorCode.CONCURRENT_TRANSACTIONS
        rig.write_markers()
        assert await begin(rig, epoch=1) is ErrorCode.NONE


async def test_markers_may_be_written_in_the_step_in_which_they_become_due(
    rig: TransactionsRig,
) -> None:
    def write(shard: TransactionShard, due: Sequence[MarkersDue]) -> None:
        for each in due:
            shard.markers_written(MarkerAnswer(shard, each.key, each.partitions))

    rig.coordinators.events.on_due.append(write)
    async with rig.coordinating():
        await rig.init()
        await begin(rig)
        await commit(rig)
        assert await begin(rig, epoch=1) is ErrorCode.NONE, "the transaction is complete"


async def test_a_partition_that_refuses_the_marker_leaves_the_transaction_to_another(
    rig: TransactionsRig,
) -> None:
    async with rig.coordinating():
        await rig.init()
        await begin(rig)
        await commit(rig)
        ((shard, due),) = rig.due
        refused = (T0, ErrorCode.TRANSACTION_COORDINATOR_FENCED)
        shard.markers_written(MarkerAnswer(shard, due.key, frozenset(), refused))
        assert await begin(rig, epoch=1) is ErrorCode.CONCURRENT_TRANSACTIONS


async def test_a_transaction_that_takes_too_long_is_aborted(rig: TransactionsRig) -> None:
    async with rig.coordinating():
        await rig.init()
        await begin(rig)
        rig.clock.move(60_001)
        rig.shard().tick()
        ((_, due),) = rig.due
        assert not due.is_commit
        assert due.key.epoch == 1, "its producer is fenced"


async def test_ids_that_nobody_uses_expire(rig: TransactionsRig) -> None:
    async with rig.coordinating() as partition:
        assert await rig.init() == (FIRST_PRODUCER_ID, 0)
        rig.clock.move(7 * DAY_MS + 1)
        while rig.shard().expire_ids():
            pass
        assert await begin(rig) is ErrorCode.INVALID_PRODUCER_ID_MAPPING
        assert partition.log_end_offset == 2, "a tombstone follows the record"
        assert await rig.init() == (FIRST_PRODUCER_ID + 1, 0)


async def test_a_load_in_progress_has_no_expiry(rig: TransactionsRig) -> None:
    rig.lead()
    await asyncio.sleep(0)
    assert not rig.shard().expire_ids()
