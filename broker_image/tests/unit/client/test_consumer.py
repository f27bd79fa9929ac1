import asyncio
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio
from logfleet.client import consumer as consumer_module
from logfleet.client.cluster import Client
from logfleet.client.consumer import GroupConsumer
from logfleet.client.errors import KafkaError
from logfleet.client.fetcher import Fetched
from logfleet.client.offsets import IsolationLevel, OffsetSpec, TopicPartition
from logfleet.records.record import Record, build_batch
from logfleet.wire.consumer_protocol import read_assignment
from logfleet.wire.errors import ErrorCode
from logfleet.wire.messages import (
    FetchRequest,
    FetchResponse,
    FindCoordinatorRequest,
    HeartbeatRequest,
    HeartbeatResponse,
    JoinGroupRequest,
    JoinGroupResponse,
    LeaveGroupRequest,
    LeaveGroupResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    OffsetCommitRequest,
    OffsetCommitResponse,
    OffsetFetchRequest,
    OffsetFetchResponse,
    SyncGroupRequest,
    SyncGroupResponse,
)

from broker_image.tests.unit.client.fake_broker import TOPIC_ID, FakeBroker

pytestmark = pytest.mark.asyncio


class Group:
    """A coordinator with one member; and a log of one batch of ten records per partition."""

    def __init__(self, broker: FakeBroker) -> None:
        self.generation = 0
        self.committed: dict[int, int] = {}
        self.heartbeats: list[int] = []
        self.syncs: list[int] = []
        self.joins: list[int] = [ErrorCode.MEMBER_ID_REQUIRED]
        broker.answers |= {
            JoinGroupRequest: self.join,
            SyncGroupRequest: self.sync,
            HeartbeatRequest: lambda _: HeartbeatResponse(
                error_code=self.heartbeats.pop(0) if self.heartbeats else 0
            ),
            LeaveGroupRequest: lambda _: LeaveGroupResponse(),
            OffsetFetchRequest: self.fetch_offsets,
            OffsetCommitRequest: self.commit,
            ListOffsetsRequest: self.list_offsets,
            FetchRequest: self.fetch,
        }

    def join(self, request: JoinGroupRequest) -> JoinGroupResponse:
        code = self.joins.pop(0) if self.joins else 0
        if code:
            return JoinGroupResponse(error_code=code, member_id="m1")
        self.generation += 1
        member = JoinGroupResponse.JoinGroupResponseMember(
            member_id=request.member_id, metadata=request.protocols[0].metadata
        )
        return JoinGroupResponse(
            generation_id=self.generation,
            protocol_name="range",
            leader=request.member_id,
            member_id=request.member_id,
            members=[member],
        )

    def sync(self, request: SyncGroupRequest) -> SyncGroupResponse:
        if self.syncs and (code := self.syncs.pop(0)):
            return SyncGroupResponse(error_code=code)
        return SyncGroupResponse(assignment=request.assignments[0].assignment)

    def fetch_offsets(self, request: OffsetFetchRequest) -> OffsetFetchResponse:
        assert request.groups[0].topics is not None
        rows = [
            OffsetFetchResponse.OffsetFetchResponsePartitions(
                partition_index=index, committed_offset=self.committed.get(index, -1)
            )
            for index in request.groups[0].topics[0].partition_indexes
        ]
        topic = OffsetFetchResponse.OffsetFetchResponseTopics(name="t", partitions=rows)
        group = OffsetFetchResponse.OffsetFetchResponseGroup(group_id="g", topics=[topic])
        return OffsetFetchResponse(groups=[group])

    def commit(self, request: OffsetCommitRequest) -> OffsetCommitResponse:
        code = 0 if request.generation_id_or_member_epoch == self.generation else 22
        topic = OffsetCommitResponse.OffsetCommitResponseTopic(name="t")
        for row in request.topics[0].partitions:
            if not code:
                self.committed[row.partition_index] = row.committed_offset
            topic.partitions.append(
                OffsetCommitResponse.OffsetCommitResponsePartition(
                    partition_index=row.partition_index, error_code=code
                )
            )
        return OffsetCommitResponse(topics=[topic])

    def list_offsets(self, request: ListOffsetsRequest) -> ListOffsetsResponse:
        rows = [
            ListOffsetsResponse.ListOffsetsPartitionResponse(
                partition_index=row.partition_index, offset=0 if row.timestamp == -2 else 10
            )
            for row in request.topics[0].partitions
        ]
        topic = ListOffsetsResponse.ListOffsetsTopicResponse(name="t", partitions=rows)
        return ListOffsetsResponse(topics=[topic])

    def fetch(self, request: FetchRequest) -> FetchResponse:
        records = [Record(None, b"%d" % number, 1) for number in range(10)]
        rows = [
            FetchResponse.PartitionData(
                partition_index=asked.partition,
                records=build_batch(records) if asked.fetch_offset < 10 else None,
            )
            for asked in request.topics[0].partitions
        ]
        topic = FetchResponse.FetchableTopicResponse(topic_id=TOPIC_ID, partitions=rows)
        return FetchResponse(responses=[topic])


