"""A valid request or a short talk for each API of producers, consumers and groups, per version.

A talk is a generator: it yields requests (another API's in its newest version, or as (request,
version)) and receives the responses. Requests have the fields of all versions at once (a topic's
name and its id); `fit` drops the fields that a version lacks.
"""

import time
from collections.abc import Generator
from dataclasses import dataclass, field
from typing import Any

import msgspec
from logfleet.records.record import Record, build_batch
from logfleet.wire import messages as m
from logfleet.wire.errors import ErrorCode
from logfleet.wire.schema import Field, load_table

Talk = Generator[msgspec.Struct | tuple[msgspec.Struct, int], Any, None]
TOPIC = "wire"
GROUP, TRANSACTION = 0, 1
NEW_MEMBER_EPOCH, LEAVING_MEMBER_EPOCH = 0, -1
TRANSACTION_TIMEOUT_MS = 60_000


@dataclass
class World:
    """Values that talks learn from responses and later talks need.

    topic_id: of TOPIC. members: classic group -> member id, generation. acquired: version of
    ShareFetch -> an acquired offset, and the session epoch of the next request. classic: prefix of
    the names of classic groups. coordinators: the kinds of coordinators that the broker has.
    """

    cluster_id: str
    log_dir: str
    topic_id: bytes = b""
    members: dict[str, tuple[str, int]] = field(default_factory=dict)
    acquired: dict[int, tuple[int, int]] = field(default_factory=dict)
    classic: str = "classic"
    coordinators: tuple[int, ...] = (GROUP, TRANSACTION)
    streams_member: str = "streams-member-000001"


def fit(request: msgspec.Struct, version: int) -> msgspec.Struct:
    """Reset every field that the version lacks to its default. Changes the request in place."""
    schema = load_table()[type(request).__name__]

    def prune(value: msgspec.Struct, fields: tuple[Field, ...]) -> None:
        for each in fields:
            name = each.python_name
            if not each.exists(version):
                setattr(value, name, getattr(type(value)(), name))
            elif each.struct_name is not None:
                held = getattr(value, name)
                for child in held if isinstance(held, list) else [held]:
                    if child is not None:
                        prune(child, schema.structs[each.struct_name])

    prune(request, schema.fields)
    return request


# --- topics and records


def api_versions(world: World, _version: int) -> Talk:
    yield m.ApiVersionsRequest(
        client_software_name="logfleet",
        client_software_version="1",
        cluster_id=world.cluster_id,
        node_id=1,
    )


def create_topics(_world: World, version: int) -> Talk:
    topic = m.CreateTopicsRequest.CreatableTopic(
        name=f"made-{version}", num_partitions=1, replication_factor=1
    )
    yield m.CreateTopicsRequest(topics=[topic], timeout_ms=30_000)


def metadata(world: World, version: int) -> Talk:
    named = m.MetadataRequest.MetadataRequestTopic(name=TOPIC)
    answer = yield m.MetadataRequest(topics=[named])
    if version >= 10:
        world.topic_id = answer.topics[0].topic_id
    yield m.MetadataRequest(topics=[] if version == 0 else None)


def produce(world: World, _version: int) -> Talk:
    # with a time in the past, retention could delete the record at any time
    now_ms = time.time_ns() // 1_000_000
    batch = bytes(build_batch([Record(b"key", b"value", now_ms)]))
    partition = m.ProduceRequest.PartitionProduceData(records=batch)
    topic = m.ProduceRequest.TopicProduceData(
        name=TOPIC, topic_id=world.topic_id, partition_data=[partition]
    )
    yield m.ProduceRequest(acks=-1, timeout_ms=30_000, topic_data=[topic])


def fetch(world: World, _version: int) -> Talk:
    partition = m.FetchRequest.FetchPartition(partition_max_bytes=1 << 20)
    topic = m.FetchRequest.FetchTopic(topic=TOPIC, topic_id=world.topic_id, partitions=[partition])
    yield m.FetchRequest(max_wait_ms=100, min_bytes=1, max_bytes=1 << 20, topics=[topic])


