import pytest
from logfleet.node.transactions.additions import Asked
from logfleet.transactions.records import TRANSACTION_STATE_TOPIC
from logfleet.wire.errors import ErrorCode
from logfleet.wire.messages import AddPartitionsToTxnRequest

from broker_image.tests.unit.node.handlers.conftest import Host
from broker_image.tests.unit.node.transactions.transactions_rig import (
    FIRST_PRODUCER_ID,
    TransactionsRig,
)
from broker_image.tests.unit.waiting import Until

pytestmark = pytest.mark.asyncio

DAY_MS = 24 * 3_600_000


def asked(epoch: int = 0, *, verify_only: bool = False, partition: int = 0) -> Asked:
    topic = AddPartitionsToTxnRequest.AddPartitionsToTxnTopic(name="t", partitions=[partition])
    return Asked(
        transactional_id="a",
        producer_id=FIRST_PRODUCER_ID,
        producer_epoch=epoch,
        verify_only=verify_only,
        topics=[topic],
    )


async def ask(rig: TransactionsRig, addition: Asked) -> ErrorCode:
    """The answer for the one partition that is asked about."""
    found = await rig.coordinators.add_partitions(addition)
    assert found.transactional_id == "a"
    (topic,) = found.topic_results
    (row,) = topic.results_by_partition
    assert topic.name == "t"
    return ErrorCode(row.partition_error_code)


async def test_its_topic_is_made_as_kafkas(tmp_path, until: Until) -> None:
    """TransactionStateManager.transactionStateTopicConfigs."""
    host = Host(tmp_path)
    rig = TransactionsRig(
        host,
        str(tmp_path),
        transaction_state_log_num_partitions="7",
        transaction_state_log_replication_factor="2",
        transaction_state_log_min_isr="1",
        transaction_state_log_segment_bytes="1048576",
    )
    rig.coordinators.topic.want(host.image)
    await until(lambda: rig.created)
    (created,) = rig.created
    assert created == (
        TRANSACTION_STATE_TOPIC,
        7,
        2,
        {
            "cleanup.policy": "compact",
            "compression.type": "uncompressed",
            "min.insync.replicas": "1",
            "segment.bytes": "1048576",
            "unclean.leader.election.enable": "false",
        },
    )
    host.close()


async def test_this_broker_asks_without_a_request(rig: TransactionsRig) -> None:
    assert await ask(rig, asked()) is ErrorCode.NOT_COORDINATOR
    async with rig.coordinating() as partition:
        await rig.init()
        verify = asked(verify_only=True)
        assert await ask(rig, verify) is ErrorCode.TRANSACTION_ABORTABLE
        assert await ask(rig, asked()) is ErrorCode.NONE
        assert await ask(rig, verify) is ErrorCode.NONE
        assert await ask(rig, asked(partition=9)) is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        rig.lose(partition)
        assert await ask(rig, asked()) is ErrorCode.NOT_COORDINATOR


async def test_unused_ids_are_looked_for_again_and_again(tmp_path, until: Until) -> None:
    host = Host(tmp_path / "data")
    rig = TransactionsRig(
        host,
        str(tmp_path),
        transaction_remove_expired_transaction_cleanup_interval_ms="1",
    )
    async with rig.coordinating() as partition:
        await rig.init()
        assert partition.log_end_offset == 1
        rig.clock.move(7 * DAY_MS + 1)
        await until(lambda: partition.log_end_offset == 2)
    host.close()