@pytest_asyncio.fixture
async def broker() -> AsyncIterator[FakeBroker]:
    async with FakeBroker({"t": 2}).running() as running:
        yield running


@pytest_asyncio.fixture
async def consumer(broker: FakeBroker) -> AsyncIterator[GroupConsumer]:
    async with Client(broker.bootstrap) as client:
        yield GroupConsumer(client, "g", ["t"], reset=OffsetSpec.EARLIEST, heartbeat_ms=0)


async def read(consumer: GroupConsumer, records: int) -> list[bytes | None]:
    values: list[bytes | None] = []
    while len(values) < records:
        for fetched in await consumer.poll(100):
            values += [record.value for record in fetched.records()]
    return values


async def test_a_member_joins_reads_commits_and_leaves(
    broker: FakeBroker, consumer: GroupConsumer
) -> None:
    group = Group(broker)
    async with consumer:
        assert len(await read(consumer, 20)) == 20
        assert consumer.assignment() == [TopicPartition("t", 0), TopicPartition("t", 1)]
        await consumer.commit()
        await consumer.commit()  # nothing new: nothing is sent
    assert group.committed == {0: 10, 1: 10}
    assert len(broker.of(OffsetCommitRequest)) == 1
    assert [request.member_id for request in broker.of(JoinGroupRequest)] == ["", "m1"]
    (sync,) = broker.of(SyncGroupRequest)
    assert read_assignment(sync.assignments[0].assignment) == {"t": [0, 1]}
    (leave,) = broker.of(LeaveGroupRequest)
    assert leave.members[0].member_id == "m1"


async def test_a_member_that_reads_committed_records_begins_and_fetches_accordingly(
    broker: FakeBroker,
) -> None:
    Group(broker)
    committed = IsolationLevel.READ_COMMITTED
    async with (
        Client(broker.bootstrap) as client,
        GroupConsumer(
            client, "g", ["t"], reset=OffsetSpec.EARLIEST, isolation=committed
        ) as consumer,
    ):
        await read(consumer, 20)
    for kind in (ListOffsetsRequest, FetchRequest):
        assert {request.isolation_level for request in broker.of(kind)} == {committed}
    assert all(request.require_stable for request in broker.of(OffsetFetchRequest))


async def test_reading_goes_on_where_the_group_left_off(
    broker: FakeBroker, consumer: GroupConsumer
) -> None:
    Group(broker).committed = {0: 7, 1: 10}
    async with consumer:
        assert await read(consumer, 3) == [b"7", b"8", b"9"]


async def test_a_rebalance_commits_and_joins_again(
    broker: FakeBroker, consumer: GroupConsumer
) -> None:
    group = Group(broker)
    group.heartbeats = [ErrorCode.REBALANCE_IN_PROGRESS]
    async with consumer:
        await read(consumer, 20)
        while group.generation < 2:
            await consumer.poll(10)
        assert group.committed == {0: 10, 1: 10}
        assert consumer.member_id == "m1"
        assert consumer.fetcher.positions() == {
            TopicPartition("t", 0): 10,
            TopicPartition("t", 1): 10,
        }


async def test_a_member_that_was_given_up_comes_back_under_a_new_name(
    broker: FakeBroker, consumer: GroupConsumer
) -> None:
    group = Group(broker)
    group.heartbeats = [ErrorCode.UNKNOWN_MEMBER_ID]
    async with consumer:
        while group.generation < 2:
            await consumer.poll(10)
        assert [request.member_id for request in broker.of(JoinGroupRequest)][:3] == ["", "m1", ""]
        assert group.committed == {}


async def test_a_group_that_moves_on_while_joining_is_joined_again(
    broker: FakeBroker, consumer: GroupConsumer
) -> None:
    group = Group(broker)
    group.syncs = [ErrorCode.REBALANCE_IN_PROGRESS, ErrorCode.NOT_COORDINATOR]
    async with consumer:
        await read(consumer, 20)
        assert group.generation == 3
        assert len(broker.of(FindCoordinatorRequest)) == 2


