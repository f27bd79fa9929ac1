import pytest
from logfleet.client.cluster import Client
from logfleet.client.figures import topics as module
from logfleet.client.figures.topics import TopicFigures, record_rates, topic_figures
from logfleet.wire.errors import ErrorCode
from logfleet.wire.messages import (
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
)

from broker_image.tests.unit.client.fake_broker import FakeBroker

pytestmark = pytest.mark.asyncio
BEGIN = -2


def holding(broker: FakeBroker, *, ends: dict[str, list[int]]) -> None:
    """The broker has logs that begin at 10; each question for an end gets the next of `ends`."""

    def offsets(request: ListOffsetsRequest) -> ListOffsetsResponse:
        topics = []
        for topic in request.topics:
            rows = []
            for each in topic.partitions:
                offset = 10
                if each.timestamp != BEGIN:
                    known = ends[topic.name]
                    offset = known.pop(0) if len(known) > 1 else known[0]
                rows.append(
                    ListOffsetsResponse.ListOffsetsPartitionResponse(
                        partition_index=each.partition_index, offset=offset
                    )
                )
            topics.append(
                ListOffsetsResponse.ListOffsetsTopicResponse(name=topic.name, partitions=rows)
            )
        return ListOffsetsResponse(topics=topics)

    def directories(request: DescribeLogDirsRequest) -> DescribeLogDirsResponse:
        del request
        kind = DescribeLogDirsResponse
        logs = [
            kind.DescribeLogDirsTopic(
                name=name,
                partitions=[
                    kind.DescribeLogDirsPartition(partition_index=index, partition_size=100 + index)
                    for index in range(count)
                ],
            )
            for name, count in broker.topics.items()
        ]
        result = kind.DescribeLogDirsResult(log_dir="/data", topics=logs)
        return kind(results=[result])

    broker.answers |= {ListOffsetsRequest: offsets, DescribeLogDirsRequest: directories}


async def test_bytes_are_of_one_replica_and_records_from_begin_to_end() -> None:
    async with (
        FakeBroker({"a": 2, "b": 1}).running() as broker,
        Client(broker.bootstrap) as client,
    ):
        holding(broker, ends={"a": [15], "b": [10]})
        found = await topic_figures(client, await client.fetch_topics(None))
    assert found == {"a": TopicFigures(201, 10), "b": TopicFigures(100, 0)}


async def test_records_of_a_topic_that_has_a_partition_without_leader_are_unknown() -> None:
    async with (
        FakeBroker({"a": 2, "b": 1}).running() as broker,
        Client(broker.bootstrap) as client,
    ):
        broker.leaderless = {("a", 1)}
        holding(broker, ends={"a": [15], "b": [12]})
        found = await topic_figures(client, await client.fetch_topics(None))
    assert found == {"a": TopicFigures(201, None), "b": TopicFigures(100, 2)}


async def test_a_broker_that_refuses_or_is_silent_leaves_figures_unknown(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module, "ANSWER_S_MAX", 0.2)
    async with FakeBroker({"a": 1}).running() as broker, Client(broker.bootstrap) as client:
        refusal = DescribeLogDirsResponse(
            error_code=ErrorCode.CLUSTER_AUTHORIZATION_FAILED, results=[]
        )
        broker.answers |= {
            DescribeLogDirsRequest: lambda _: refusal,
            ListOffsetsRequest: lambda _: None,
        }
        found = await topic_figures(client, await client.fetch_topics(None))
    assert found == {"a": TopicFigures(None, None)}


async def test_a_rate_is_how_far_the_end_moves_in_the_time() -> None:
    async with FakeBroker({"a": 1}).running() as broker, Client(broker.bootstrap) as client:
        holding(broker, ends={"a": [100, 150]})
        (rate,) = (await record_rates(client, await client.fetch_topics(None), 0.1)).values()
    assert rate is not None
    assert 0 < rate <= 500