def list_offsets(_world: World, version: int) -> Talk:
    special = {1: (-1, -2), 7: (-1, -2, -3), 8: (-1, -2, -3, -4), 9: (-1, -2, -3, -4, -5)}
    newest = (-1, -2, -3, -4, -5, -6)
    known = newest if version >= 11 else special[max(v for v in special if v <= version)]
    for timestamp in (*known, 0):
        partition = m.ListOffsetsRequest.ListOffsetsPartition(timestamp=timestamp)
        topic = m.ListOffsetsRequest.ListOffsetsTopic(name=TOPIC, partitions=[partition])
        yield m.ListOffsetsRequest(replica_id=-1, topics=[topic], timeout_ms=1000)


def offset_for_leader_epoch(_world: World, _version: int) -> Talk:
    partition = m.OffsetForLeaderEpochRequest.OffsetForLeaderPartition(leader_epoch=0)
    topic = m.OffsetForLeaderEpochRequest.OffsetForLeaderTopic(topic=TOPIC, partitions=[partition])
    yield m.OffsetForLeaderEpochRequest(topics=[topic])


def create_partitions(_world: World, version: int) -> Talk:
    topic = m.CreatePartitionsRequest.CreatePartitionsTopic(
        name="made-7", count=version + 2, assignments=None
    )
    yield m.CreatePartitionsRequest(topics=[topic], timeout_ms=30_000)


def delete_records(_world: World, _version: int) -> Talk:
    partition = m.DeleteRecordsRequest.DeleteRecordsPartition(offset=1)
    topic = m.DeleteRecordsRequest.DeleteRecordsTopic(name=TOPIC, partitions=[partition])
    yield m.DeleteRecordsRequest(topics=[topic], timeout_ms=30_000)


def delete_topics(_world: World, version: int) -> Talk:
    name = f"made-{version + 1}"  # the oldest version of CreateTopics is 2, of this API 1
    state = m.DeleteTopicsRequest.DeleteTopicState(name=name)
    yield m.DeleteTopicsRequest(topics=[state], topic_names=[name], timeout_ms=30_000)


def describe_topic_partitions(_world: World, _version: int) -> Talk:
    topic = m.DescribeTopicPartitionsRequest.TopicRequest(name=TOPIC)
    yield m.DescribeTopicPartitionsRequest(topics=[topic])


def describe_producers(_world: World, _version: int) -> Talk:
    topic = m.DescribeProducersRequest.TopicRequest(name=TOPIC, partition_indexes=[0])
    yield m.DescribeProducersRequest(topics=[topic])


# --- groups of all kinds


def find_coordinator(world: World, version: int) -> Talk:
    for kind in world.coordinators if version else (GROUP,):
        yield m.FindCoordinatorRequest(key="g", key_type=kind, coordinator_keys=["g"])


def join_group(world: World, version: int) -> Talk:
    group = f"{world.classic}-{version}"
    protocol = m.JoinGroupRequest.JoinGroupRequestProtocol(name="range", metadata=b"m")
    request = m.JoinGroupRequest(
        group_id=group,
        session_timeout_ms=60_000,
        rebalance_timeout_ms=60_000,
        protocol_type="consumer",
        protocols=[protocol],
    )
    answer = yield request
    if answer.error_code == ErrorCode.MEMBER_ID_REQUIRED:
        request.member_id = answer.member_id
        answer = yield request
    world.members[group] = (answer.member_id, answer.generation_id)


def sync_group(world: World, version: int) -> Talk:
    group = f"{world.classic}-{version}"
    member, generation = world.members[group]
    own = m.SyncGroupRequest.SyncGroupRequestAssignment(member_id=member, assignment=b"a")
    yield m.SyncGroupRequest(
        group_id=group,
        generation_id=generation,
        member_id=member,
        protocol_type="consumer",
        protocol_name="range",
        assignments=[own],
    )