async def test_a_group_that_moves_on_for_longer_than_a_call_may_take_is_joined_all_the_same(
    broker: FakeBroker, consumer: GroupConsumer
) -> None:
    group = Group(broker)
    group.syncs = [
        ErrorCode.REBALANCE_IN_PROGRESS,
        ErrorCode.UNKNOWN_MEMBER_ID,
        ErrorCode.ILLEGAL_GENERATION,
    ]
    consumer.client.timeout_ms = 1  # less than any pause between two attempts
    async with consumer:
        assert len(await read(consumer, 20)) == 20
    group.syncs = [ErrorCode.NOT_COORDINATOR]
    with pytest.raises(KafkaError, match="group g: NOT_COORDINATOR"):
        await consumer.poll()


async def test_the_leader_has_new_partitions_divided(
    broker: FakeBroker, consumer: GroupConsumer
) -> None:
    group = Group(broker)
    async with consumer:
        await read(consumer, 20)
        broker.topics["t"] = 3
        consumer._recount_at = 0
        assert len(await read(consumer, 10)) == 10
        assert group.generation == 2
        assert len(consumer.assignment()) == 3


async def test_a_refusal_is_raised(broker: FakeBroker, consumer: GroupConsumer) -> None:
    Group(broker).joins = [ErrorCode.GROUP_AUTHORIZATION_FAILED]
    with pytest.raises(KafkaError, match="group g: GROUP_AUTHORIZATION_FAILED"):
        await consumer.poll()


async def test_a_commit_of_an_old_generation_is_raised(
    broker: FakeBroker, consumer: GroupConsumer
) -> None:
    group = Group(broker)
    async with consumer:
        await read(consumer, 20)
        group.generation = 7
        with pytest.raises(KafkaError, match="ILLEGAL_GENERATION"):
            await consumer.commit()


async def test_a_member_that_gives_up_while_it_joins_leaves_all_the_same(
    broker: FakeBroker, consumer: GroupConsumer
) -> None:
    group = Group(broker)
    joining = asyncio.Event()

    def join(request: JoinGroupRequest) -> JoinGroupResponse | None:
        if group.joins:
            return group.join(request)
        joining.set()  # and no answer: the group waits for its other members
        return None

    broker.answers[JoinGroupRequest] = join
    async with consumer:
        polling = asyncio.ensure_future(consumer.poll())
        await joining.wait()
        polling.cancel()
        with pytest.raises(asyncio.CancelledError):
            await polling
    (leave,) = broker.of(LeaveGroupRequest)
    assert leave.members[0].member_id == "m1"


async def test_the_offsets_to_commit_can_be_given(
    broker: FakeBroker, consumer: GroupConsumer
) -> None:
    group = Group(broker)
    async with consumer:
        await read(consumer, 20)
        await consumer.commit({TopicPartition("t", 1): 3})
    assert group.committed == {1: 3}


async def test_a_commit_that_is_tried_again_does_not_undo_a_later_one(
    broker: FakeBroker, consumer: GroupConsumer
) -> None:
    group = Group(broker)
    partition = TopicPartition("t", 0)

    def commit(request: OffsetCommitRequest) -> OffsetCommitResponse:
        answer = group.commit(request)
        if len(broker.of(OffsetCommitRequest)) == 1:
            group.committed.clear()
            answer.topics[0].partitions[0].error_code = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        return answer

    broker.answers[OffsetCommitRequest] = commit
    async with consumer:
        await read(consumer, 20)
        await asyncio.gather(consumer.commit({partition: 3}), consumer.commit({partition: 4}))
    assert group.committed == {0: 4}


async def test_a_coordinator_that_does_not_answer_does_not_keep_a_member_from_leaving(
    broker: FakeBroker, consumer: GroupConsumer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(consumer_module, "LEAVE_SECONDS", 0.05)
    Group(broker)
    broker.answers[LeaveGroupRequest] = lambda _: None
    async with asyncio.timeout(10), consumer:  # less than the client waits for an answer
        await consumer.poll(1)
    assert len(broker.of(LeaveGroupRequest)) == 1
    assert consumer.member_id == ""


async def test_polling_waits_although_a_heartbeat_is_not_answered(
    broker: FakeBroker, consumer: GroupConsumer, monkeypatch: pytest.MonkeyPatch
) -> None:
    Group(broker).committed = {0: 10, 1: 10}
    broker.answers[HeartbeatRequest] = lambda _: None
    broker.answers[FetchRequest] = lambda _: None
    consumer.heartbeat_seconds = 0.05
    async with consumer:
        await consumer.poll(100)
        while not broker.of(HeartbeatRequest):
            await consumer.poll(50)
        polled = 0
        fetcher_poll = consumer.fetcher.poll

        async def poll(timeout_ms: int) -> list[Fetched]:
            nonlocal polled
            polled += 1
            return await fetcher_poll(timeout_ms)

        monkeypatch.setattr(consumer.fetcher, "poll", poll)
        await consumer.poll(200)
    assert polled <= 10  # one for each time that a heartbeat is due, and some to spare
