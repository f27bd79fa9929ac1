"""Which partitions of decided transactions lack their marker, and which broker gets it next."""

from typing import Any

from logfleet.transactions.markers import (
    GONE,
    LEADERLESS,
    STUCK_MS,
    Answer,
    MarkerBook,
    MarkersDue,
    TopicPartition,
)
from logfleet.types import ProducerEpoch
from logfleet.wire.errors import ErrorCode

A, B, C = ("topic", 0), ("topic", 1), ("topic", 2)
TV2 = 2
REFUSALS = (
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ErrorCode.NOT_LEADER_OR_FOLLOWER,
    ErrorCode.REQUEST_TIMED_OUT,
    ErrorCode.NOT_ENOUGH_REPLICAS,
    ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
    ErrorCode.KAFKA_STORAGE_ERROR,
)


class Book:
    """A book, and the leaders of the partitions: all are led by broker 1 at first."""

    def __init__(self) -> None:
        self.book = MarkerBook()
        self.leaders: dict[TopicPartition, int | None] = {}

    def due(self, name: str, *partitions: TopicPartition, owner: object = "x", at: int = 0) -> None:
        markers = MarkersDue(name, 7, ProducerEpoch(3), True, TV2, frozenset(partitions))
        self.book.due(owner, markers, at)
        self.route()

    def route(self) -> list[Answer]:
        return self.book.route(lambda partition: self.leaders.get(partition, 1))

    def take(self, broker: int = 1) -> dict[str, set[TopicPartition]]:
        """Transactional id -> partitions of the next request."""
        taken: dict[str, set[TopicPartition]] = {}
        for attempt, partitions in self.book.take(broker):
            taken.setdefault(attempt.due.transactional_id, set()).update(partitions)
        return taken

    def answer(self, broker: int = 1, **errors: Any) -> dict[str, dict[int, ErrorCode]]:
        """Transactional id -> partition -> what is settled. errors: by index as "p0"; else NONE."""
        answers = self.book.answered(
            broker, lambda _, partition: errors.get(f"p{partition[1]}", ErrorCode.NONE)
        )
        return {
            answer.attempt.due.transactional_id: {
                partition[1]: error for partition, error in answer.rows.items()
            }
            for answer in answers
        }


def test_everything_that_waits_for_a_broker_goes_into_its_next_request() -> None:
    book = Book()
    book.leaders = {C: 2}
    book.due("a", A, B)
    book.due("b", A, C)
    assert sorted(book.book.ready()) == [1, 2]
    assert book.take() == {"a": {A, B}, "b": {A}}
    book.due("c", A)
    assert book.book.ready() == [2]
    assert book.answer() == {"a": {0: 0, 1: 0}, "b": {0: 0}}
    assert book.book.ready() == [2, 1]
    assert (book.take(1), book.take(2)) == ({"c": {A}}, {"b": {C}})
    assert book.book.attempts() == 2
    book.answer(1)
    book.answer(2)
    assert book.book.attempts() == 0


def test_a_partition_that_refuses_rests_and_is_tried_at_its_leader_of_then() -> None:
    for error in REFUSALS:
        book = Book()
        book.due("a", A, B)
        book.take()
        assert book.answer(p0=error) == {"a": {1: ErrorCode.NONE}}
        assert (book.book.is_resting, book.take()) == (True, {})
        book.leaders[A] = 2
        book.book.retry()
        assert (book.book.is_resting, book.route()) == (False, [])
        assert (book.take(1), book.take(2)) == ({}, {"a": {A}})


def test_a_request_without_an_answer_is_sent_again_as_a_whole() -> None:
    book = Book()
    book.due("a", A, B)
    book.take()
    book.book.lost(1)
    assert book.book.is_resting
    book.book.retry()
    book.route()
    assert book.take() == {"a": {A, B}}


def test_a_partition_that_can_hold_no_transaction_needs_no_marker() -> None:
    for error in (ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT, ErrorCode.UNSUPPORTED_VERSION):
        book = Book()
        book.due("a", A)
        book.take()
        assert book.answer(p0=error) == {"a": {0: error}}
        assert not book.book.attempts()


def test_an_attempt_that_somebody_newer_has_replaced_is_given_up() -> None:
    for error in (ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.TRANSACTION_COORDINATOR_FENCED):
        book = Book()
        book.leaders = {B: 2}
        book.due("a", A, B)
        book.due("b", A)
        book.take()
        answers = book.book.answered(
            1,
            lambda sent, _: (
                error if sent.attempt.due.transactional_id == "a" else ErrorCode.NONE  # noqa: B023
            ),
        )
        assert [list(answer.rows.values()) for answer in answers] == [[error], [ErrorCode.NONE]]
        assert book.take(2) == {}
        assert not book.book.attempts()


def test_a_partition_that_is_gone_needs_no_marker() -> None:
    book = Book()
    book.due("a", A, B)
    book.take()
    book.leaders[A] = GONE
    book.answer(p0=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    book.book.retry()
    (answer,) = book.route()
    assert (answer.rows, answer.attempt.is_over) == ({A: ErrorCode.NONE}, True)


def test_a_partition_without_a_leader_waits_for_one() -> None:
    book = Book()
    book.leaders[A] = LEADERLESS
    book.due("a", A)
    assert (book.take(), book.book.leaderless, book.book.is_resting) == ({}, 1, False)
    book.book.leaders_changed()
    book.route()
    assert book.book.leaderless == 1
    book.leaders[A] = 2
    book.book.leaders_changed()
    book.route()
    assert (book.take(2), book.book.leaderless) == ({"a": {A}}, 0)


def test_what_was_queued_follows_the_leader_and_what_is_in_a_request_is_not_sent_twice() -> None:
    book = Book()
    book.due("a", A)
    book.take()
    book.due("b", A)
    book.leaders[A] = 2
    book.book.leaders_changed()
    book.route()
    assert book.take(2) == {"b": {A}}
    assert book.answer() == {"a": {0: 0}}
    assert book.take(1) == {}


def test_a_coordinator_that_has_stopped_sends_nothing_more_and_gets_no_answers() -> None:
    book = Book()
    book.leaders = {B: LEADERLESS}
    book.due("a", A, B, owner="old")
    book.due("b", A, owner="other")
    book.take()
    book.due("c", A, owner="old")
    book.book.drop("old")
    assert book.answer() == {"b": {0: 0}}
    assert (book.take(), book.book.leaderless, book.book.attempts()) == ({}, 0, 0)
    book.book.drop("old")


def test_an_attempt_that_lasts_is_found_once_with_what_it_waits_for() -> None:
    book = Book()
    assert book.book.next_stuck_ms() is None
    book.due("done", A)
    book.due("late", A, B, at=1)
    book.due("young", A, at=2)
    book.take()
    book.book.answered(
        1,
        lambda sent, _: (
            ErrorCode.NONE
            if sent.attempt.due.transactional_id == "done"
            else ErrorCode.NOT_ENOUGH_REPLICAS
        ),
    )
    assert book.book.next_stuck_ms() == 1 + STUCK_MS
    assert list(book.book.stuck(STUCK_MS)) == []
    (stuck,) = book.book.stuck(1 + STUCK_MS)
    assert stuck.left == dict.fromkeys((A, B), ErrorCode.NOT_ENOUGH_REPLICAS)
    assert list(book.book.stuck(1 + STUCK_MS)) == []
    assert book.book.next_stuck_ms() == 2 + STUCK_MS
