from typing import Any

import pytest
from logfleet.cli import group
from logfleet.cli.group import add_time_lags, description_of, totals_of
from logfleet.client.cluster import Client
from logfleet.client.offsets import IsolationLevel, TopicPartition
from logfleet.wire.messages import (
    DescribeGroupsRequest,
    DescribeGroupsResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    OffsetFetchRequest,
    OffsetFetchResponse,
)

from broker_image.tests.unit.client.fake_broker import FakeBroker

pytestmark = pytest.mark.asyncio
COMMITTED = 40
END = 100


def coordinate(broker: FakeBroker) -> None:
    """Let it be the coordinator of an empty group g that has committed for each partition, and tell where those end."""
    group = DescribeGroupsResponse.DescribedGroup(group_id="g", group_state="Empty")

    def committed(_: OffsetFetchRequest) -> OffsetFetchResponse:
        rows = OffsetFetchResponse.OffsetFetchResponsePartitions
        topics = [
            OffsetFetchResponse.OffsetFetchResponseTopics(
                name=name,
                partitions=[
                    rows(partition_index=index, committed_offset=COMMITTED)
                    for index in range(count)
                ],
            )
            for name, count in broker.topics.items()
        ]
        answer = OffsetFetchResponse.OffsetFetchResponseGroup(group_id="g", topics=topics)
        return OffsetFetchResponse(groups=[answer])

    def ends(request: ListOffsetsRequest) -> ListOffsetsResponse:
        rows = ListOffsetsResponse.ListOffsetsPartitionResponse
        topics = [
            ListOffsetsResponse.ListOffsetsTopicResponse(
                name=topic.name,
                partitions=[
                    rows(partition_index=row.partition_index, offset=END)
                    for row in topic.partitions
                ],
            )
            for topic in request.topics
        ]
        return ListOffsetsResponse(topics=topics)

    broker.answers |= {
        DescribeGroupsRequest: lambda _: DescribeGroupsResponse(groups=[group]),
        OffsetFetchRequest: committed,
        ListOffsetsRequest: ends,
    }


async def test_a_group_is_described_while_nobody_leads_one_of_its_partitions() -> None:
    async with (
        FakeBroker({"t": 2}).running() as broker,
        Client(broker.bootstrap, timeout_ms=300) as client,
    ):
        coordinate(broker)
        broker.leaderless = {("t", 1)}
        described = await description_of(client, "g")
    # shown at once, also while a transaction may commit other offsets
    assert [asked.require_stable for asked in broker.of(OffsetFetchRequest)] == [False]
    shown = ("topic", "partition", "committed", "end", "lag", "member")
    assert [tuple(row[column] for column in shown) for row in described["offsets"]] == [
        ("t", 0, COMMITTED, END, END - COMMITTED, None),
        ("t", 1, COMMITTED, None, None, None),
    ]


async def test_the_lag_of_readers_of_committed_records_ends_at_open_transactions() -> None:
    async with FakeBroker({"t": 1}).running() as broker, Client(broker.bootstrap) as client:
        coordinate(broker)
        await description_of(client, "g", IsolationLevel.READ_COMMITTED)
        await description_of(client, "g")
    assert [asked.isolation_level for asked in broker.of(ListOffsetsRequest)] == [1, 0]


async def test_a_description_ends_with_the_lag_by_topic_and_in_all() -> None:
    offsets: list[dict[str, Any]] = [
        {"topic": "a", "lag": 5, "timeLagMs": 40},
        {"topic": "a", "lag": None, "timeLagMs": None},
        {"topic": "b", "lag": 2, "timeLagMs": 90},
    ]
    assert totals_of(offsets) == {
        "topics": [
            {"topic": "a", "partitions": 2, "lag": 5, "timeLagMs": 40},
            {"topic": "b", "partitions": 1, "lag": 2, "timeLagMs": 90},
        ],
        "lag": 7,
        "timeLagMs": 90,
    }
    assert totals_of([{"topic": "a", "lag": None}]) == {
        "topics": [{"topic": "a", "partitions": 1, "lag": None}],
        "lag": None,
    }


async def test_a_partition_that_is_read_to_its_end_is_not_behind_in_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked: list[object] = []

    async def first(_client: object, offsets: object, *_: object) -> dict[TopicPartition, int]:
        asked.append(offsets)
        return {TopicPartition("t", 0): 700}

    monkeypatch.setattr(group, "first_timestamps", first)
    rows = [
        {"topic": "t", "partition": 0, "committed": 5, "lag": 3},
        {"topic": "t", "partition": 1, "committed": 5, "lag": 1},
        {"topic": "t", "partition": 2, "committed": 8, "lag": 0},
        {"topic": "t", "partition": 3, "committed": None, "lag": None},
    ]
    async with FakeBroker().running() as broker, Client(broker.bootstrap) as client:
        await add_time_lags(client, {"offsets": rows}, IsolationLevel.READ_UNCOMMITTED, 1000)
    assert asked == [{TopicPartition("t", 0): 5, TopicPartition("t", 1): 5}]
    assert [row["timeLagMs"] for row in rows] == [300, None, 0, None]
