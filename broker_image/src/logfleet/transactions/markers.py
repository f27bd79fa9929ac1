"""Which partitions of decided transactions still lack their marker, and which broker gets it next.

A transaction is complete once every one of its partitions has the marker. It goes to the broker
that leads the partition then; what a broker refuses or does not answer is sent again, for as long
as it takes. Source: Kafka's TransactionMarkerChannelManager,
TransactionMarkerRequestCompletionHandler.
"""

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from typing import Final, NamedTuple, TypeAlias

import msgspec

from logfleet.types import ProducerEpoch
from logfleet.wire.errors import ErrorCode

TopicPartition: TypeAlias = tuple[str, int]
BrokerOf: TypeAlias = Callable[[TopicPartition], int | None]
"""The broker that leads a partition, LEADERLESS, or GONE if there is no such partition."""

STUCK_MS: Final = 10_000
"""A partition without its marker for so long is reported."""
LEADERLESS: Final = -1
GONE: Final = None

DONE: Final = frozenset(
    {
        ErrorCode.NONE,
        ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT,
        ErrorCode.UNSUPPORTED_VERSION,
    }
)
"""The partition needs no more markers. With the last two it can hold no transactional record."""
SUPERSEDED: Final = frozenset(
    {ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.TRANSACTION_COORDINATOR_FENCED}
)
"""Somebody newer has ended this transaction: this attempt is given up."""


class MarkersDue(msgspec.Struct, frozen=True):
    """The markers of one transaction whose outcome is decided and committed.

    epoch: of the markers. version: of the protocol by which the transaction ends, 2 for TV2.
    """

    transactional_id: str
    producer_id: int
    epoch: ProducerEpoch
    is_commit: bool
    version: int
    partitions: frozenset[TopicPartition]


class Attempt:
    """One coordinator's attempt to end one transaction.

    owner: the coordinator, for the caller. since_ms: when it began (monotonic clock). left: the
    partitions without the marker, with their last error; NONE before an answer. is_over: nothing
    more of it is sent.
    """

    __slots__ = ("due", "is_over", "left", "owner", "since_ms")

    def __init__(self, owner: object, due: MarkersDue, now_ms: int) -> None:
        self.owner = owner
        self.due = due
        self.since_ms = now_ms
        self.left = dict.fromkeys(due.partitions, ErrorCode.NONE)
        self.is_over = False


class SentMarker(NamedTuple):
    """The marker of a transaction, for partitions that one broker leads."""

    attempt: Attempt
    partitions: list[TopicPartition]


class Answer(NamedTuple):
    """What is settled of an attempt: rows with an error of DONE or SUPERSEDED."""

    attempt: Attempt
    rows: dict[TopicPartition, ErrorCode]


