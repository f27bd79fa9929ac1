"""One pass over the partitions of a fetch, within the request's limits.

The rules are Kafka's (ReplicaManager.readFromLog, KIP-74): the first non-empty partition may exceed
every limit by one batch, so that a reader always makes progress; after it only whole batches that
fit. Kafka cuts within a batch, so that a reader that lags far gets as many bytes as it allows; here
it gets a part of a batch less, and does not wait for min_bytes because of that.

A consumer reads up to the high watermark, or up to the last stable offset if it reads only
committed transactions; a row reports both as of one step of the loop.
"""

from collections.abc import Callable
from typing import Any

from logfleet.config.throttle_keys import Side
from logfleet.io.clock import monotonic_ms
from logfleet.log.partition_log import PartitionLog
from logfleet.log.segments.file_slice import FileSlice
from logfleet.node.dispatch import RequestContext
from logfleet.node.handlers.rooms import Rooms
from logfleet.node.partitions.leader_partition import LeaderPartition
from logfleet.node.partitions.partition_table import Leader
from logfleet.node.partitions.replica import FollowerPartition
from logfleet.replication.fetch_check import diverging_epoch, leader_epoch_error
from logfleet.replication.leader_epochs import NO_EPOCH
from logfleet.replication.nearest import RACK_AWARE, nearest_replica
from logfleet.replication.partition_state import Member
from logfleet.sessions.fetch_session import Key
from logfleet.types import NO_BROKER_EPOCH, LeaderEpoch
from logfleet.wire.errors import ErrorCode
from logfleet.wire.messages import FetchRequest, FetchResponse

TOPIC_IDS_SINCE = 13
REPLICA_STATE_SINCE = 15
LEADER_HINTS_SINCE = 16  # KIP-951
RACKS_SINCE = 11  # KIP-392: since this version a consumer may read from followers
READ_COMMITTED = 1

_Topic = FetchResponse.FetchableTopicResponse
_Row = FetchResponse.PartitionData
Rows = list[tuple[Key, _Row]]
_HINTED = {ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.FENCED_LEADER_EPOCH}


