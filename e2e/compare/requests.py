"""Requests as clients send them, with the fields of all versions at once: those that a version lacks are left out when it is sent."""

import time
from collections.abc import Sequence
from typing import Any, Final

from logfleet.records.compression import Codec
from logfleet.records.record import ProducerStamp, Record, build_batch
from logfleet.types import LeaderEpoch
from logfleet.wire import messages as m

from e2e.compare.side import MadeTopic, Side

T0: Final = time.time_ns() // 1_000_000 - 3_600_000
"""Time of the first record: not so long ago that retention takes it, and the same on both sides."""
TIMEOUT_MS: Final = 30_000
SESSION_MS: Final = 60_000
NODE_ID: Final = 1
"""Of both brokers."""
CONSUMER: Final = "consumer"


def records(count: int = 1, *, first: int = 0, value: bytes = b"v") -> list[Record]:
    """Records `first` to `first + count - 1`, a millisecond apart from T0 on."""
    return [Record(b"k%d" % n, value, T0 + n) for n in range(first, first + count)]


def batch(
    count: int = 1,
    *,
    first: int = 0,
    value: bytes = b"v",
    codec: Codec = Codec.NONE,
    producer: ProducerStamp | None = None,
) -> bytes:
    """One batch of such records."""
    made = records(count, first=first, value=value)
    return bytes(build_batch(made, codec=codec, producer=producer))


def produce(
    topic: MadeTopic, sent: bytes | None, *, acks: int = -1, index: int = 0
) -> m.ProduceRequest:
    return produce_rows(topic, [(index, sent)], acks=acks)


def produce_rows(
    topic: MadeTopic, rows: Sequence[tuple[int, bytes | None]], *, acks: int = -1
) -> m.ProduceRequest:
    """rows: partition and batch."""
    kind = m.ProduceRequest
    partitions = [kind.PartitionProduceData(index=index, records=sent) for index, sent in rows]
    data = kind.TopicProduceData(name=topic.name, topic_id=topic.id, partition_data=partitions)
    return kind(acks=acks, timeout_ms=TIMEOUT_MS, topic_data=[data])


def fill(side: Side, topic: MadeTopic, *batches: bytes, index: int = 0) -> None:
    """Produce the batches, one per request, without comparing."""
    for each in batches:
        answer = side.get(produce(topic, each, index=index))
        assert answer.responses[0].partition_responses[0].error_code == 0, answer


def fetch(topic: MadeTopic, offset: int = 0, *, index: int = 0, **row: Any) -> m.FetchRequest:
    """One partition. row: further fields of the partition."""
    return fetch_rows(topic, [fetch_row(offset, index=index, **row)])


def fetch_row(offset: int = 0, *, index: int = 0, **fields: Any) -> m.FetchRequest.FetchPartition:
    fields = {"partition_max_bytes": 1 << 20, **fields}
    return m.FetchRequest.FetchPartition(partition=index, fetch_offset=offset, **fields)


def fetch_rows(
    topic: MadeTopic, rows: Sequence[m.FetchRequest.FetchPartition], **fields: Any
) -> m.FetchRequest:
    """A fetch that waits for nothing, of one topic. fields: of the request."""
    wanted = m.FetchRequest.FetchTopic(topic=topic.name, topic_id=topic.id, partitions=list(rows))
    fields = {"max_wait_ms": 0, "min_bytes": 0, "max_bytes": 1 << 20, **fields}
    return m.FetchRequest(topics=[wanted], **fields)


def delete_records(topic: str, offset: int, *, index: int = 0) -> m.DeleteRecordsRequest:
    kind = m.DeleteRecordsRequest
    row = kind.DeleteRecordsPartition(partition_index=index, offset=offset)
    rows = kind.DeleteRecordsTopic(name=topic, partitions=[row])
    return kind(topics=[rows], timeout_ms=TIMEOUT_MS)


def list_offsets(
    topic: MadeTopic, timestamp: int, *, index: int = 0, isolation: int = 0, epoch: int = -1
) -> m.ListOffsetsRequest:
    row = m.ListOffsetsRequest.ListOffsetsPartition(
        partition_index=index, timestamp=timestamp, current_leader_epoch=LeaderEpoch(epoch)
    )
    wanted = m.ListOffsetsRequest.ListOffsetsTopic(name=topic.name, partitions=[row])
    return m.ListOffsetsRequest(
        replica_id=-1, isolation_level=isolation, topics=[wanted], timeout_ms=TIMEOUT_MS
    )


# --- groups


def join(
    group: str, member: str = "", protocols: Sequence[str] = ("range",), **fields: Any
) -> m.JoinGroupRequest:
    """fields: of the request, instead of the usual ones."""
    kind = m.JoinGroupRequest
    offered = [kind.JoinGroupRequestProtocol(name=name, metadata=b"m") for name in protocols]
    usual: dict[str, Any] = {
        "session_timeout_ms": SESSION_MS,
        "rebalance_timeout_ms": SESSION_MS,
        "protocol_type": CONSUMER,
        "protocols": offered,
    }
    return kind(group_id=group, member_id=member, **(usual | fields))


