import pytest
from logfleet.client.cluster import Client
from logfleet.client.figures.groups import (
    GroupFigures,
    first_timestamps,
    group_figures,
    total_lag,
)
from logfleet.client.offsets import IsolationLevel, TopicPartition
from logfleet.wire.errors import ErrorCode
from logfleet.wire.messages import (
    DescribeGroupsRequest,
    DescribeGroupsResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    OffsetFetchRequest,
    OffsetFetchResponse,
)

from broker_image.tests.unit.client.fake_broker import FakeBroker
from broker_image.tests.unit.client.test_fetcher import Log

END = 100


def coordinate(broker: FakeBroker, committed: dict[str, dict[int, int]]) -> None:
    """It coordinates these groups, each of one member; a group with no offsets is not described."""

    def describe(request: DescribeGroupsRequest) -> DescribeGroupsResponse:
        (name,) = request.groups
        kind = DescribeGroupsResponse.DescribedGroup
        if not committed[name]:
            return DescribeGroupsResponse(
                groups=[kind(group_id=name, error_code=ErrorCode.GROUP_ID_NOT_FOUND)]
            )
        member = DescribeGroupsResponse.DescribedGroupMember(member_id="m")
        return DescribeGroupsResponse(
            groups=[kind(group_id=name, group_state="Stable", members=[member])]
        )

    def fetch(request: OffsetFetchRequest) -> OffsetFetchResponse:
        name = request.groups[0].group_id
        row = OffsetFetchResponse.OffsetFetchResponsePartitions
        topic = OffsetFetchResponse.OffsetFetchResponseTopics(
            name="t",
            partitions=[
                row(partition_index=index, committed_offset=at)
                for index, at in committed[name].items()
            ],
        )
        found = OffsetFetchResponse.OffsetFetchResponseGroup(group_id=name, topics=[topic])
        return OffsetFetchResponse(groups=[found])

    def ends(request: ListOffsetsRequest) -> ListOffsetsResponse:
        row = ListOffsetsResponse.ListOffsetsPartitionResponse
        return ListOffsetsResponse(
            topics=[
                ListOffsetsResponse.ListOffsetsTopicResponse(
                    name=topic.name,
                    partitions=[
                        row(partition_index=each.partition_index, offset=END)
                        for each in topic.partitions
                    ],
                )
                for topic in request.topics
            ]
        )

    broker.answers |= {
        DescribeGroupsRequest: describe,
        OffsetFetchRequest: fetch,
        ListOffsetsRequest: ends,
    }


@pytest.mark.asyncio
async def test_the_lag_is_summed_over_partitions_and_members_are_counted() -> None:
    async with FakeBroker({"t": 2}).running() as broker, Client(broker.bootstrap) as client:
        broker.leaderless = {("t", 1)}
        coordinate(broker, {"a": {0: 40}, "b": {0: 90, 1: 7}, "gone": {}, "ahead": {0: 200}})
        found = await group_figures(client, ["a", "b", "gone", "ahead"])
    assert found == {
        "a": GroupFigures(1, 60),
        "b": GroupFigures(1, 10),
        "gone": GroupFigures(None, None),
        "ahead": GroupFigures(1, 0),
    }


@pytest.mark.asyncio
async def test_groups_that_have_committed_nothing_ask_for_no_ends() -> None:
    async with FakeBroker({"t": 2}).running() as broker, Client(broker.bootstrap) as client:
        coordinate(broker, {"gone": {}})
        assert await group_figures(client, ["gone"]) == {"gone": GroupFigures(None, None)}
    assert broker.of(ListOffsetsRequest) == []


@pytest.mark.parametrize(
    "lags, total", [([], None), ([None], None), ([1, None, 2], 3), ([0], 0), ([-5, 2], 2)]
)
def test_a_total_is_of_what_is_known(lags: list[int | None], total: int | None) -> None:
    assert total_lag(lags) == total


@pytest.mark.asyncio
async def test_the_time_of_the_first_unread_record_is_fetched_per_partition() -> None:
    t0, t1 = TopicPartition("t", 0), TopicPartition("t", 1)
    async with FakeBroker({"t": 2}).running() as broker, Client(broker.bootstrap) as client:
        Log(broker, batches=3)
        found = await first_timestamps(
            client, {t0: 15, t1: 0}, IsolationLevel.READ_UNCOMMITTED, within_s=10
        )
        assert found == {t0: 1000, t1: 1000}
        at_end = await first_timestamps(
            client, {t0: 30}, IsolationLevel.READ_UNCOMMITTED, within_s=0.1
        )
    assert at_end == {}
