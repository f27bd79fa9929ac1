"""Offsets and newest batches of partitions, some of which fail."""

from collections.abc import AsyncIterator

import pytest
import pytest_asyncio
from logfleet.checks.gathering.offsets import in_parts, newest_batches, offsets_at
from logfleet.checks.snapshot import Batch
from logfleet.client.cluster import Client
from logfleet.client.errors import ConnectionLost
from logfleet.client.offsets import OffsetAt, TopicPartition
from logfleet.records.compression import Codec
from logfleet.records.control import marker_batch
from logfleet.records.record import ProducerStamp, Record, build_batch
from logfleet.wire.errors import ErrorCode
from logfleet.wire.messages import (
    FetchRequest,
    FetchResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
)

from broker_image.tests.unit.client.fake_broker import FakeBroker

pytestmark = pytest.mark.asyncio
KEYS = [TopicPartition("t", index) for index in range(5)]
LEADERS = dict.fromkeys(KEYS, 1)
RECORDS = [Record(None, b"v" * 100, 1_000) for _ in range(3)]


@pytest_asyncio.fixture
async def broker() -> AsyncIterator[FakeBroker]:
    made = FakeBroker({"t": 5})
    async with made.running():
        yield made


@pytest_asyncio.fixture
async def client(broker: FakeBroker) -> AsyncIterator[Client]:
    async with Client(broker.bootstrap) as made:
        yield made


def offsets(request: ListOffsetsRequest) -> ListOffsetsResponse:
    """Partition 1 has moved; the others have 7 as the offset of any time."""
    row = ListOffsetsResponse.ListOffsetsPartitionResponse
    topic = ListOffsetsResponse.ListOffsetsTopicResponse(name="t")
    for each in request.topics[0].partitions:
        code = ErrorCode.NOT_LEADER_OR_FOLLOWER if each.partition_index == 1 else ErrorCode.NONE
        made = row(partition_index=each.partition_index, error_code=code, timestamp=5, offset=7)
        topic.partitions.append(made)
    return ListOffsetsResponse(topics=[topic])


async def test_a_partition_that_fails_is_left_out(broker: FakeBroker, client: Client) -> None:
    broker.answers[ListOffsetsRequest] = offsets
    found = await offsets_at(client, LEADERS, dict.fromkeys(KEYS[:3], -1))
    assert {key: (at.offset, at.timestamp) for key, at in found.items()} == {
        KEYS[0]: (7, 5),
        KEYS[2]: (7, 5),
    }


async def test_a_partition_without_a_leader_is_not_asked_for(
    broker: FakeBroker, client: Client
) -> None:
    broker.answers[ListOffsetsRequest] = offsets
    assert await offsets_at(client, {KEYS[0]: 1}, dict.fromkeys(KEYS, -1)) == {
        KEYS[0]: OffsetAt(7, 5, -1)
    }
    assert await offsets_at(client, {}, dict.fromkeys(KEYS, -1)) == {}


async def test_no_leader_that_answers_is_an_error_and_one_is_enough(
    broker: FakeBroker, client: Client
) -> None:
    broker.answers[ListOffsetsRequest] = offsets
    gone = {KEYS[0]: 1, KEYS[2]: 9}
    assert set(await offsets_at(client, gone, dict.fromkeys(gone, -1))) == {KEYS[0]}
    with pytest.raises(ConnectionLost):
        await offsets_at(client, {KEYS[2]: 9}, {KEYS[2]: -1})


async def test_the_newest_batch_is_judged_by_its_header(broker: FakeBroker, client: Client) -> None:
    plain = build_batch(RECORDS)
    idempotent = build_batch(RECORDS, codec=Codec.GZIP, producer=ProducerStamp(4, 0, 0))
    marker = marker_batch(4, 0, commit=True, coordinator_epoch=0, now_ms=0)
    answers: list[bytes | bytearray] = [plain, idempotent, marker, b"", plain[:20]]

    def fetched(request: FetchRequest) -> FetchResponse:
        (topic,) = request.topics
        assert [each.fetch_offset for each in topic.partitions] == [9] * 5
        rows = [
            FetchResponse.PartitionData(partition_index=index, records=memoryview(records))
            for index, records in enumerate(answers)
        ]
        return FetchResponse(
            responses=[FetchResponse.FetchableTopicResponse(topic="t", partitions=rows)]
        )

    broker.answers[FetchRequest] = fetched
    assert await newest_batches(client, LEADERS, dict.fromkeys(KEYS, 10)) == {
        KEYS[0]: Batch(idempotent=False, compressed=False, records=3, size=len(plain)),
        KEYS[1]: Batch(idempotent=True, compressed=True, records=3, size=len(idempotent)),
    }


async def test_requests_have_a_limited_number_of_items() -> None:
    assert [list(each) for each in in_parts(range(5), 2)] == [[0, 1], [2, 3], [4]]
    assert list(in_parts([], 2)) == []
