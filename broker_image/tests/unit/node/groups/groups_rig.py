"""A rig for group coordinators: a log on disk, and a partition whose followers may lag."""

import asyncio
from typing import Any

from logfleet.groups.classic.groups import CLASSIC
from logfleet.groups.classic.join import Caller, Join, protocols_of
from logfleet.groups.config import GroupConfig
from logfleet.groups.records import OFFSETS_TOPIC
from logfleet.io.clock import SYSTEM_CLOCK
from logfleet.log.partition_log import PartitionLog
from logfleet.log.validation import Appended
from logfleet.metadata.image import ClusterImage, Topic
from logfleet.metadata.image import Partition as PartitionState
from logfleet.metadata.shards import ShardedMap
from logfleet.node.coordinators.waiter import Waiter
from logfleet.node.groups.group_shard import GroupShard, group_kind
from logfleet.records.control import MARKER_BYTES, Marker
from logfleet.types import BrokerEpoch, LeaderEpoch, PartitionEpoch, ProducerEpoch
from logfleet.wire.errors import ErrorCode
from logfleet.wire.messages import (
    JoinGroupRequest,
    JoinGroupResponse,
    OffsetCommitRequest,
    OffsetCommitResponse,
    OffsetFetchRequest,
    OffsetFetchResponse,
    SyncGroupRequest,
    SyncGroupResponse,
    TxnOffsetCommitRequest,
    TxnOffsetCommitResponse,
)

from broker_image.tests.unit.node.coordinators import partitions_rig
from broker_image.tests.unit.node.coordinators.partitions_rig import TOPIC_ID, LaggingPartition

OFFSETS_ID = TOPIC_ID


def open_log(path: str, index: int = 0) -> PartitionLog:
    """The log of a partition of the offsets topic, new or as it was left."""
    return partitions_rig.open_log(path, OFFSETS_TOPIC, index)


class ShardRig:
    """A shard that is loaded, with the tasks it started and the times it asked to be woken."""

    def __init__(self, path: str, commit_timeout_ms: int = 5_000) -> None:
        self.partition = LaggingPartition(open_log(path))
        self.armed: list[int] = []
        self.tasks: list[asyncio.Task[Any]] = []
        self.failures: list[OSError] = []
        kind = group_kind(GroupConfig(initial_rebalance_delay_ms=0))
        self.shard = GroupShard(
            kind,
            self.partition,
            kind.new_coordinator(),
            clock=SYSTEM_CLOCK,
            write_timeout_ms=commit_timeout_ms,
            arm=self.armed.append,
            spawn=self.spawn,
            storage_failed=lambda _, error: self.failures.append(error),
        )

    def spawn(self, coroutine: Any) -> asyncio.Task[Any]:
        task = asyncio.get_running_loop().create_task(coroutine)
        self.tasks.append(task)
        return task


def take_up(shard: GroupShard) -> int:
    """Have the shard end its loading; in how many steps."""
    return sum(1 for _ in shard.start())


def commit(shard: GroupShard, offset: int) -> Waiter[OffsetCommitResponse]:
    waiter = Waiter[OffsetCommitResponse]()
    request = OffsetCommitRequest(
        group_id="g",
        topics=[
            OffsetCommitRequest.OffsetCommitRequestTopic(
                name="t",
                partitions=[
                    OffsetCommitRequest.OffsetCommitRequestPartition(
                        partition_index=0, committed_offset=offset, committed_metadata=""
                    )
                ],
            )
        ],
    )
    turn = shard.turn()
    shard.coordinator.commit(turn, request, 9, waiter)
    shard.execute(turn)
    return waiter