class FetchRead:
    """The rows of one pass, in the order of `add`.

    find: returns the partition by its topic's key and index if this broker leads it, else the
    error. rows: of partitions that the cluster has. unknown: of others; these stand at the end of
    an answer, unknown topic ids first, and do not end the wait for the rest
    (KafkaApis.handleFetchRequest). bytes: read so far. min_bytes: what to wait for, no more than a
    limit lets through (KafkaApis.handleFetchRequest). is_enough: waiting gains nothing: min_bytes
    are there, a partition has more than its limit, or a row needs the client. partitions: those
    read, to wait on. is_first_pass: the pass is the first of its request, not the one after a wait.
    """

    __slots__ = (
        "_by_id",
        "_bytes_left",
        "_client_id",
        "_endpoints",
        "_is_first_pass",
        "_listener",
        "_rack",
        "_read",
        "_reads_stable",
        "_replica",
        "_request",
        "_rooms",
        "_table",
        "_unknown_ids",
        "_version",
        "bytes",
        "find",
        "is_enough",
        "min_bytes",
        "partitions",
        "rows",
        "unknown",
    )

    def __init__(
        self,
        rooms: Rooms,
        request: FetchRequest,
        context: RequestContext,
        *,
        is_first_pass: bool = True,
    ) -> None:
        self._is_first_pass = is_first_pass
        self._table = table = rooms.partitions
        self._by_id = context.api_version >= TOPIC_IDS_SINCE
        self.find: Callable[[Any, int], LeaderPartition | ErrorCode] = (
            table.find_by_id if self._by_id else table.find
        )
        self._rooms = rooms
        self._request = request
        self._version = context.api_version
        self._listener = context.listener
        self._client_id = context.client_id
        self._bytes_left = min(request.max_bytes, rooms.config.fetch_max_bytes)
        self._replica = replica_id(request, context.api_version)
        self._reads_stable = self._replica < 0 and request.isolation_level == READ_COMMITTED
        is_sent = self._replica < 0 and rooms.config.replica_selector_class == RACK_AWARE
        self._rack = request.rack_id if is_sent else ""
        self._endpoints: dict[int, FetchResponse.NodeEndpoint] = {}
        self.bytes = 0
        self.min_bytes = min(request.min_bytes, self._bytes_left)
        self.is_enough = self.min_bytes <= 0
        self.partitions: list[LeaderPartition | FollowerPartition] = []
        self.rows: Rows = []
        self.unknown: Rows = []
        self._unknown_ids = 0
        self._read: list[tuple[LeaderPartition | FollowerPartition, int]] = []

    def add(
        self, key: Key, wanted: FetchRequest.FetchPartition
    ) -> LeaderPartition | FollowerPartition | None:
        """Read one partition from its offset on; returns it, None if it is not served here."""
        topic, index = key
        found: LeaderPartition | FollowerPartition | ErrorCode = self.find(topic, index)
        if found is ErrorCode.NOT_LEADER_OR_FOLLOWER:
            found = self._find_at_follower(key, wanted.current_leader_epoch)
        if not isinstance(found, ErrorCode):
            self.rows.append((key, self._read_partition(found, wanted)))
            return found
        if found is ErrorCode.UNKNOWN_TOPIC_ID:
            self.unknown.insert(self._unknown_ids, (key, _failed(index, found)))
            self._unknown_ids += 1
        elif found is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            self.unknown.append((key, _failed(index, found)))
        else:
            self.rows.append((key, self._refused(index, found, topic if self._by_id else b"")))
        return None

    def source(self, key: Key) -> LeaderPartition | FollowerPartition | None:
        """The log to read of a partition here, if there is one."""
        found = self.find(*key)
        if not isinstance(found, ErrorCode):
            return found
        followed = self._find_at_follower(key, NO_EPOCH)
        return None if isinstance(followed, ErrorCode) else followed

    def _find_at_follower(self, key: Key, epoch: LeaderEpoch) -> FollowerPartition | ErrorCode:
        """The partition if this client may read it here from a follower, else the error.

        epoch: the leader epoch that the client sent.
        """
        topic, index = key
        hosted = (self._table.by_id if self._by_id else self._table.by_name).get(topic)
        replica = None if hosted is None else hosted.replicas.get(index)
        if not isinstance(replica, FollowerPartition):
            return ErrorCode.NOT_LEADER_OR_FOLLOWER
        if self._replica < 0 and self._version >= RACKS_SINCE:
            return replica
        other_epoch = leader_epoch_error(epoch, replica.leader_epoch)
        return other_epoch or ErrorCode.NOT_LEADER_OR_FOLLOWER

    def all_rows(self) -> Rows:
        """All rows in the order of the answer."""
        return self.rows + self.unknown if self.unknown else self.rows

    def record_sent(self) -> None:
        """Count the bytes of these rows, which are sent now, as traffic out."""
        if self._replica < 0:
            for partition, size in self._read:
                partition.bytes_out += size
                partition.last_reader = self._client_id
            return
        self._table.replicated.bytes_out += self.bytes
        throttle = self._rooms.throttle
        if throttle.is_limited(Side.LEADER):
            for partition, size in self._read:
                throttle.record(Side.LEADER, partition.topic, partition.index, size)

    def answer(self, rows: Rows, session_id: int = 0) -> FetchResponse:
        """A response with these rows; adjacent rows of one topic form one entry."""
        topics: list[_Topic] = []
        last: Any = None
        for (topic, _), row in rows:
            if topic == last:
                topics[-1].partitions.append(row)
            else:
                last = topic
                response_topic = _Topic(partitions=[row])
                if self._by_id:
                    response_topic.topic_id = topic
                else:
                    response_topic.topic = topic
                topics.append(response_topic)
        return FetchResponse(
            session_id=session_id, responses=topics, node_endpoints=list(self._endpoints.values())
        )

    def _read_partition(
        self, partition: LeaderPartition | FollowerPartition, wanted: FetchRequest.FetchPartition
    ) -> _Row:
        epoch = wanted.current_leader_epoch
        if epoch != partition.leader_epoch and epoch >= 0:  # a negative one means none
            code = leader_epoch_error(epoch, partition.leader_epoch)
            return self._refused(partition.index, code, partition.topic_id)
        if isinstance(partition, LeaderPartition) and self._is_no_replica(partition):
            # a follower that sends its epoch may know a newer one
            # (Partition.followerReplicaOrThrow)
            unknown = epoch >= 0
            code = ErrorCode.UNKNOWN_LEADER_EPOCH if unknown else ErrorCode.NOT_LEADER_OR_FOLLOWER
            return self._refused(partition.index, code, partition.topic_id)
        ends, log = partition.ends, partition.log
        high_watermark = ends.high_watermark
        row = _Row(
            partition_index=partition.index,
            high_watermark=high_watermark,
            last_stable_offset=log.last_stable_offset(high_watermark),
            log_start_offset=ends.log_start_offset,
            aborted_transactions=None,
            records=b"",
        )
        if self._rack and isinstance(partition, LeaderPartition) and partition.has_followers:
            nearest = nearest_replica(
                partition.replicas_state, wanted.fetch_offset, self._rack, self._rack_of
            )
            if nearest is not None:
                row.preferred_read_replica = nearest
                self.is_enough = True
                return row
        diverging = diverging_epoch(
            log.epochs,
            ends.log_start_offset,
            ends.log_end_offset,
            last_fetched_epoch=wanted.last_fetched_epoch,
            fetch_offset=wanted.fetch_offset,
            of_follower=self._replica >= 0,
        )
        if isinstance(diverging, ErrorCode):
            return self._refused(partition.index, diverging, partition.topic_id)
        if diverging is not None:
            epoch, end_offset = diverging
            row.diverging_epoch = FetchResponse.EpochEndOffset(epoch=epoch, end_offset=end_offset)
            self.is_enough = True
            return row
        return self._read_log(partition, wanted, row)

    def _is_no_replica(self, partition: LeaderPartition) -> bool:
        """Whether the request is from a broker that has no replica of the partition."""
        return self._replica >= 0 and self._replica not in partition.replicas_state.followers

    def _rack_of(self, broker_id: int) -> str | None:
        """The broker's rack, None if this client cannot reach it."""
        broker = self._rooms.metadata.image.brokers.get(broker_id)
        if broker is None or broker.listener(self._listener) is None:
            return None
        return broker.rack

    def _read_log(
        self,
        partition: LeaderPartition | FollowerPartition,
        wanted: FetchRequest.FetchPartition,
        row: _Row,
    ) -> _Row:
        limit = min(wanted.partition_max_bytes, self._bytes_left)
        log, is_replica, offset = partition.log, self._replica >= 0, wanted.fetch_offset
        stable_end = row.last_stable_offset if self._reads_stable else row.high_watermark
        end_offset = None if is_replica else stable_end
        try:
            records = log.read(offset, limit, end_offset, at_least_one=not self.bytes)
            if self._reads_stable and not isinstance(records, ErrorCode):
                row.aborted_transactions = aborted_transactions(log, offset, records)
        except OSError as failure:
            self._rooms.disks.storage_failed(partition, failure)
            return self._refused(partition.index, ErrorCode.KAFKA_STORAGE_ERROR, partition.topic_id)
        if isinstance(records, ErrorCode):
            return self._refused(partition.index, records, partition.topic_id)
        if is_replica and self._is_first_pass and isinstance(partition, LeaderPartition):
            stale = self._record_progress(partition, wanted)
            if stale is not ErrorCode.NONE:
                return self._refused(partition.index, stale, partition.topic_id)
            # the progress may have moved both
            row.high_watermark = partition.ends.high_watermark
            row.last_stable_offset = partition.last_stable_offset
        self.partitions.append(partition)
        if records is not None and not (is_replica and self._is_held_back(partition)):
            size = len(records)
            self.bytes += size
            self._read.append((partition, size))
            self._bytes_left = max(0, self._bytes_left - size)
            if records.is_cut or self.bytes >= self.min_bytes:
                self.is_enough = True
            row.records = records
        return row

    def _is_held_back(self, partition: LeaderPartition | FollowerPartition) -> bool:
        """Whether this follower gets nothing for now, as the leader is throttled.

        It is not in sync, and the rate is used up (ReplicaManager.shouldLeaderThrottle).
        """
        throttle = self._rooms.throttle
        if not throttle.is_limited(Side.LEADER) or not isinstance(partition, LeaderPartition):
            return False
        if any(member == self._replica for member, _ in partition.replicas_state.state.isr):
            return False
        return throttle.is_held_back(Side.LEADER, partition.topic, partition.index)

    def _record_progress(
        self, partition: LeaderPartition, wanted: FetchRequest.FetchPartition
    ) -> ErrorCode:
        """The follower has everything below its offset.

        Once for each request, as Kafka does (ReplicaManager.readFromLog).
        """
        state = self._request.replica_state
        broker_epoch = NO_BROKER_EPOCH if state is None else state.replica_epoch
        return record_progress(
            self._rooms,
            partition,
            (self._replica, broker_epoch),
            wanted.fetch_offset,
            wanted.log_start_offset,
        )

    def _refused(self, index: int, error: ErrorCode, topic_id: bytes) -> _Row:
        """The row of a partition that the client must do something about: waiting gains nothing."""
        self.is_enough = True
        row = _failed(index, error)
        row.aborted_transactions = None
        if self._version >= LEADER_HINTS_SINCE and error in _HINTED:
            leader = self._table.leader_by_id(topic_id, index, self._listener)
            if leader is not None:
                self._hint(row, leader)
        return row

    def _hint(self, row: _Row, leader: Leader) -> None:
        row.current_leader = FetchResponse.LeaderIdAndEpoch(
            leader_id=leader.broker_id, leader_epoch=leader.leader_epoch
        )
        if leader.host is not None and self._replica < 0:
            self._endpoints[leader.broker_id] = FetchResponse.NodeEndpoint(
                node_id=leader.broker_id, host=leader.host, port=leader.port, rack=leader.rack
            )


