"""Which partitions still wait for the marker of which transaction, grouped by their leader.

The outcome of a transaction is decided and committed before its markers are due; nothing that
happens here changes it. A marker may be written twice: the second changes nothing (KAFKA-19999).
Source: TransactionMarkerChannelManager and TransactionMarkerRequestCompletionHandler.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Final, NamedTuple

import msgspec

from logfleet.transactions.state import TopicPartition
from logfleet.types import LeaderEpoch, ProducerEpoch
from logfleet.wire.errors import ErrorCode
from logfleet.wire.messages import WriteTxnMarkersRequest, WriteTxnMarkersResponse

NO_LEADER: Final = -1
ROWS_PER_REQUEST: Final = 500
"""Markers in one request; the rest waits for the next.

A leader takes about 20 us for each, in one step of its loop.
"""

WRITTEN: Final = frozenset(
    {
        ErrorCode.NONE,
        # A log that can hold no marker holds no data of the transaction.
        ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT,
        ErrorCode.UNSUPPORTED_VERSION,
    }
)
REFUSED: Final = frozenset(
    {ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.TRANSACTION_COORDINATOR_FENCED}
)
"""A newer coordinator, or a newer transaction, is at work there."""

WritableMarker = WriteTxnMarkersRequest.WritableTxnMarker
MarkerTopic = WriteTxnMarkersRequest.WritableTxnMarkerTopic


class MarkerKey(NamedTuple):
    """The transaction that markers are for. epoch: of the markers."""

    transactional_id: str
    producer_id: int
    epoch: ProducerEpoch


class MarkersDue(msgspec.Struct, frozen=True):
    """A transaction whose outcome is committed: each of its partitions gets a marker.

    client_version: the protocol of the client that ended it; partitions check epochs by it.
    """

    key: MarkerKey
    is_commit: bool
    client_version: int
    partitions: frozenset[TopicPartition]


class MarkerAnswer(msgspec.Struct, frozen=True):
    """Partitions of one transaction that wait no more.

    owner: as `due` got it. written: they have the marker, or are gone. refused: why the book has
    given the transaction up; its coordinator was replaced.
    """

    owner: object
    key: MarkerKey
    written: frozenset[TopicPartition]
    refused: tuple[TopicPartition, ErrorCode] | None = None


class WaitingMarker(msgspec.Struct, frozen=True):
    """A marker that is not written yet. why: a sentence."""

    key: MarkerKey
    partition: TopicPartition
    since_ms: int
    why: str


@dataclass(slots=True, eq=False)
class _Attempt:
    """The markers of one transaction. left: partitions that wait, or are in a request."""

    owner: object
    due: MarkersDue
    coordinator_epoch: LeaderEpoch
    since_ms: int
    left: set[TopicPartition]
    written: set[TopicPartition] = field(default_factory=set)


LeaderOf = Callable[[TopicPartition], int | None]
"""The broker that leads a partition; NO_LEADER while there is none, None if it does not exist."""


class MarkerBook:
    """All markers that this broker's coordinators have to get written.

    A broker gets one request at a time, with all that waits for it: `take`, then `answered` or
    `lost`. What cannot go on waits for `release`: call it when an image changes leaders, and a
    moment after an answer or a loss left something to release.
    """

    def __init__(self, leader_of: LeaderOf) -> None:
        self._leader_of = leader_of
        # Queues may hold attempts that are over: they are left out when they are taken.
        self._of_owner: dict[object, dict[MarkerKey, _Attempt]] = {}
        self._queued: dict[int, dict[TopicPartition, dict[_Attempt, None]]] = {}
        self._held: dict[TopicPartition, dict[_Attempt, None]] = {}
        self._why: dict[TopicPartition, str] = {}
        self._in_flight: dict[int, dict[int, tuple[_Attempt, set[TopicPartition]]]] = {}

    def __len__(self) -> int:
        """The transactions that lack markers."""
        return sum(map(len, self._of_owner.values()))

    @property
    def needs_release(self) -> bool:
        """Whether some markers wait for `release`."""
        return bool(self._held)

    def brokers(self) -> list[int]:
        """The brokers that `take` has markers for now."""
        return [broker for broker in self._queued if broker not in self._in_flight]

    def due(
        self, owner: object, coordinator_epoch: LeaderEpoch, markers: MarkersDue, now_ms: int
    ) -> list[MarkerAnswer]:
        """Markers to get written.

        owner: the coordinator, which has to be hashable. coordinator_epoch: the leader epoch of its
        partition. now_ms: monotonic clock. Answers partitions that do not exist.
        """
        attempt = _Attempt(owner, markers, coordinator_epoch, now_ms, set(markers.partitions))
        self._of_owner.setdefault(owner, {})[markers.key] = attempt
        for partition in markers.partitions:
            self._route(partition, (attempt,))
        return self._answers((attempt,))

    def forget(self, owner: object) -> None:
        """The coordinator was lost: its markers are another's to write."""
        self._of_owner.pop(owner, None)

    def take(self, broker: int) -> list[WritableMarker]:
        """The next request for a broker; empty if nothing waits or a request is on its way."""
        queued = self._queued.get(broker)
        if not queued or broker in self._in_flight:
            return []
        rows: dict[_Attempt, set[TopicPartition]] = {}
        count = 0
        for partition, attempts in list(queued.items()):
            current = [each for each in attempts if self._is_current(each)]
            for attempt in current:
                rows.setdefault(attempt, set()).add(partition)
            count += len(current)
            del queued[partition]
            if count >= ROWS_PER_REQUEST:
                break
        if not queued:
            del self._queued[broker]
        if rows:
            self._in_flight[broker] = {
                attempt.due.key.producer_id: (attempt, partitions)
                for attempt, partitions in rows.items()
            }
        return [_marker(attempt, partitions) for attempt, partitions in rows.items()]

    def answered(self, broker: int, response: WriteTxnMarkersResponse) -> list[MarkerAnswer]:
        """Rows of the request that `take` made. What the response lacks waits for `release`."""
        sent = self._in_flight.pop(broker, {})
        refused: dict[_Attempt, tuple[TopicPartition, ErrorCode]] = {}
        for producer_id, partition, error in _rows(response):
            attempt, partitions = sent.get(producer_id, (None, set()))
            if attempt is None or partition not in partitions or not self._is_current(attempt):
                continue
            partitions.discard(partition)
            if error in WRITTEN:
                self._written(attempt, partition)
            elif error in REFUSED:
                refused.setdefault(attempt, (partition, error))
            else:
                self._hold(attempt, partition, f"broker {broker} answers {error.name}")
        for attempt, partitions in sent.values():
            if self._is_current(attempt):
                for partition in partitions:
                    self._hold(attempt, partition, f"broker {broker} did not answer for it")
        answers = self._answers(attempt for attempt, _ in sent.values())
        for attempt, refusal in refused.items():
            self._end(attempt.owner, attempt.due.key)
            answers.append(MarkerAnswer(attempt.owner, attempt.due.key, frozenset(), refusal))
        return answers

    def lost(self, broker: int) -> None:
        """The connection broke: all that was sent, and all that is queued, waits for `release`."""
        why = f"broker {broker} cannot be reached"
        for attempt, partitions in self._in_flight.pop(broker, {}).values():
            if self._is_current(attempt):
                for partition in partitions:
                    self._hold(attempt, partition, why)
        for partition, attempts in self._queued.pop(broker, {}).items():
            for attempt in attempts:
                self._hold(attempt, partition, why)

    def release(self) -> list[MarkerAnswer]:
        """Queue all that is held for the leaders of now. Answers partitions that are gone."""
        held, self._held = self._held, {}
        released: dict[_Attempt, None] = {}
        self._why.clear()
        for partition, waiting in held.items():
            attempts = [each for each in waiting if self._is_current(each)]
            released.update(dict.fromkeys(attempts))
            self._route(partition, attempts)
        return self._answers(released)

    def waiting(self) -> Iterator[WaitingMarker]:
        """All markers that are not written, for reports. Nothing may change meanwhile."""
        for attempts in self._of_owner.values():
            for attempt in attempts.values():
                for partition in attempt.left:
                    why = self._why.get(partition, "on its way")
                    yield WaitingMarker(attempt.due.key, partition, attempt.since_ms, why)

    # -- queues

    def _route(self, partition: TopicPartition, attempts: Iterable[_Attempt]) -> None:
        leader = self._leader_of(partition)
        if leader is None:
            for attempt in attempts:
                self._written(attempt, partition)
        elif leader == NO_LEADER:
            for attempt in attempts:
                self._hold(attempt, partition, "it has no leader")
        else:
            for attempt in attempts:
                self._queued.setdefault(leader, {}).setdefault(partition, {})[attempt] = None

    def _hold(self, attempt: _Attempt, partition: TopicPartition, why: str) -> None:
        self._held.setdefault(partition, {})[attempt] = None
        self._why[partition] = why

    def _written(self, attempt: _Attempt, partition: TopicPartition) -> None:
        attempt.left.discard(partition)
        attempt.written.add(partition)
        self._why.pop(partition, None)

    def _answers(self, attempts: Iterable[_Attempt]) -> list[MarkerAnswer]:
        """What has been written for these attempts since their last answer."""
        answers = []
        for attempt in attempts:
            if not attempt.written:
                continue
            answers.append(MarkerAnswer(attempt.owner, attempt.due.key, frozenset(attempt.written)))
            attempt.written.clear()
            if not attempt.left:
                self._end(attempt.owner, attempt.due.key)
        return answers

    def _is_current(self, attempt: _Attempt) -> bool:
        return self._of_owner.get(attempt.owner, {}).get(attempt.due.key) is attempt

    def _end(self, owner: object, key: MarkerKey) -> None:
        attempts = self._of_owner.get(owner, {})
        attempts.pop(key, None)
        if not attempts:
            self._of_owner.pop(owner, None)


