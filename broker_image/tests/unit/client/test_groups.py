from collections.abc import AsyncIterator

import pytest
import pytest_asyncio
from logfleet.client.cluster import Client
from logfleet.client.errors import KafkaError
from logfleet.client.groups import Groups
from logfleet.client.offsets import TopicPartition
from logfleet.wire.consumer_protocol import write_assignment
from logfleet.wire.errors import ErrorCode
from logfleet.wire.messages import (
    DeleteGroupsRequest,
    DeleteGroupsResponse,
    DescribeGroupsRequest,
    DescribeGroupsResponse,
    FindCoordinatorRequest,
    ListGroupsRequest,
    ListGroupsResponse,
    OffsetCommitRequest,
    OffsetCommitResponse,
    OffsetDeleteRequest,
    OffsetDeleteResponse,
    OffsetFetchRequest,
    OffsetFetchResponse,
)

from broker_image.tests.unit.client.fake_broker import FakeBroker

pytestmark = pytest.mark.asyncio
T0 = TopicPartition("t", 0)


@pytest_asyncio.fixture
async def broker() -> AsyncIterator[FakeBroker]:
    async with FakeBroker({"t": 2}).running() as running:
        yield running


@pytest_asyncio.fixture
async def groups(broker: FakeBroker) -> AsyncIterator[Groups]:
    async with Client(broker.bootstrap) as client:
        yield Groups(client)


async def test_groups_of_all_brokers_are_listed(broker: FakeBroker, groups: Groups) -> None:
    rows = [
        ListGroupsResponse.ListedGroup(group_id=name, group_state="Empty", group_type="classic")
        for name in ("b", "a")
    ]
    broker.answers[ListGroupsRequest] = lambda _: ListGroupsResponse(groups=rows)
    assert [(row.group, row.state, row.kind) for row in await groups.list()] == [
        ("a", "Empty", "classic"),
        ("b", "Empty", "classic"),
    ]


def described(state: str, code: int = 0) -> DescribeGroupsResponse:
    member = DescribeGroupsResponse.DescribedGroupMember(
        member_id="m",
        client_id="c",
        client_host="/h",
        member_assignment=write_assignment({"t": [1]}),
    )
    row = DescribeGroupsResponse.DescribedGroup(
        error_code=code,
        group_state=state,
        protocol_type="consumer",
        protocol_data="range",
        members=[member],
    )
    return DescribeGroupsResponse(groups=[row])


async def test_a_group_is_described_with_its_members(broker: FakeBroker, groups: Groups) -> None:
    broker.answers[DescribeGroupsRequest] = lambda _: described("Stable")
    group = await groups.describe("g")
    assert (group.state, group.assignor) == ("Stable", "range")
    assert group.members[0].assignment == {"t": [1]}


@pytest.mark.parametrize("state,code", [("Dead", 0), ("", 69)])
async def test_a_group_that_is_not_there_is_an_error(
    broker: FakeBroker, groups: Groups, state: str, code: int
) -> None:
    broker.answers[DescribeGroupsRequest] = lambda _: described(state, code)
    with pytest.raises(KafkaError, match="group g") as missing:
        await groups.describe("g")
    assert missing.value.code == ErrorCode.GROUP_ID_NOT_FOUND


async def test_a_coordinator_that_moved_is_looked_up_anew(
    broker: FakeBroker, groups: Groups
) -> None:
    codes = [16, 0]
    broker.answers[DescribeGroupsRequest] = lambda _: described("Stable", codes.pop(0))
    await groups.describe("g")
    assert len(broker.of(FindCoordinatorRequest)) == 2


async def test_a_group_with_members_is_not_deleted(broker: FakeBroker, groups: Groups) -> None:
    row = DeleteGroupsResponse.DeletableGroupResult(group_id="g", error_code=68)
    broker.answers[DeleteGroupsRequest] = lambda _: DeleteGroupsResponse(results=[row])
    with pytest.raises(KafkaError, match="group g: NON_EMPTY_GROUP"):
        await groups.delete("g")
    row.error_code = 0
    await groups.delete("g")


async def test_partitions_without_a_commit_are_left_out(broker: FakeBroker, groups: Groups) -> None:
    rows = [
        OffsetFetchResponse.OffsetFetchResponsePartitions(partition_index=0, committed_offset=5),
        OffsetFetchResponse.OffsetFetchResponsePartitions(partition_index=1, committed_offset=-1),
    ]
    topic = OffsetFetchResponse.OffsetFetchResponseTopics(name="t", partitions=rows)
    group = OffsetFetchResponse.OffsetFetchResponseGroup(group_id="g", topics=[topic])
    broker.answers[OffsetFetchRequest] = lambda _: OffsetFetchResponse(groups=[group])
    found = await groups.committed("g", [T0, TopicPartition("t", 1)])
    assert {str(key): committed.offset for key, committed in found.items()} == {"t-0": 5}
    await groups.committed("g", require_stable=False)
    some, everything = broker.of(OffsetFetchRequest)
    assert (some.require_stable, everything.require_stable) == (True, False)
    assert some.groups[0].topics[0].partition_indexes == [0, 1]
    assert everything.groups[0].topics is None


async def test_a_commit_names_its_generation(broker: FakeBroker, groups: Groups) -> None:
    row = OffsetCommitResponse.OffsetCommitResponsePartition()
    topic = OffsetCommitResponse.OffsetCommitResponseTopic(name="t", partitions=[row])
    broker.answers[OffsetCommitRequest] = lambda _: OffsetCommitResponse(topics=[topic])
    await groups.commit("g", {T0: 9}, generation=3, member_id="m")
    (request,) = broker.of(OffsetCommitRequest)
    assert (request.generation_id_or_member_epoch, request.member_id) == (3, "m")
    assert request.topics[0].partitions[0].committed_offset == 9
    row.error_code = 25
    with pytest.raises(KafkaError, match="UNKNOWN_MEMBER_ID"):
        await groups.commit("g", {T0: 9})


async def test_offsets_are_forgotten_or_the_first_that_is_kept_is_named(
    broker: FakeBroker, groups: Groups
) -> None:
    kind = OffsetDeleteResponse
    asked = []

    def answer(request: OffsetDeleteRequest) -> OffsetDeleteResponse:
        rows = [row.partition_index for row in request.topics[0].partitions]
        asked.append((request.group_id, request.topics[0].name, rows))
        code = ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC if len(rows) > 1 else ErrorCode.NONE
        row = kind.OffsetDeleteResponsePartition(partition_index=0, error_code=code)
        return kind(topics=[kind.OffsetDeleteResponseTopic(name="t", partitions=[row])])

    broker.answers[OffsetDeleteRequest] = answer
    await groups.delete_offsets("g", [T0])
    with pytest.raises(KafkaError, match="group g, t-0"):
        await groups.delete_offsets("g", [T0, TopicPartition("t", 1)])
    assert asked == [("g", "t", [0]), ("g", "t", [0, 1])]
    error = ErrorCode.GROUP_ID_NOT_FOUND
    broker.answers[OffsetDeleteRequest] = lambda _: kind(error_code=error)
    with pytest.raises(KafkaError, match="group g"):
        await groups.delete_offsets("g", [T0])