def heartbeat(world: World, _version: int) -> Talk:
    member, generation = world.members[f"{world.classic}-5"]
    yield m.HeartbeatRequest(
        group_id=f"{world.classic}-5", generation_id=generation, member_id=member
    )


def offset_commit(world: World, version: int) -> Talk:
    member, generation = world.members[f"{world.classic}-5"]
    partition = m.OffsetCommitRequest.OffsetCommitRequestPartition(
        committed_offset=version, committed_metadata="note"
    )
    topic = m.OffsetCommitRequest.OffsetCommitRequestTopic(
        name=TOPIC, topic_id=world.topic_id, partitions=[partition]
    )
    yield m.OffsetCommitRequest(
        group_id=f"{world.classic}-5",
        generation_id_or_member_epoch=generation,
        member_id=member,
        retention_time_ms=86_400_000,
        topics=[topic],
    )


def offset_fetch(world: World, _version: int) -> Talk:
    old = m.OffsetFetchRequest.OffsetFetchRequestTopic(name=TOPIC, partition_indexes=[0])
    topic = m.OffsetFetchRequest.OffsetFetchRequestTopics(
        name=TOPIC, topic_id=world.topic_id, partition_indexes=[0]
    )
    group = m.OffsetFetchRequest.OffsetFetchRequestGroup(
        group_id=f"{world.classic}-5", topics=[topic]
    )
    yield m.OffsetFetchRequest(group_id=f"{world.classic}-5", topics=[old], groups=[group])


def offset_delete(world: World, _version: int) -> Talk:
    partition = m.OffsetDeleteRequest.OffsetDeleteRequestPartition()
    topic = m.OffsetDeleteRequest.OffsetDeleteRequestTopic(name=TOPIC, partitions=[partition])
    yield m.OffsetDeleteRequest(group_id=f"{world.classic}-5", topics=[topic])


def leave_group(world: World, version: int) -> Talk:
    group = f"{world.classic}-{version}"
    member, _ = world.members[group]
    identity = m.LeaveGroupRequest.MemberIdentity(member_id=member)
    yield m.LeaveGroupRequest(group_id=group, member_id=member, members=[identity])


def describe_groups(world: World, _version: int) -> Talk:
    yield m.DescribeGroupsRequest(groups=[f"{world.classic}-5"])


def list_groups(_world: World, _version: int) -> Talk:
    yield m.ListGroupsRequest()


def delete_groups(world: World, version: int) -> Talk:
    yield m.DeleteGroupsRequest(groups_names=[f"{world.classic}-{version}"])


def consumer_group_heartbeat(_world: World, version: int) -> Talk:
    answer = yield m.ConsumerGroupHeartbeatRequest(
        group_id=f"consumer-{version}",
        member_id="" if version == 0 else "consumer-member-000001",
        member_epoch=NEW_MEMBER_EPOCH,
        rebalance_timeout_ms=60_000,
        subscribed_topic_names=[TOPIC],
        topic_partitions=[],
    )
    assert answer.member_epoch > 0


def consumer_group_describe(_world: World, _version: int) -> Talk:
    yield m.ConsumerGroupDescribeRequest(group_ids=["consumer-0"])


def streams_group_heartbeat(world: World, version: int) -> Talk:
    kind = m.StreamsGroupHeartbeatRequest
    topology = kind.Topology(
        epoch=0, subtopologies=[kind.Subtopology(subtopology_id="0", source_topics=[TOPIC])]
    )
    answer = yield kind(
        group_id=f"streams-{version}",
        member_id=world.streams_member,
        member_epoch=NEW_MEMBER_EPOCH,
        rebalance_timeout_ms=60_000,
        topology=topology,
        active_tasks=[],
        standby_tasks=[],
        warmup_tasks=[],
        process_id="process",
        client_tags=[kind.KeyValue(key="zone", value="a")],
        user_endpoint=kind.Endpoint(host="127.0.0.1", port=65_000),
    )
    assert answer.member_epoch > 0


def streams_group_describe(_world: World, _version: int) -> Talk:
    yield m.StreamsGroupDescribeRequest(group_ids=["streams-1"], include_topology_description=True)