def _error(code: int) -> ErrorCode:
    """The error of a row; UNKNOWN_SERVER_ERROR for one that only a newer broker knows."""
    try:
        return ErrorCode(code)
    except ValueError:
        return ErrorCode.UNKNOWN_SERVER_ERROR


def _rows(
    response: WriteTxnMarkersResponse,
) -> Iterator[tuple[int, TopicPartition, ErrorCode]]:
    """Producer id, partition and error of each row."""
    for marker in response.markers:
        for topic in marker.topics:
            for row in topic.partitions:
                partition = TopicPartition(topic.name, row.partition_index)
                yield marker.producer_id, partition, _error(row.error_code)


def _marker(attempt: _Attempt, partitions: Iterable[TopicPartition]) -> WritableMarker:
    topics: dict[str, list[int]] = {}
    for topic, index in sorted(partitions):
        topics.setdefault(topic, []).append(index)
    return WritableMarker(
        producer_id=attempt.due.key.producer_id,
        producer_epoch=attempt.due.key.epoch,
        transaction_result=attempt.due.is_commit,
        topics=[
            MarkerTopic(name=topic, partition_indexes=indexes) for topic, indexes in topics.items()
        ],
        coordinator_epoch=attempt.coordinator_epoch,
        transaction_version=attempt.due.client_version,
    )
