"""A metadata store restored from a backup that is older than the logs.

It behaves as docs/how-to/restoring-metadata.md describes.
"""

import shutil
from pathlib import Path
from typing import Any

import msgspec
import pytest
from logfleet.io.sqlite import SqliteStore
from logfleet.log.names import TopicPartition
from logfleet.metadata.kinds.brokers import FENCE
from logfleet.metadata.kinds.producer_ids import NEXT_PRODUCER_ID
from logfleet.metadata.kinds.topics import PARTITION, PartitionValue
from logfleet.metadata.store import Delete, Put, Txn
from logfleet.node.broker import Broker
from logfleet.node.partitions.leader_partition import LeaderPartition
from logfleet.records.record import ProducerStamp, Record, build_batch
from logfleet.store.opening import EMBEDDED_FILE
from logfleet.telemetry.decisions import Kind
from logfleet.wire.errors import ErrorCode
from logfleet.wire.messages import (
    DeleteTopicsRequest,
    InitProducerIdRequest,
    OffsetForLeaderEpochRequest,
    ProduceRequest,
)

from broker_image.tests.unit.node.broker_rig import ask_broker, config, create_topic

pytestmark = pytest.mark.asyncio


class Node:
    """One broker's directory. `back_up` and `restore` while it is stopped."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self.data = path / "data"
        self._copy = path / "backup.db"

    def broker(self) -> Broker:
        return Broker(config(self._path))

    def back_up(self) -> None:
        shutil.copy(self.data / EMBEDDED_FILE, self._copy)

    def restore(self) -> None:
        for file in self.data.glob(f"{EMBEDDED_FILE}*"):
            file.unlink()
        shutil.copy(self._copy, self.data / EMBEDDED_FILE)

    async def restart(self, times: int) -> None:
        for _ in range(times):
            async with self.broker():
                pass

    async def raise_numbers(self) -> None:
        """What the document has its reader do before the brokers start."""
        store = await SqliteStore.open(self.data / EMBEDDED_FILE)
        held = await store.get(NEXT_PRODUCER_ID.prefix)
        first = 0 if held is None else int(held.value)
        puts = [Put(NEXT_PRODUCER_ID.prefix, str(first + (1 << 40)).encode())]
        for item in (await store.range(PARTITION.prefix)).items:
            value = msgspec.json.decode(item.value, type=PartitionValue)
            epoch = value.leader_epoch + 1_000_000
            raised = msgspec.structs.replace(value, leader_epoch=epoch, restored=True)
            puts.append(Put(item.key, PARTITION.encode(raised)))
        fences = [Delete(item.key) for item in (await store.range(FENCE.prefix)).items]
        await store.txn(Txn(success=(*puts, *fences)))
        await store.close()


@pytest.fixture
def node(tmp_path: Path) -> Node:
    return Node(tmp_path)


def led(broker: Broker, topic: str = "t") -> LeaderPartition:
    partition = broker.rooms.partitions.find(topic, 0)
    assert isinstance(partition, LeaderPartition), partition
    return partition


async def produce(broker: Broker, value: bytes, stamp: ProducerStamp | None = None) -> Any:
    record = Record(None, value, broker.rooms.clock.now_ms())
    rows = [
        ProduceRequest.PartitionProduceData(
            index=0, records=bytes(build_batch([record], producer=stamp))
        )
    ]
    topics = [ProduceRequest.TopicProduceData(name="t", partition_data=rows)]
    request = ProduceRequest(acks=-1, timeout_ms=1000, topic_data=topics)
    answer = await ask_broker(broker, request, 9)
    return answer.responses[0].partition_responses[0]


async def end_of_epoch(broker: Broker, epoch: int) -> Any:
    rows = [
        OffsetForLeaderEpochRequest.OffsetForLeaderPartition(
            partition=0, current_leader_epoch=led(broker).leader_epoch, leader_epoch=epoch
        )
    ]
    topics = [OffsetForLeaderEpochRequest.OffsetForLeaderTopic(topic="t", partitions=rows)]
    answer = await ask_broker(broker, OffsetForLeaderEpochRequest(topics=topics), 4)
    return answer.topics[0].partitions[0]


async def init_producer(broker: Broker) -> ProducerStamp:
    answer = await ask_broker(broker, InitProducerIdRequest(transactional_id=None), 5)
    return ProducerStamp(answer.producer_id, answer.producer_epoch, 0)


async def aged(node: Node) -> int:
    """A topic with a record from before the backup and a much later one; the latter's epoch."""
    async with node.broker() as broker:
        await create_topic(broker, "t")
        assert (await produce(broker, b"before")).base_offset == 0
    node.back_up()
    await node.restart(5)
    async with node.broker() as broker:
        assert (await produce(broker, b"after")).base_offset == 1
        return led(broker).leader_epoch


