"""As talks.py, for share groups and the state that their coordinator keeps (KIP-932)."""

import base64

from logfleet.wire import messages as m

from e2e.compare.corpora.bases import BASES
from e2e.compare.world import LEAVING_MEMBER_EPOCH, NEW_MEMBER_EPOCH, TOPIC, Talk, World

ACCEPT = 1
SHARE_FETCHES_MAX = 60


def share_group_heartbeat(_world: World, _version: int) -> Talk:
    yield m.ShareGroupHeartbeatRequest(
        group_id="share",
        member_id="share-member-0000001",
        member_epoch=NEW_MEMBER_EPOCH,
        subscribed_topic_names=[TOPIC],
    )


def share_group_describe(_world: World, _version: int) -> Talk:
    yield m.ShareGroupDescribeRequest(group_ids=["share"])


def share_fetch(world: World, version: int) -> Talk:
    """Open a session at the end of the topic, and fetch until a new record is acquired."""
    kind = m.ShareFetchRequest
    topic = kind.FetchTopic(topic_id=world.topic.id, partitions=[kind.FetchPartition()])
    acquired: list[m.ShareFetchResponse.AcquiredRecords] = []
    for epoch in range(SHARE_FETCHES_MAX):
        answer = yield kind(
            group_id="share",
            member_id=share_member(version),
            share_session_epoch=epoch,
            max_wait_ms=500,
            min_bytes=1,
            max_bytes=1 << 20,
            max_records=10,
            batch_size=10,
            topics=[] if epoch else [topic],
        )
        acquired = [
            records
            for response in answer.responses
            for partition in response.partitions
            for records in partition.acquired_records
        ]
        if acquired:
            world.acquired[version] = (acquired[0].first_offset, epoch + 1)
            return
        yield BASES["Produce"](world)
    raise AssertionError("nothing was acquired")


def share_acknowledge(world: World, version: int) -> Talk:
    offset, epoch = world.acquired[version]
    kind = m.ShareAcknowledgeRequest
    batch = kind.AcknowledgementBatch(
        first_offset=offset, last_offset=offset, acknowledge_types=[ACCEPT]
    )
    partition = kind.AcknowledgePartition(acknowledgement_batches=[batch])
    topic = kind.AcknowledgeTopic(topic_id=world.topic.id, partitions=[partition])
    yield kind(
        group_id="share",
        member_id=share_member(version),
        share_session_epoch=epoch,
        topics=[topic],
    )


def share_member(version: int) -> str:
    """Return a member id, which Kafka requires to be a UUID in base64."""
    return f"AAAAAAAAAAAAAAAAAAAAA{'AQgw'[version]}"


def initialize_share_group_state(world: World, _version: int) -> Talk:
    """The first request to the share coordinator, which then creates its topic.

    ShareFetch fails until that topic exists.
    """
    topic_id = base64.urlsafe_b64encode(world.topic.id).decode().rstrip("=")
    yield m.FindCoordinatorRequest(key_type=2, coordinator_keys=[f"state:{topic_id}:0"])
    kind = m.InitializeShareGroupStateRequest
    topic = kind.InitializeStateData(topic_id=world.topic.id, partitions=[kind.PartitionData()])
    yield kind(group_id="state", topics=[topic])


def read_share_group_state(world: World, _version: int) -> Talk:
    kind = m.ReadShareGroupStateRequest
    topic = kind.ReadStateData(topic_id=world.topic.id, partitions=[kind.PartitionData()])
    yield kind(group_id="state", topics=[topic])


def write_share_group_state(world: World, version: int) -> Talk:
    kind = m.WriteShareGroupStateRequest
    batch = kind.StateBatch(
        first_offset=version, last_offset=version, delivery_state=0, delivery_count=1
    )
    partition = kind.PartitionData(start_offset=0, state_batches=[batch])
    topic = kind.WriteStateData(topic_id=world.topic.id, partitions=[partition])
    yield kind(group_id="state", topics=[topic])


def read_share_group_state_summary(world: World, _version: int) -> Talk:
    kind = m.ReadShareGroupStateSummaryRequest
    topic = kind.ReadStateSummaryData(topic_id=world.topic.id, partitions=[kind.PartitionData()])
    yield kind(group_id="state", topics=[topic])


def delete_share_group_state(world: World, _version: int) -> Talk:
    kind = m.DeleteShareGroupStateRequest
    topic = kind.DeleteStateData(topic_id=world.topic.id, partitions=[kind.PartitionData()])
    yield kind(group_id="state", topics=[topic])


def describe_share_group_offsets(_world: World, _version: int) -> Talk:
    kind = m.DescribeShareGroupOffsetsRequest
    topic = kind.DescribeShareGroupOffsetsRequestTopic(topic_name=TOPIC, partitions=[0])
    yield kind(
        groups=[kind.DescribeShareGroupOffsetsRequestGroup(group_id="share", topics=[topic])]
    )


def alter_share_group_offsets(_world: World, _version: int) -> Talk:
    yield m.ShareGroupHeartbeatRequest(
        group_id="share", member_id="share-member-0000001", member_epoch=LEAVING_MEMBER_EPOCH
    )
    kind = m.AlterShareGroupOffsetsRequest
    partition = kind.AlterShareGroupOffsetsRequestPartition(start_offset=0)
    topic = kind.AlterShareGroupOffsetsRequestTopic(topic_name=TOPIC, partitions=[partition])
    yield kind(group_id="share", topics=[topic])


def delete_share_group_offsets(_world: World, _version: int) -> Talk:
    kind = m.DeleteShareGroupOffsetsRequest
    topic = kind.DeleteShareGroupOffsetsRequestTopic(topic_name=TOPIC)
    yield kind(group_id="share", topics=[topic])
