import pytest
from logfleet.cli.group import description_of
from logfleet.client.cluster import Client
from logfleet.client.offsets import IsolationLevel
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