def aborted_transactions(
    log: PartitionLog, offset: int, records: FileSlice | None
) -> list[FetchResponse.AbortedTransaction]:
    """The aborted transactions that overlap `records`, which were read from `offset` on.

    A consumer drops the batches of each, from its first offset to its marker: one too few would be
    an aborted read. Upholds I32. Raises OSError. Source: KIP-98, LocalLog.addAbortedTransactions.
    """
    if records is None or not log.has_aborted(offset):
        return []
    return [
        FetchResponse.AbortedTransaction(
            producer_id=entry.producer_id, first_offset=entry.first_offset
        )
        for entry in log.aborted(offset, records.end_offset)
    ]


def reads_stable(request: FetchRequest) -> bool:
    """Whether a consumer reads only committed transactions, and what is in none."""
    return request.isolation_level == READ_COMMITTED


def _failed(index: int, error: ErrorCode) -> _Row:
    return _Row(partition_index=index, error_code=error, high_watermark=-1, records=b"")


def record_progress(
    rooms: Rooms,
    partition: LeaderPartition,
    follower: Member,
    offset: int,
    log_start_offset: int,
) -> ErrorCode:
    """The follower has everything below the offset. After an error nothing has changed."""
    error = partition.fetched(*follower, offset, log_start_offset, now_ms=monotonic_ms())
    if partition.replicas_state.isr_change_due:
        rooms.replication.isr_writer.check(partition)
    return error


def replica_id(request: FetchRequest, version: int) -> int:
    """Id of the follower that fetches; negative for consumers."""
    if version < REPLICA_STATE_SINCE:
        return request.replica_id
    return -1 if request.replica_state is None else request.replica_state.replica_id
