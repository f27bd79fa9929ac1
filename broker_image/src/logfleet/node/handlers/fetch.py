"""Fetch: whole batches as slices of segments, at once or when enough of them have come.

Rules of what is returned are Kafka's ReplicaManager.readFromLog and KIP-74: the first non-empty partition
may exceed every limit by one batch, so that a reader always gets on; after it only whole batches that fit.
A request that asks for more than there is waits on the partitions' logs: an append counts towards its
min_bytes, nothing polls. Sessions (KIP-227) are always declined, which every client takes: session id 0.
"""

import asyncio
from collections.abc import Awaitable
from typing import TYPE_CHECKING, Any

from logfleet.node.connection import Peer
from logfleet.node.dispatch import Handler, RequestContext
from logfleet.node.partition import Partition
from logfleet.node.partition_table import Leader
from logfleet.wire.errors import ErrorCode
from logfleet.wire.messages import FetchRequest, FetchResponse

if TYPE_CHECKING:
    from logfleet.node.broker import Broker

TOPIC_IDS_SINCE = 13
REPLICA_STATE_SINCE = 15
LEADER_HINTS_SINCE = 16  # KIP-951
FULL_FETCH_EPOCHS = {0, -1}  # KIP-227: without a session, or in a new one
READ_COMMITTED = 1
NO_EPOCH = -1

_Topic = FetchResponse.FetchableTopicResponse
_Row = FetchResponse.PartitionData


def fetch(
    broker: "Broker", request: FetchRequest, context: RequestContext
) -> FetchResponse | Awaitable[FetchResponse]:
    """Read every partition from its offset on; wait up to max_wait_ms if that gives less than min_bytes."""
    if request.session_epoch not in FULL_FETCH_EPOCHS:
        return FetchResponse(error_code=ErrorCode.FETCH_SESSION_ID_NOT_FOUND)
    reading = _Reading(broker, request, context)
    response = reading.read()
    if reading.is_enough or request.max_wait_ms <= 0 or not reading.partitions:
        return response
    return _wait_and_read(broker, request, context, reading)


async def _wait_and_read(
    broker: "Broker", request: FetchRequest, context: RequestContext, first: "_Reading"
) -> FetchResponse:
    wait = FetchWait(request.min_bytes - first.bytes)
    with_timer = broker.timers.add(request.max_wait_ms / 1000, wait.end)
    wait.watch(first.partitions, context.peer)
    try:
        await wait.done
    finally:
        wait.stop_watching(first.partitions, context.peer)
        with_timer.cancel()
    return _Reading(broker, request, context).read()


class FetchWait:
    """A parked fetch. Done when `missing_bytes` were appended to its partitions, or `end` is called."""

    def __init__(self, missing_bytes: int) -> None:
        self._missing_bytes = missing_bytes
        self.done: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def watch(self, partitions: "list[Partition]", peer: Peer) -> None:
        for partition in partitions:
            partition.wait(self)
        peer.on_leave = self.end

    def stop_watching(self, partitions: "list[Partition]", peer: Peer) -> None:
        for partition in partitions:
            partition.forget(self)
        peer.on_leave = None

    def appended(self, size: int) -> None:
        self._missing_bytes -= size
        if self._missing_bytes <= 0:
            self.end()

    def leadership_lost(self) -> None:
        self.end()

    def end(self) -> None:
        if not self.done.done():
            self.done.set_result(None)