def stage(
    shard: GroupShard, offset: int, producer_id: int = 7, epoch: int = 0
) -> Waiter[TxnOffsetCommitResponse]:
    """Commit an offset of t-0 in a transaction."""
    kind = TxnOffsetCommitRequest
    partition = kind.TxnOffsetCommitRequestPartition(
        partition_index=0, committed_offset=offset, committed_metadata=""
    )
    request = TxnOffsetCommitRequest(
        group_id="g",
        producer_id=producer_id,
        producer_epoch=epoch,
        topics=[kind.TxnOffsetCommitRequestTopic(name="t", partitions=[partition])],
    )
    waiter = Waiter[TxnOffsetCommitResponse]()
    turn = shard.turn()
    shard.coordinator.commit_in_transaction(turn, request, 5, waiter)
    shard.execute(turn)
    return waiter


def mark(partition: LaggingPartition, *, producer_id: int = 7, is_commit: bool = True) -> Marker:
    """Append the marker of a transaction."""
    log = partition.log
    entry = log.producers.states.get(producer_id)
    epoch = ProducerEpoch(0 if entry is None else entry.epoch)
    marker = Marker(producer_id, epoch, is_commit, 0)
    (appended,) = log.append_markers([(marker, 0)], LeaderEpoch(0), 1)
    assert isinstance(appended, Appended)
    partition.ends.appended(MARKER_BYTES)
    return marker


def committed(
    waiter: Waiter[OffsetCommitResponse] | Waiter[TxnOffsetCommitResponse],
) -> ErrorCode | None:
    """How the commit ended; None while it has not."""
    if waiter.response is None:
        return None
    return ErrorCode(waiter.response.topics[0].partitions[0].error_code)


def fetch(shard: GroupShard) -> int | None:
    """The offset of t-0, None while the answer waits."""
    waiter = Waiter[OffsetFetchResponse.OffsetFetchResponseGroup]()
    topic = OffsetFetchRequest.OffsetFetchRequestTopics(name="t", partition_indexes=[0])
    request = OffsetFetchRequest.OffsetFetchRequestGroup(group_id="g", topics=[topic])
    turn = shard.turn()
    shard.coordinator.fetch(turn, request, waiter)
    shard.execute(turn)
    if waiter.response is None:
        return None
    return waiter.response.topics[0].partitions[0].committed_offset


def join(shard: GroupShard, name: str) -> Waiter[JoinGroupResponse]:
    request = JoinGroupRequest(
        group_id="g",
        session_timeout_ms=10_000,
        rebalance_timeout_ms=60_000,
        protocol_type="consumer",
        protocols=[JoinGroupRequest.JoinGroupRequestProtocol(name="range")],
    )
    waiter = Waiter[JoinGroupResponse]()
    turn = shard.turn()
    caller = Caller(name, "/h", 3)
    shard.coordinator.of(CLASSIC).join(
        turn, Join(request, protocols_of(request), caller, waiter, name)
    )
    shard.execute(turn)
    return waiter


def sync(shard: GroupShard, name: str) -> Waiter[SyncGroupResponse]:
    assigned = SyncGroupRequest.SyncGroupRequestAssignment(member_id=name, assignment=b"p0")
    request = SyncGroupRequest(
        group_id="g", generation_id=1, member_id=name, assignments=[assigned]
    )
    waiter = Waiter[SyncGroupResponse]()
    turn = shard.turn()
    shard.coordinator.of(CLASSIC).sync(turn, request, waiter)
    shard.execute(turn)
    return waiter


def image_of(*topics: tuple[str, bytes, int], revision: int = 1) -> ClusterImage:
    """A cluster with topics of (name, id, partitions), all led by broker 1."""
    made = {
        topic_id: Topic(
            topic_id,
            name,
            partitions=tuple(
                PartitionState(
                    (1,),
                    ((1, BrokerEpoch(5)),),
                    1,
                    LeaderEpoch(0),
                    PartitionEpoch(0),
                    1,
                    revision=1,
                )
                for _ in range(count)
            ),
            ready=count,
            revision=1,
            ready_revision=1,
        )
        for name, topic_id, count in topics
    }
    return ClusterImage(
        revision=revision,
        entries=ShardedMap[bytes, Topic]().updated(made),
        ids=ShardedMap[str, bytes]().updated({topic.name: topic.id for topic in made.values()}),
    )
