"""The markers that a leader appends together (WriteTxnMarkers)."""

from logfleet.log.batch_rules import BatchRefusal
from logfleet.log.names import TopicPartition
from logfleet.log.producers.states import ProducerStates
from logfleet.log.validation import Appended
from logfleet.records.batch import (
    NO_TIMESTAMP,
    TimestampType,
    assign_offsets,
    set_log_append_time,
)
from logfleet.records.control import Marker, marker_batch
from logfleet.types import LeaderEpoch
from logfleet.wire.errors import ErrorCode


class MarkerRun:
    """The batches of markers that go to the log by one write, from `next_offset` on.

    timestamp_type: the topic's; as in Kafka, markers have it, too.
    """

    def __init__(self, next_offset: int, timestamp_type: TimestampType) -> None:
        self._next_offset = next_offset
        self._timestamp_type = timestamp_type
        self._batches = bytearray()
        self._producer_ids: set[int] = set()

    def has(self, producer_id: int) -> bool:
        """Whether it has a marker of this producer, which the next one is to be checked against."""
        return producer_id in self._producer_ids

    def add(self, marker: Marker, leader_epoch: LeaderEpoch, now_ms: int) -> Appended:
        """Add a marker; returns the offset that it will have."""
        offset = self._next_offset
        batch = marker_batch(
            marker.producer_id,
            marker.epoch,
            commit=marker.is_commit,
            coordinator_epoch=marker.coordinator_epoch,
            now_ms=now_ms,
        )
        if self._timestamp_type is TimestampType.LOG_APPEND_TIME:
            set_log_append_time(batch, now_ms)
        assign_offsets(batch, offset, leader_epoch)
        self._batches += batch
        self._producer_ids.add(marker.producer_id)
        self._next_offset += 1
        return Appended(offset, offset, NO_TIMESTAMP)

    def take(self) -> memoryview:
        """Take the batches, to append them; another run begins behind them."""
        taken, self._batches = self._batches, bytearray()
        self._producer_ids.clear()
        return memoryview(taken)


def refuse_marker(
    states: ProducerStates, marker: Marker, version: int, partition: TopicPartition
) -> BatchRefusal | None:
    """Why a leader must not append this marker, else None; see `ProducerStates.check_marker`.

    INVALID_REQUEST for one that names no producer: clients may send markers, too.
    """
    if marker.producer_id < 0 or marker.epoch < 0:
        return BatchRefusal(
            ErrorCode.INVALID_REQUEST,
            f"Marker of producer {marker.producer_id} in {partition}: epoch {marker.epoch}; "
            "both must be at least 0.",
        )
    error = states.check_marker(marker, version)
    if error is None:
        return None
    state = states.get(marker.producer_id)
    assert state is not None
    return BatchRefusal(
        error,
        f"Marker of producer {marker.producer_id} in {partition}: epoch {marker.epoch}, "
        f"coordinator epoch {marker.coordinator_epoch}; the log has epoch {state.epoch}, "
        f"coordinator epoch {state.coordinator_epoch}.",
    )