class MarkerBook:
    """All markers that are due at the coordinators of one broker.

    A partition of an attempt waits for a route, for the next request to its broker, or for the
    answer to one; or it rests, because it has no leader, was refused or not answered, until
    `retry`. A broker has one request at a time: `take`, then `answered` or `lost`.
    """

    def __init__(self) -> None:
        self._unrouted: list[SentMarker] = []
        self._queued: dict[int, list[SentMarker]] = {}
        self._sent: dict[int, list[SentMarker]] = {}
        self._leaderless: list[SentMarker] = []
        self._refused: list[SentMarker] = []
        self._of_owner: dict[object, set[Attempt]] = {}
        self._by_age: deque[Attempt] = deque()

    @property
    def is_resting(self) -> bool:
        """Whether something was refused or not answered, and may be sent again after a pause."""
        return bool(self._refused)

    @property
    def leaderless(self) -> int:
        """Markers for partitions without a leader (UnknownDestinationQueueSize)."""
        return sum(not each.attempt.is_over for each in self._leaderless)

    def attempts(self) -> int:
        """Transactions that are not complete."""
        return sum(map(len, self._of_owner.values()))

    def due(self, owner: object, markers: MarkersDue, now_ms: int) -> None:
        """Begin to end a transaction, at every one of its partitions.

        owner: the coordinator, which gets the answers.
        """
        attempt = Attempt(owner, markers, now_ms)
        self._of_owner.setdefault(owner, set()).add(attempt)
        self._by_age.append(attempt)
        self._unrouted.append(SentMarker(attempt, list(markers.partitions)))

    def drop(self, owner: object) -> None:
        """The coordinator has stopped: its successor sends these markers itself."""
        for attempt in self._of_owner.pop(owner, ()):
            attempt.is_over = True

    # -- to brokers

    def route(self, broker_of: BrokerOf) -> list[Answer]:
        """Queue each marker for the broker that leads its partition now.

        Returns the partitions that are gone: nobody reads them any more.
        """
        answers = []
        unrouted, self._unrouted = self._unrouted, []
        for attempt, partitions in _open(unrouted):
            by_broker: dict[int | None, list[TopicPartition]] = {}
            for partition in partitions:
                by_broker.setdefault(broker_of(partition), []).append(partition)
            for broker, led in by_broker.items():
                if broker is GONE:
                    answers.append(self._settled(attempt, dict.fromkeys(led, ErrorCode.NONE)))
                elif broker == LEADERLESS:
                    self._leaderless.append(SentMarker(attempt, led))
                else:
                    self._queued.setdefault(broker, []).append(SentMarker(attempt, led))
        return answers

    def ready(self) -> list[int]:
        """Brokers that have no request in progress and should get one."""
        return [broker for broker in self._queued if broker not in self._sent]

    def take(self, broker: int) -> list[SentMarker]:
        """Everything that is queued for the broker: its next request. May be empty."""
        assert broker not in self._sent, f"broker {broker} has a request already"
        markers = list(_open(self._queued.pop(broker, ())))
        if markers:
            self._sent[broker] = markers
        return markers

    def answered(
        self, broker: int, error_of: Callable[[SentMarker, TopicPartition], ErrorCode]
    ) -> list[Answer]:
        """The broker has answered its request; what it refused for now rests."""
        answers = []
        for sent in _open(self._sent.pop(broker)):
            settled: dict[TopicPartition, ErrorCode] = {}
            refused = []
            for partition in sent.partitions:
                error = error_of(sent, partition)
                if error in DONE or error in SUPERSEDED:
                    settled[partition] = error
                else:
                    sent.attempt.left[partition] = error
                    refused.append(partition)
            if settled:
                answers.append(self._settled(sent.attempt, settled))
            if refused:
                self._refused.append(SentMarker(sent.attempt, refused))
        return answers

    def lost(self, broker: int) -> None:
        """The request was not answered, or could not be sent: all of it rests."""
        self._refused += _open(self._sent.pop(broker, ()))

    def _settled(self, attempt: Attempt, rows: dict[TopicPartition, ErrorCode]) -> Answer:
        for partition in rows:
            attempt.left.pop(partition, None)
        if not attempt.left or not SUPERSEDED.isdisjoint(rows.values()):
            attempt.is_over = True
            attempts = self._of_owner[attempt.owner]
            attempts.discard(attempt)
            if not attempts:
                del self._of_owner[attempt.owner]
        return Answer(attempt, rows)

    # -- again

    def retry(self) -> None:
        """Route again what was refused or not answered."""
        self._unrouted += self._refused
        self._refused.clear()

    def leaders_changed(self) -> None:
        """Route again everything that is not in a request."""
        self.retry()
        for waiting in (self._leaderless, *self._queued.values()):
            self._unrouted += waiting
        self._leaderless.clear()
        self._queued.clear()

    def next_stuck_ms(self) -> int | None:
        """When `stuck` may find another one (monotonic clock); None while all is complete."""
        while self._by_age and self._by_age[0].is_over:
            self._by_age.popleft()
        return self._by_age[0].since_ms + STUCK_MS if self._by_age else None

    def stuck(self, now_ms: int) -> Iterator[Attempt]:
        """The attempts that have lasted for STUCK_MS, each of them once."""
        while (due_ms := self.next_stuck_ms()) is not None and due_ms <= now_ms:
            yield self._by_age.popleft()


def _open(markers: Iterable[SentMarker]) -> Iterator[SentMarker]:
    """Those whose attempt still lasts."""
    return (each for each in markers if not each.attempt.is_over)
