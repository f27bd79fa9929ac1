"""Appends the markers that end transactions to the partitions that this broker leads.

The handler of WriteTxnMarkers uses it, and this broker's own coordinators do without bytes. All
markers of one request for a partition go into its log by one write. A marker is done once it is
committed in the leader epoch of its append: an earlier answer would let the coordinator complete a
transaction whose marker the next leader does not have. Markers that wait for followers have no
task.

Source: KafkaApis.handleWriteTxnMarkersRequest, WriteTxnMarkersResponse.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import Protocol, TypeAlias

from logfleet.groups.records import OFFSETS_TOPIC
from logfleet.io.clock import Clock
from logfleet.node.partitions.ack_queue import ALL
from logfleet.node.partitions.leader_partition import LeaderPartition
from logfleet.node.partitions.partition_table import PartitionTable
from logfleet.records.control import Marker
from logfleet.wire.errors import ErrorCode
from logfleet.wire.messages import WriteTxnMarkersRequest, WriteTxnMarkersResponse

WritableMarker: TypeAlias = WriteTxnMarkersRequest.WritableTxnMarker
_Result = WriteTxnMarkersResponse.WritableTxnMarkerResult
_Topic = WriteTxnMarkersResponse.WritableTxnMarkerTopicResult
_Row = WriteTxnMarkersResponse.WritableTxnMarkerPartitionResult
_Partition = tuple[str, int]
_Due = tuple[Marker, int]
"""A marker, and the version of the protocol by which its transaction ends."""


class OffsetTransactions(Protocol):
    """The group coordinators of this broker, as far as transactions of offsets end."""

    def takes_markers(self, partition: LeaderPartition, /) -> bool:
        """Whether the coordinator of this leadership of the partition is loaded."""

    def end_transactions(self, partition: LeaderPartition, markers: Sequence[Marker], /) -> bool:
        """Apply markers that were just appended. Nothing may be awaited in between."""


class MarkerAppends:
    """Appends markers to the partitions that this broker leads.

    timeout_s: how long markers wait for followers. offsets: those that apply markers of offsets.

    storage_failed: takes a partition whose log cannot be written out of service.
    """

    def __init__(
        self,
        partitions: PartitionTable,
        offsets: OffsetTransactions,
        *,
        clock: Clock,
        timeout_s: float,
        storage_failed: Callable[[LeaderPartition, OSError], None],
    ) -> None:
        self.timeout_s = timeout_s
        self._partitions = partitions
        self._offsets = offsets
        self._clock = clock
        self._storage_failed = storage_failed

    def append(self, markers: Iterable[WritableMarker]) -> "MarkerCall":
        """Append all that can be appended. Nothing is waited for: see MarkerCall."""
        call = MarkerCall(markers)
        for name, due in call.markers.items():
            partition = self._find(name)
            if isinstance(partition, ErrorCode):
                call.errors[name] = [partition] * len(due)
            else:
                call.errors[name] = self._append(partition, due)
                self._await_commit(call, name, partition)
        return call

    def _find(self, name: _Partition) -> LeaderPartition | ErrorCode:
        """The partition, if it takes markers now.

        As in Kafka, a partition of which this broker has no replica is unknown to it. While the
        group coordinator of a partition is loading, it is as if the partition had another leader.
        """
        topic, index = name
        hosted = self._partitions.by_name.get(topic)
        replica = None if hosted is None else hosted.replicas.get(index)
        if replica is None:
            return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        if not isinstance(replica, LeaderPartition):
            return ErrorCode.NOT_LEADER_OR_FOLLOWER
        if topic == OFFSETS_TOPIC and not self._offsets.takes_markers(replica):
            return ErrorCode.NOT_LEADER_OR_FOLLOWER
        return replica if replica.is_at_min_isr else ErrorCode.NOT_ENOUGH_REPLICAS

    def _append(self, partition: LeaderPartition, due: Sequence[_Due]) -> list[ErrorCode]:
        try:
            valid = [each for each in due if _is_valid(*each)]
            appended = iter(partition.append_markers(valid, self._clock.now_ms()))
        except OSError as error:
            self._storage_failed(partition, error)
            return [ErrorCode.KAFKA_STORAGE_ERROR] * len(due)
        errors = [next(appended) if _is_valid(*each) else ErrorCode.INVALID_REQUEST for each in due]
        if partition.topic == OFFSETS_TOPIC:
            ended = [
                marker
                for (marker, _), error in zip(due, errors, strict=True)
                if error is ErrorCode.NONE
            ]
            self._offsets.end_transactions(partition, ended)
        return errors

    def _await_commit(
        self, call: "MarkerCall", name: _Partition, partition: LeaderPartition
    ) -> None:
        end_offset = partition.log_end_offset
        if ErrorCode.NONE in call.errors[name] and end_offset > partition.high_watermark:
            call.waiting += 1
            partition.ack_queue.add(_Wait(call, name, end_offset, self.timeout_s))


class MarkerCall:
    """The markers of one request.

    markers: those of each partition; one that names a partition twice is there once. errors: for
    each of them, NONE if it is in the log. waiting: how many partitions wait for followers; once it
    is 0, `errors` and `response` are final. on_done: called then, unless it is 0 from the start.
    """

    __slots__ = ("errors", "markers", "on_done", "waiting")

    def __init__(self, markers: Iterable[WritableMarker]) -> None:
        self.markers = _by_partition(markers)
        self.errors: dict[_Partition, list[ErrorCode]] = {}
        self.waiting = 0
        self.on_done: Callable[[], None]

    def refuse(self, error: ErrorCode) -> None:
        """Give all markers this error."""
        self.errors = {name: [error] * len(due) for name, due in self.markers.items()}

    def ended(self, name: _Partition, error: ErrorCode) -> None:
        """The wait of one partition is over. error: of its markers that are in the log."""
        self.errors[name] = [each or error for each in self.errors[name]]
        self.waiting -= 1
        if not self.waiting:
            self.on_done()

    def response(self) -> WriteTxnMarkersResponse:
        """A result for each producer. Of its markers for one partition the last one counts."""
        answer = MarkerResults()
        answer.add(self)
        return answer.response()


class MarkerResults:
    """The results of calls, which become one answer."""

    def __init__(self) -> None:
        self._results: dict[int, dict[str, dict[int, ErrorCode]]] = {}

    def add(self, call: MarkerCall) -> None:
        """Add the errors of a call in which no partition waits any more."""
        for (topic, index), due in call.markers.items():
            for (marker, _), error in zip(due, call.errors[topic, index], strict=True):
                topics = self._results.setdefault(marker.producer_id, {})
                topics.setdefault(topic, {})[index] = error

    def response(self) -> WriteTxnMarkersResponse:
        """A result for each producer. Of its markers for one partition the last one counts."""
        return WriteTxnMarkersResponse(
            markers=[
                _Result(producer_id=producer_id, topics=_topics(topics))
                for producer_id, topics in self._results.items()
            ]
        )


def _is_valid(marker: Marker, version: int) -> bool:
    """Whether it names a producer, an epoch and a version: coordinators send no others."""
    return marker.producer_id >= 0 and marker.epoch >= 0 and version >= 0


def _by_partition(markers: Iterable[WritableMarker]) -> dict[_Partition, list[_Due]]:
    found: dict[_Partition, list[_Due]] = {}
    for row in markers:
        marker = Marker(
            row.producer_id, row.producer_epoch, row.transaction_result, row.coordinator_epoch
        )
        named = ((topic.name, index) for topic in row.topics for index in topic.partition_indexes)
        for name in dict.fromkeys(named):
            found.setdefault(name, []).append((marker, row.transaction_version))
    return found


def _topics(topics: dict[str, dict[int, ErrorCode]]) -> list[_Topic]:
    return [
        _Topic(
            name=name,
            partitions=[
                _Row(partition_index=index, error_code=error) for index, error in rows.items()
            ],
        )
        for name, rows in topics.items()
    ]


class _Wait:
    """The markers of one partition, until followers have them (an `AckWait`)."""

    __slots__ = ("_call", "_name", "acks", "deadline_s", "end_offset", "timeout_s")

    def __init__(
        self, call: MarkerCall, name: _Partition, end_offset: int, timeout_s: float
    ) -> None:
        self._call = call
        self._name = name
        self.end_offset = end_offset
        self.acks = ALL
        self.timeout_s: float | None = timeout_s
        self.deadline_s = 0.0

    def ended(self, error: ErrorCode) -> None:
        self._call.ended(self._name, error)
