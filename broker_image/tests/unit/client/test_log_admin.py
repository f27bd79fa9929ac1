from collections.abc import AsyncIterator

import pytest
import pytest_asyncio
from logfleet.client.cluster import Client
from logfleet.client.errors import KafkaError
from logfleet.client.log_admin import delete_records, describe_log_dirs
from logfleet.client.offsets import TopicPartition
from logfleet.wire.errors import ErrorCode
from logfleet.wire.messages import (
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
)

from broker_image.tests.unit.client.fake_broker import FakeBroker

pytestmark = pytest.mark.asyncio
T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)


@pytest_asyncio.fixture
async def broker() -> AsyncIterator[FakeBroker]:
    async with FakeBroker({"t": 2}).running() as running:
        yield running


@pytest_asyncio.fixture
async def client(broker: FakeBroker) -> AsyncIterator[Client]:
    async with Client(broker.bootstrap) as made:
        await made.fetch_topics([])
        yield made


def deleted(*rows: tuple[int, int]) -> DeleteRecordsResponse:
    """rows: begin of each partition of t, and its error."""
    kind = DeleteRecordsResponse
    results = [
        kind.DeleteRecordsPartitionResult(partition_index=n, low_watermark=begin, error_code=code)
        for n, (begin, code) in enumerate(rows)
    ]
    return kind(topics=[kind.DeleteRecordsTopicResult(name="t", partitions=results)])


async def test_partitions_of_a_leader_are_asked_for_together(broker, client) -> None:
    asked = []

    def answer(request: DeleteRecordsRequest) -> DeleteRecordsResponse:
        asked.append([(row.partition_index, row.offset) for row in request.topics[0].partitions])
        return deleted((5, 0), (7, 0))

    broker.answers[DeleteRecordsRequest] = answer
    assert await delete_records(client, {T0: 5, T1: -1}) == {T0: 5, T1: 7}
    assert asked == [[(0, 5), (1, -1)]]


async def test_what_is_done_is_not_asked_again_after_a_leader_moved(broker, client) -> None:
    answers = [deleted((5, 0), (-1, ErrorCode.NOT_LEADER_OR_FOLLOWER)), deleted((5, 0), (7, 0))]
    asked = []

    def answer(request: DeleteRecordsRequest) -> DeleteRecordsResponse:
        asked.append([row.partition_index for row in request.topics[0].partitions])
        return answers.pop(0)

    broker.answers[DeleteRecordsRequest] = answer
    await delete_records(client, {T0: 5, T1: 7})
    assert asked == [[0, 1], [1]]


async def test_a_refusal_names_the_partition(broker, client) -> None:
    code = ErrorCode.OFFSET_OUT_OF_RANGE
    broker.answers[DeleteRecordsRequest] = lambda _: deleted((-1, code))
    with pytest.raises(KafkaError, match="t-0: OFFSET_OUT_OF_RANGE"):
        await delete_records(client, {T0: 9})


async def test_directories_are_described(broker, client) -> None:
    kind = DescribeLogDirsResponse
    rows = [kind.DescribeLogDirsPartition(partition_index=n, partition_size=n + 1) for n in (1, 0)]
    rows.append(
        kind.DescribeLogDirsPartition(partition_index=0, partition_size=7, is_future_key=True)
    )
    good = kind.DescribeLogDirsResult(
        log_dir="/a",
        topics=[kind.DescribeLogDirsTopic(name="t", partitions=rows)],
        total_bytes=10,
        usable_bytes=4,
    )
    bad = kind.DescribeLogDirsResult(log_dir="/b", error_code=ErrorCode.KAFKA_STORAGE_ERROR)
    asked = []

    def answer(request: DescribeLogDirsRequest) -> DescribeLogDirsResponse:
        topics = request.topics
        asked.append(None if topics is None else [(row.topic, row.partitions) for row in topics])
        return kind(results=[good, bad])

    broker.answers[DescribeLogDirsRequest] = answer
    first, second = await describe_log_dirs(client, 1)
    assert [(log.partition, log.size) for log in first.logs] == [(T0, 1), (T1, 2)]
    assert (first.error, first.usable_bytes, second.error) == (None, 4, "KAFKA_STORAGE_ERROR")
    await describe_log_dirs(client, 1, [T0, T1])
    assert asked == [None, [("t", [0, 1])]]