def streams_topology_description(world: World, _version: int) -> Talk:
    kind = m.StreamsGroupTopologyDescriptionUpdateRequest
    source = kind.TopologyDescriptionNode(
        name="source", node_type=1, source_topics=[TOPIC], successors=["sink"]
    )
    sink = kind.TopologyDescriptionNode(name="sink", node_type=3, sink_topic="out")
    part = kind.TopologyDescriptionSubtopology(subtopology_id="0", nodes=[source, sink])
    yield kind(
        group_id="streams-1",
        member_id=world.streams_member,
        topology_epoch=0,
        topology_description=kind.TopologyDescription(subtopologies=[part]),
    )


# --- transactions


def transactional(name: str) -> Generator[m.InitProducerIdRequest, Any, tuple[str, int, int]]:
    answer = yield m.InitProducerIdRequest(
        transactional_id=name, transaction_timeout_ms=TRANSACTION_TIMEOUT_MS
    )
    assert answer.error_code == 0
    return name, answer.producer_id, answer.producer_epoch


def init_producer_id(_world: World, _version: int) -> Talk:
    answer = yield m.InitProducerIdRequest(
        transactional_id=None, transaction_timeout_ms=TRANSACTION_TIMEOUT_MS
    )
    assert answer.producer_id >= 0


def partitions_of_transaction(name: str, producer_id: int, epoch: int) -> msgspec.Struct:
    kind = m.AddPartitionsToTxnRequest
    topics = [kind.AddPartitionsToTxnTopic(name=TOPIC, partitions=[0])]
    batched = kind.AddPartitionsToTxnTransaction(
        transactional_id=name, producer_id=producer_id, producer_epoch=epoch, topics=topics
    )
    return kind(
        transactions=[batched],
        v3_and_below_transactional_id=name,
        v3_and_below_producer_id=producer_id,
        v3_and_below_producer_epoch=epoch,
        v3_and_below_topics=topics,
    )


def add_partitions_to_txn(_world: World, version: int) -> Talk:
    name, producer_id, epoch = yield from transactional(f"partitions-{version}")
    yield partitions_of_transaction(name, producer_id, epoch)


def add_offsets_to_txn(_world: World, version: int) -> Talk:
    name, producer_id, epoch = yield from transactional(f"offsets-{version}")
    yield m.AddOffsetsToTxnRequest(
        transactional_id=name, producer_id=producer_id, producer_epoch=epoch, group_id="txn"
    )


def txn_offset_commit(world: World, version: int) -> Talk:
    name, producer_id, epoch = yield from transactional(f"commit-{version}")
    begin = m.AddOffsetsToTxnRequest(
        transactional_id=name, producer_id=producer_id, producer_epoch=epoch, group_id="txn"
    )
    yield begin
    kind = m.TxnOffsetCommitRequest
    partition = kind.TxnOffsetCommitRequestPartition(committed_offset=1, committed_metadata="")
    topic = kind.TxnOffsetCommitRequestTopic(
        name=TOPIC, topic_id=world.topic_id, partitions=[partition]
    )
    yield kind(
        transactional_id=name,
        group_id="txn",
        producer_id=producer_id,
        producer_epoch=epoch,
        topics=[topic],
    )


def end_txn(_world: World, version: int) -> Talk:
    name, producer_id, epoch = yield from transactional(f"end-{version}")
    yield partitions_of_transaction(name, producer_id, epoch), 3
    yield m.EndTxnRequest(
        transactional_id=name, producer_id=producer_id, producer_epoch=epoch, committed=True
    )


def write_txn_markers(_world: World, _version: int) -> Talk:
    yield m.WriteTxnMarkersRequest(markers=[])


def describe_transactions(_world: World, _version: int) -> Talk:
    yield m.DescribeTransactionsRequest(transactional_ids=["end-5"])


def list_transactions(_world: World, _version: int) -> Talk:
    yield m.ListTransactionsRequest(transactional_id_pattern="end-.*")
