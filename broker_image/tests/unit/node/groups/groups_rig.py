"""A rig for group coordinators: a log on disk, and a partition whose followers may lag."""

import asyncio
from typing import Any

from logfleet.groups.config import GroupConfig
from logfleet.groups.join import Caller, Join, protocols_of
from logfleet.groups.records import OFFSETS_TOPIC
from logfleet.io.files import PosixFiles
from logfleet.log.config import LogConfig
from logfleet.log.names import TopicPartition
from logfleet.log.validation import AppendResult, BatchRefusal, NeedsThread, Prepared
from logfleet.metadata.image import ClusterImage, Topic
from logfleet.metadata.image import Partition as PartitionState
from logfleet.metadata.shards import ShardedMap
from logfleet.node.coordinators.waiter import Waiter
from logfleet.node.groups.group_shard import GroupShard, group_kind
from logfleet.node.partitions.leader_partition import LeaderPartition
from logfleet.replication.leader import LeaderReplicas
from logfleet.storage.log_loader import LoadRequest, prepare_directory
from logfleet.storage.open_files import OpenFiles
from logfleet.storage.partition_log import PartitionLog
from logfleet.storage.trash import Trash
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
)

OFFSETS_ID = b"id of offsets..."


def open_log(path: str, index: int = 0) -> PartitionLog:
    """The log of a partition of the offsets topic, new or as it was left."""
    files = OpenFiles(PosixFiles())
    directory = f"{path}/{OFFSETS_TOPIC}-{index}"
    prepare_directory(files, directory, "bQrxV1XaQAyDOV5OYVsTsQ")
    request = LoadRequest(
        directory=directory,
        config=LogConfig(cleanup_policy=frozenset({"compact"})),
        clean=False,
        recovery_point=0,
        log_start_offset=0,
        now_ms=0,
    )
    return PartitionLog(TopicPartition(OFFSETS_TOPIC, index), files, Trash(files), request)


class LaggingPartition(LeaderPartition):
    """A partition whose followers fetch only on request, and whose disk can fail."""

    lags = False
    failure: OSError | None = None
    rejection: BatchRefusal | None = None

    def __init__(
        self, log: PartitionLog, index: int = 0, *, replicas_state: LeaderReplicas | None = None
    ) -> None:
        super().__init__(
            OFFSETS_TOPIC, OFFSETS_ID, index, log, 0, rule=self, replicas_state=replicas_state
        )
        log.has_flush_rules = True

    def append(
        self, batch: bytearray | memoryview | Prepared, now_ms: int
    ) -> AppendResult | BatchRefusal | NeedsThread:
        if self.failure is not None:
            raise self.failure
        if self.rejection is not None:
            return self.rejection
        return super().append(batch, now_ms)

    def hold(self, _partition: LeaderPartition) -> bool:
        return self.lags

    def catch_up(self) -> None:
        self.own_part_done(self.log.log_end_offset)


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


def committed(waiter: Waiter[OffsetCommitResponse]) -> ErrorCode | None:
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
    shard.coordinator.join(turn, Join(request, protocols_of(request), caller, waiter, name))
    shard.execute(turn)
    return waiter


def sync(shard: GroupShard, name: str) -> Waiter[SyncGroupResponse]:
    assigned = SyncGroupRequest.SyncGroupRequestAssignment(member_id=name, assignment=b"p0")
    request = SyncGroupRequest(
        group_id="g", generation_id=1, member_id=name, assignments=[assigned]
    )
    waiter = Waiter[SyncGroupResponse]()
    turn = shard.turn()
    shard.coordinator.sync(turn, request, waiter)
    shard.execute(turn)
    return waiter


def image_of(*topics: tuple[str, bytes, int], revision: int = 1) -> ClusterImage:
    """A cluster with topics of (name, id, partitions), all led by broker 1."""
    made = {
        topic_id: Topic(
            topic_id,
            name,
            partitions=tuple(
                PartitionState((1,), ((1, 5),), 1, 0, 0, 1, revision=1) for _ in range(count)
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
