"""Which partitions still wait for the marker of which transaction, grouped by their leader.

The outcome of a transaction is decided and committed before its markers are due; nothing that
happens here changes it. A marker may be written twice: the second changes nothing (KAFKA-19999).
Source: TransactionMarkerChannelManager and TransactionMarkerRequestCompletionHandler.
"""

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Final, NamedTuple

import msgspec

from logfleet.transactions.state import TopicPartition
from logfleet.types import LeaderEpoch, ProducerEpoch
from logfleet.wire.errors import ErrorCode
from logfleet.wire.messages import WriteTxnMarkersRequest, WriteTxnMarkersResponse

NO_LEADER: Final = -1
ROWS_PER_REQUEST: Final = 100
"""Markers in one request; the rest goes with the next.

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
class _Owner:
    """A coordinator. is_over: it was lost."""

    name: object
    attempts: "dict[MarkerKey, _Attempt]" = field(default_factory=dict)
    is_over: bool = False


@dataclass(slots=True, eq=False)
class _Attempt:
    """The markers of one transaction. left: partitions that wait, or are in a request."""

    owner: _Owner
    due: MarkersDue
    coordinator_epoch: LeaderEpoch
    since_ms: int
    left: set[TopicPartition]
    written: set[TopicPartition] = field(default_factory=set)
    is_given_up: bool = False

    @property
    def is_over(self) -> bool:
        """Whether what waits of it is left out."""
        return self.is_given_up or self.owner.is_over


LeaderOf = Callable[[TopicPartition], int | None]
"""The broker that leads a partition; NO_LEADER while there is none, None if it does not exist."""


_Waiting = dict[TopicPartition, deque[_Attempt]]


class MarkerBook:
    """All markers that this broker's coordinators have to get written.

    A broker gets one request at a time, with all that waits for it: `take`, then `answered` or
    `lost`. What cannot go on waits for `release`: call it when an image changes leaders, and a
    moment after an answer or a loss left something to release.
    """

    def __init__(self, leader_of: LeaderOf) -> None:
        self._leader_of = leader_of
        self._owners: dict[object, _Owner] = {}
        # Each partition of an attempt is in one of these, or in a request. They may hold attempts
        # that are over: those are left out when they are taken.
        self._queued: dict[int, _Waiting] = {}
        self._held: _Waiting = {}
        self._may_hold_over = False
        self._why: dict[TopicPartition, str] = {}
        self._in_flight: dict[int, dict[int, tuple[_Attempt, set[TopicPartition]]]] = {}

    def __len__(self) -> int:
        """The transactions that lack markers."""
        return sum(len(owner.attempts) for owner in self._owners.values())

    @property
    def needs_release(self) -> bool:
        """Whether some markers wait for `release`."""
        return bool(self._held)

    @property
    def leaderless(self) -> int:
        """How many markers wait for partitions that have no leader."""
        return sum(
            not attempt.is_over
            for partition, attempts in self._held.items()
            if self._leader_of(partition) == NO_LEADER
            for attempt in attempts
        )

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
        of = self._owners.get(owner) or self._owners.setdefault(owner, _Owner(owner))
        attempt = _Attempt(of, markers, coordinator_epoch, now_ms, set(markers.partitions))
        of.attempts[markers.key] = attempt
        for partition in markers.partitions:
            self._route(partition, (attempt,))
        return self._answers((attempt,))

    def forget(self, owner: object) -> None:
        """The coordinator was lost: its markers are another's to write."""
        lost = self._owners.pop(owner, None)
        if lost is not None:
            lost.is_over = self._may_hold_over = True

    def take(self, broker: int) -> list[WritableMarker]:
        """The next request for a broker; empty if nothing waits or a request is on its way."""
        queued = self._queued.get(broker)
        if not queued or broker in self._in_flight:
            return []
        rows: dict[_Attempt, set[TopicPartition]] = {}
        count = 0
        while queued and count < ROWS_PER_REQUEST:
            partition, attempts = next(iter(queued.items()))
            attempt = attempts.popleft()
            if not attempts:
                del queued[partition]
            if not attempt.is_over:
                rows.setdefault(attempt, set()).add(partition)
                count += 1
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
            if attempt is None or partition not in partitions or attempt.is_over:
                continue
            partitions.discard(partition)
            if error in WRITTEN:
                self._written(attempt, partition)
            elif error in REFUSED:
                refused.setdefault(attempt, (partition, error))
            else:
                self._hold((attempt,), partition, f"broker {broker} answers {error.name}")
        for attempt, partitions in sent.values():
            if not attempt.is_over:
                for partition in partitions:
                    self._hold((attempt,), partition, f"broker {broker} did not answer for it")
        answers = self._answers(attempt for attempt, _ in sent.values())
        for attempt, refusal in refused.items():
            attempt.is_given_up = self._may_hold_over = True
            self._end(attempt)
            answers.append(MarkerAnswer(attempt.owner.name, attempt.due.key, frozenset(), refusal))
        return answers

    def lost(self, broker: int) -> None:
        """The connection broke: all that was sent, and all that is queued, waits for `release`."""
        why = f"broker {broker} cannot be reached"
        for attempt, partitions in self._in_flight.pop(broker, {}).values():
            if not attempt.is_over:
                for partition in partitions:
                    self._hold((attempt,), partition, why)
        for partition, attempts in self._queued.pop(broker, {}).items():
            self._hold(attempts, partition, why)

    def release(self) -> list[MarkerAnswer]:
        """Queue all that is held for the leaders of now. Answers partitions that are gone."""
        held, self._held = self._held, {}
        if self._may_hold_over:
            held = _without_over(held)
            self._may_hold_over = False
        self._why.clear()
        answers = []
        for partition, attempts in held.items():
            if self._route(partition, attempts):
                answers += self._answers(attempts)
        return answers

    def waiting(self) -> Iterator[WaitingMarker]:
        """All markers that are not written, for reports. Nothing may change meanwhile."""
        for owner in self._owners.values():
            for attempt in owner.attempts.values():
                for partition in attempt.left:
                    why = self._why.get(partition, "on its way")
                    yield WaitingMarker(attempt.due.key, partition, attempt.since_ms, why)

    # -- queues

    def _route(self, partition: TopicPartition, attempts: Iterable[_Attempt]) -> bool:
        """Whether the partition is gone. Else what waits for it waits at its leader's queue."""
        leader = self._leader_of(partition)
        if leader is None:
            for attempt in attempts:
                self._written(attempt, partition)
        elif leader == NO_LEADER:
            self._hold(attempts, partition, "it has no leader")
        else:
            _wait(self._queued.setdefault(leader, {}), partition, attempts)
        return leader is None

    def _hold(self, attempts: Iterable[_Attempt], partition: TopicPartition, why: str) -> None:
        _wait(self._held, partition, attempts)
        self._why[partition] = why

    def _written(self, attempt: _Attempt, partition: TopicPartition) -> None:
        attempt.left.discard(partition)
        attempt.written.add(partition)
        self._why.pop(partition, None)

    def _answers(self, attempts: Iterable[_Attempt]) -> list[MarkerAnswer]:
        """What has been written for these attempts since their last answer."""
        answers = []
        for attempt in attempts:
            if not attempt.written or attempt.is_over:
                continue
            written = frozenset(attempt.written)
            answers.append(MarkerAnswer(attempt.owner.name, attempt.due.key, written))
            attempt.written.clear()
            if not attempt.left:
                self._end(attempt)
        return answers

    def _end(self, attempt: _Attempt) -> None:
        owner = attempt.owner
        del owner.attempts[attempt.due.key]
        if not owner.attempts:
            del self._owners[owner.name]


def _without_over(waiting: _Waiting) -> _Waiting:
    found = {}
    for partition, attempts in waiting.items():
        current = deque(each for each in attempts if not each.is_over)
        if current:
            found[partition] = current
    return found


def _wait(waiting: _Waiting, partition: TopicPartition, attempts: Iterable[_Attempt]) -> None:
    """Add attempts to those that wait for a partition's marker."""
    if partition in waiting:
        waiting[partition].extend(attempts)
    else:
        waiting[partition] = attempts if isinstance(attempts, deque) else deque(attempts)


def _rows(
    response: WriteTxnMarkersResponse,
) -> Iterator[tuple[int, TopicPartition, ErrorCode]]:
    """Producer id, partition and error of each row."""
    for marker in response.markers:
        for topic in marker.topics:
            for row in topic.partitions:
                partition = TopicPartition(topic.name, row.partition_index)
                yield marker.producer_id, partition, ErrorCode(row.error_code)


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