def sync(
    group: str, member: str, generation: int, assigned: dict[str, bytes], **fields: Any
) -> m.SyncGroupRequest:
    kind = m.SyncGroupRequest
    rows = [
        kind.SyncGroupRequestAssignment(member_id=each, assignment=what)
        for each, what in assigned.items()
    ]
    usual: dict[str, Any] = {"protocol_type": CONSUMER, "protocol_name": "range"}
    return kind(
        group_id=group,
        member_id=member,
        generation_id=generation,
        assignments=rows,
        **(usual | fields),
    )


def heartbeat(group: str, member: str, generation: int, **fields: Any) -> m.HeartbeatRequest:
    return m.HeartbeatRequest(group_id=group, member_id=member, generation_id=generation, **fields)


def leave(group: str, *members: str, **fields: Any) -> m.LeaveGroupRequest:
    rows = [m.LeaveGroupRequest.MemberIdentity(member_id=each, **fields) for each in members]
    return m.LeaveGroupRequest(group_id=group, member_id=members[0], members=rows)


def commit(
    group: str,
    topic: MadeTopic,
    offset: int,
    *,
    member: str = "",
    generation: int = -1,
    index: int = 0,
    metadata: str | None = "note",
    **fields: Any,
) -> m.OffsetCommitRequest:
    kind = m.OffsetCommitRequest
    row = kind.OffsetCommitRequestPartition(
        partition_index=index, committed_offset=offset, committed_metadata=metadata
    )
    wanted = kind.OffsetCommitRequestTopic(name=topic.name, topic_id=topic.id, partitions=[row])
    return kind(
        group_id=group,
        member_id=member,
        generation_id_or_member_epoch=generation,
        topics=[wanted],
        **fields,
    )


def committed(
    group: str, topic: MadeTopic | None, *, indexes: Sequence[int] = (0,), **fields: Any
) -> m.OffsetFetchRequest:
    """topic: all that the group has committed if None. fields: of the group's row."""
    kind = m.OffsetFetchRequest
    old = new = None
    if topic is not None:
        old = [kind.OffsetFetchRequestTopic(name=topic.name, partition_indexes=list(indexes))]
        new = [
            kind.OffsetFetchRequestTopics(
                name=topic.name, topic_id=topic.id, partition_indexes=list(indexes)
            )
        ]
    row = kind.OffsetFetchRequestGroup(group_id=group, topics=new, **fields)
    return kind(group_id=group, topics=old, groups=[row])


def joined(side: Side, group: str, **fields: Any) -> tuple[str, int]:
    """The one member of a stable group, made without comparing: its id and generation."""
    first = side.get(join(group, **fields))
    answer = side.get(join(group, first.member_id, **fields))
    assert answer.error_code == 0, answer
    member, generation = answer.member_id, answer.generation_id
    assert side.get(sync(group, member, generation, {member: b"a"})).error_code == 0
    return member, generation


# --- administration


def creatable(name: str, partitions: int = 1, replicas: int = 1, **fields: Any) -> Any:
    return m.CreateTopicsRequest.CreatableTopic(
        name=name, num_partitions=partitions, replication_factor=replicas, **fields
    )


def create(*topics: Any, **fields: Any) -> m.CreateTopicsRequest:
    return m.CreateTopicsRequest(topics=list(topics), timeout_ms=TIMEOUT_MS, **fields)


def delete(*names: str) -> m.DeleteTopicsRequest:
    states = [m.DeleteTopicsRequest.DeleteTopicState(name=name) for name in names]
    return m.DeleteTopicsRequest(topics=states, topic_names=list(names), timeout_ms=TIMEOUT_MS)


def alter(
    name: str, *configs: tuple[str, int, str | None], kind: int = 2, **fields: Any
) -> m.IncrementalAlterConfigsRequest:
    """configs: (key, operation, value)."""
    request = m.IncrementalAlterConfigsRequest
    rows = [
        request.AlterableConfig(name=key, config_operation=operation, value=value)
        for key, operation, value in configs
    ]
    resource = request.AlterConfigsResource(resource_type=kind, resource_name=name, configs=rows)
    return request(resources=[resource], **fields)


def describe_configs(
    name: str, *keys: str, kind: int = 2, **fields: Any
) -> m.DescribeConfigsRequest:
    """keys: all if there are none."""
    resource = m.DescribeConfigsRequest.DescribeConfigsResource(
        resource_type=kind, resource_name=name, configuration_keys=list(keys) or None
    )
    return m.DescribeConfigsRequest(resources=[resource], **fields)


def metadata(*names: str | None, **fields: Any) -> m.MetadataRequest:
    rows = [m.MetadataRequest.MetadataRequestTopic(name=name) for name in names]
    return m.MetadataRequest(topics=rows, **fields)
