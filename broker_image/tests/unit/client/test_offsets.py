import pytest
from logfleet.client.cluster import Client
from logfleet.client.errors import KafkaError
from logfleet.client.offsets import IsolationLevel, OffsetSpec, TopicPartition, list_offsets
from logfleet.wire.messages import ListOffsetsRequest, ListOffsetsResponse

from broker_image.tests.unit.client.fake_broker import FakeBroker

pytestmark = pytest.mark.asyncio


def answer(request: ListOffsetsRequest, code: int = 0) -> ListOffsetsResponse:
    topics = [
        ListOffsetsResponse.ListOffsetsTopicResponse(
            name=topic.name,
            partitions=[
                ListOffsetsResponse.ListOffsetsPartitionResponse(
                    partition_index=row.partition_index,
                    offset=100 * row.partition_index + row.timestamp,
                    error_code=code,
                )
                for row in topic.partitions
            ],
        )
        for topic in request.topics
    ]
    return ListOffsetsResponse(topics=topics)


async def test_one_request_asks_a_leader_for_all_its_partitions() -> None:
    async with FakeBroker({"t": 2, "u": 1}).running() as broker:
        broker.answers[ListOffsetsRequest] = answer
        wanted = {
            TopicPartition("t", 0): OffsetSpec.EARLIEST,
            TopicPartition("t", 1): 7,
            TopicPartition("u", 0): OffsetSpec.LATEST,
        }
        async with Client(broker.bootstrap) as client:
            found = await list_offsets(client, wanted, isolation=IsolationLevel.READ_COMMITTED)
        assert {str(key): at.offset for key, at in found.items()} == {
            "t-0": -2,
            "t-1": 107,
            "u-0": -1,
        }
        (request,) = broker.of(ListOffsetsRequest)
        assert request.isolation_level == 1


async def test_a_moved_leader_is_asked_again() -> None:
    async with FakeBroker({"t": 1}).running() as broker:
        codes = [6, 0]
        broker.answers[ListOffsetsRequest] = lambda request: answer(request, codes.pop(0))
        async with Client(broker.bootstrap) as client:
            found = await list_offsets(client, {TopicPartition("t", 0): 5})
        assert found[TopicPartition("t", 0)].offset == 5


async def test_a_refusal_names_the_partition() -> None:
    async with FakeBroker({"t": 1}).running() as broker:
        broker.answers[ListOffsetsRequest] = lambda request: answer(request, 29)
        async with Client(broker.bootstrap) as client:
            with pytest.raises(KafkaError, match="t-0: TOPIC_AUTHORIZATION_FAILED"):
                await list_offsets(client, {TopicPartition("t", 0): 5})