class _Reading:
    """One pass over a request's partitions.

    bytes: read so far. is_enough: nothing is gained by waiting: min_bytes are there, or a row needs the client.
    partitions: those led here, to be waited on.
    """

    def __init__(self, broker: "Broker", request: FetchRequest, context: RequestContext) -> None:
        self._table = broker.partitions
        self._broker = broker
        self._request = request
        self._version = context.api_version
        self._listener = context.listener
        self._bytes_left = min(request.max_bytes, broker.config.fetch_max_bytes)
        self._from_replica = _replica_id(request, context.api_version) >= 0
        self._endpoints: dict[int, FetchResponse.NodeEndpoint] = {}
        self.bytes = 0
        self.is_enough = False
        self.partitions: list[Partition] = []

    def read(self) -> FetchResponse:
        topics = []
        find = self._table.find_by_id if self._version >= TOPIC_IDS_SINCE else self._table.find
        for wanted in self._request.topics:
            key: Any = wanted.topic_id if self._version >= TOPIC_IDS_SINCE else wanted.topic
            rows = []
            for row in wanted.partitions:
                found = find(key, row.partition)
                if isinstance(found, Partition):
                    rows.append(self._read_partition(found, row))
                else:
                    rows.append(self._failed(row.partition, found, wanted))
            topics.append(_Topic(topic=wanted.topic, topic_id=wanted.topic_id, partitions=rows))
        if self.bytes >= self._request.min_bytes:
            self.is_enough = True
        return FetchResponse(responses=topics, node_endpoints=list(self._endpoints.values()))

    def _read_partition(self, partition: Partition, wanted: FetchRequest.FetchPartition) -> _Row:
        epoch = wanted.current_leader_epoch
        if epoch not in {NO_EPOCH, partition.leader_epoch}:
            older = epoch < partition.leader_epoch
            code = ErrorCode.FENCED_LEADER_EPOCH if older else ErrorCode.UNKNOWN_LEADER_EPOCH
            return self._failed(partition.index, code, partition)
        if self._from_replica:  # one replica: no follower has any business here
            return self._failed(partition.index, ErrorCode.NOT_LEADER_OR_FOLLOWER, partition)
        row = _Row(
            partition_index=partition.index,
            high_watermark=partition.high_watermark,
            last_stable_offset=partition.last_stable_offset,
            log_start_offset=partition.log.log_start_offset,
            aborted_transactions=[] if self._request.isolation_level == READ_COMMITTED else None,
            records=b"",
        )
        if wanted.last_fetched_epoch != NO_EPOCH:
            diverging = _diverging_epoch(partition, wanted)
            if isinstance(diverging, ErrorCode):
                return self._failed(partition.index, diverging, partition)
            if diverging is not None:
                row.diverging_epoch = diverging
                self.is_enough = True
                return row
        return self._read_log(partition, wanted, row)

    def _read_log(
        self, partition: Partition, wanted: FetchRequest.FetchPartition, row: _Row
    ) -> _Row:
        limit = min(wanted.partition_max_bytes, self._bytes_left)
        try:
            records = partition.log.read(
                wanted.fetch_offset, limit, partition.high_watermark, at_least_one=not self.bytes
            )
        except OSError as failure:
            self._broker.storage_failed(partition, failure)
            return self._failed(partition.index, ErrorCode.KAFKA_STORAGE_ERROR, partition)
        if isinstance(records, ErrorCode):
            return self._failed(partition.index, records, partition)
        self.partitions.append(partition)
        if records is not None:
            size = len(records)
            self.bytes += size
            self._bytes_left = max(0, self._bytes_left - size)
            row.records = records
        return row

    def _failed(
        self, index: int, error: ErrorCode, where: "Partition | FetchRequest.FetchTopic"
    ) -> _Row:
        self.is_enough = True
        row = _Row(partition_index=index, error_code=error, high_watermark=-1, records=b"")
        if self._version >= LEADER_HINTS_SINCE and error in {
            ErrorCode.NOT_LEADER_OR_FOLLOWER,
            ErrorCode.FENCED_LEADER_EPOCH,
        }:
            leader = self._table.leader_by_id(where.topic_id, index, self._listener)
            if leader is not None:
                self._hint(row, leader)
        return row

    def _hint(self, row: _Row, leader: Leader) -> None:
        row.current_leader = FetchResponse.LeaderIdAndEpoch(
            leader_id=leader.broker_id, leader_epoch=leader.leader_epoch
        )
        if leader.host is not None:
            self._endpoints[leader.broker_id] = FetchResponse.NodeEndpoint(
                node_id=leader.broker_id, host=leader.host, port=leader.port, rack=leader.rack
            )


def _replica_id(request: FetchRequest, version: int) -> int:
    """Id of the follower that fetches; negative for consumers."""
    if version < REPLICA_STATE_SINCE:
        return request.replica_id
    return -1 if request.replica_state is None else request.replica_state.replica_id


def _diverging_epoch(
    partition: Partition, wanted: FetchRequest.FetchPartition
) -> "FetchResponse.EpochEndOffset | ErrorCode | None":
    """Where the reader's log left ours (KIP-595): the end of the largest epoch up to its last one; None if it did not."""
    epoch, end_offset = partition.log.epoch_end_offset(wanted.last_fetched_epoch)
    if epoch < 0 or end_offset < 0 or wanted.fetch_offset < partition.log.log_start_offset:
        return ErrorCode.OFFSET_OUT_OF_RANGE
    if epoch < wanted.last_fetched_epoch or end_offset < wanted.fetch_offset:
        return FetchResponse.EpochEndOffset(epoch=epoch, end_offset=end_offset)
    return None


HANDLERS: dict[type, Handler[Any]] = {FetchRequest: fetch}