async def test_no_record_is_cut_though_the_log_knows_later_leader_epochs(node: Node) -> None:
    newest = await aged(node)
    node.restore()
    async with node.broker() as broker:
        partition = led(broker)
        assert partition.leader_epoch < newest
        assert partition.high_watermark == 2
        assert (await produce(broker, b"then")).base_offset == 2
    async with node.broker() as broker:
        assert led(broker).high_watermark == 3


async def test_a_consumer_that_read_in_a_later_epoch_learns_of_a_loss_that_is_none(
    node: Node,
) -> None:
    newest = await aged(node)
    node.restore()
    async with node.broker() as broker:
        row = await end_of_epoch(broker, newest)
        assert (row.error_code, row.leader_epoch, row.end_offset) == (ErrorCode.NONE, -1, -1)


async def test_with_raised_leader_epochs_consumers_find_where_they_were(node: Node) -> None:
    newest = await aged(node)
    node.restore()
    await node.raise_numbers()
    async with node.broker() as broker:
        row = await end_of_epoch(broker, newest)
        assert (row.error_code, row.leader_epoch, row.end_offset) == (ErrorCode.NONE, newest, 2)


@pytest.mark.parametrize("is_prepared", [True, False])
async def test_a_log_that_is_newer_than_the_store_is_kept_and_believed_once_fences_are_deleted(
    node: Node, *, is_prepared: bool
) -> None:
    """Else the broker's disk is not that of the life that the store knows as its last."""
    await aged(node)
    node.restore()
    if is_prepared:
        await node.raise_numbers()
    async with node.broker() as broker:
        assert led(broker).high_watermark == 2
        assert broker.decisions.count(Kind.UNCLEAN_ELECTION) == (0 if is_prepared else 1)


async def first_of_a_new_producer(node: Node, *, raised: bool) -> tuple[Any, int]:
    """The answer to a new producer's first record after a restoring, and the log's end then.

    An earlier producer with that id had written a record before it.
    """
    async with node.broker() as broker:
        await create_topic(broker, "t")
    node.back_up()
    async with node.broker() as broker:
        await produce(broker, b"another's", await init_producer(broker))
    node.restore()
    if raised:
        await node.raise_numbers()
    async with node.broker() as broker:
        row = await produce(broker, b"its", await init_producer(broker))
        return row, led(broker).high_watermark


async def test_a_producer_id_is_given_out_again_and_a_record_taken_for_anothers(
    node: Node,
) -> None:
    row, end = await first_of_a_new_producer(node, raised=False)
    assert (row.error_code, row.base_offset) == (ErrorCode.NONE, 0)
    assert end == 1, "it was acknowledged and not written"


async def test_with_producer_ids_raised_every_record_is_written(node: Node) -> None:
    row, end = await first_of_a_new_producer(node, raised=True)
    assert (row.error_code, row.base_offset, end) == (ErrorCode.NONE, 1, 2)


async def test_a_topic_made_since_is_set_aside_and_one_deleted_since_is_there_and_empty(
    node: Node,
) -> None:
    await aged(node)
    async with node.broker() as broker:
        await create_topic(broker, "since")
        (kept,) = node.data.glob("since-0")
        segment = kept / "00000000000000000000.log"
        assert segment.exists()
        await ask_broker(broker, DeleteTopicsRequest(topic_names=["t"], timeout_ms=10_000), 5)
        await broker.rooms.hosting.local.until_applied(broker.image.revision)
    node.restore()
    async with node.broker() as broker:
        assert broker.image.topic("since") is None
        assert broker.rooms.disks.log_dirs.log_of(TopicPartition("since", 0)) is None
        (stray,) = node.data.glob("since-0.*-stray")
        assert (stray / segment.name).exists()
        assert led(broker).high_watermark == 0
