"""Which requests a fault hits, and what is no fault."""

import pytest
from logfleet.testing.faults.rules import FAULTS_MAX, BadFault, Fault, FaultBook, Named, fault_of
from logfleet.wire.errors import ErrorCode

ORDERS = Named("app", (("orders", 0), ("orders", 1)))


@pytest.mark.parametrize(
    "document, message",
    [
        ({"api": "Produc", "drop": True}, "'Produc' is no API: did you mean Produce?"),
        ({"api": "fetch", "drop": True}, "'fetch' is no API: did you mean Fetch"),
        (
            {"api": "Produce", "error": "NOT_LEADER"},
            "'NOT_LEADER' is no error: did you mean NOT_LEADER_OR_FOLLOWER",
        ),
        ({"api": "Produce", "error": "NONE"}, "'NONE' is no error"),
        (
            {"api": "Produce", "loose_answer": True},
            "'loose_answer' is no argument of a fault: did you mean lose_answer?",
        ),
        ({"api": "Produce"}, "exactly one of error, delay_s, .*, not none"),
        ({"api": "Produce", "drop": True, "lose_answer": True}, "not lose_answer and drop"),
        ({"api": "Produce", "tear": 5}, "only the records of Fetch can be torn"),
        ({"api": "Heartbeat", "drop": True, "topic": "orders"}, "Heartbeat names no topic"),
        ({"api": "Metadata", "drop": True, "partition": 0}, "Metadata names no partition"),
        ({"api": "Produce", "drop": True, "group": "g"}, "Produce names no group"),
        ({"api": "AlterConfigs", "error": "INVALID_CONFIG"}, "in its own way"),
        ({"api": "Produce", "drop": True, "every": 0}, "at least 1"),
        ({"api": "Produce", "drop": True, "times": 0}, "at least 1"),
        ({"api": "Produce", "delay_s": 0}, "more than 0"),
        ({"api": "Produce", "delay_s": 90_000}, "less than a day"),
        ({"api": "Fetch", "tear": -1}, "at least 0"),
        ({"api": "Produce", "drop": "yes"}, "Expected `bool`"),
        ({"drop": True}, "missing required field `api`"),
    ],
)
def test_a_fault_that_can_hit_nothing_is_refused_with_the_reason(document, message) -> None:
    with pytest.raises(BadFault, match=message):
        fault_of(document)


def test_a_fault_in_code_is_checked_like_a_document() -> None:
    with pytest.raises(BadFault, match="did you mean Produce"):
        Fault(api="Prodce", drop=True)
    assert fault_of({"api": "Fetch", "tear": 0}) == Fault(api="Fetch", tear=0)


def test_the_code_of_a_fault_is_that_of_its_error() -> None:
    assert Fault(api="Produce", error="CORRUPT_MESSAGE").code is ErrorCode.CORRUPT_MESSAGE
    assert Fault(api="Produce", drop=True).code is ErrorCode.NONE


@pytest.mark.parametrize(
    "filters, is_hit",
    [
        ({}, True),
        ({"topic": "orders"}, True),
        ({"topic": "orders", "partition": 1}, True),
        ({"partition": 1}, True),
        ({"partition": 2}, False),
        ({"topic": "payments"}, False),
        ({"client_id": "app"}, True),
        ({"client_id": "other", "topic": "orders"}, False),
    ],
)
def test_a_request_must_name_all_that_is_asked(filters, is_hit) -> None:
    assert ORDERS.is_hit_by(Fault(api="Produce", drop=True, **filters)) is is_hit


def test_a_request_about_all_topics_is_hit_for_each() -> None:
    fault = Fault(api="Metadata", drop=True, topic="orders")
    assert Named(topics_are_all=True).is_hit_by(fault)
    assert not Named().is_hit_by(fault)


def test_a_request_of_another_group_is_not_hit() -> None:
    fault = Fault(api="Heartbeat", drop=True, group="g")
    assert Named(groups=("f", "g")).is_hit_by(fault)
    assert not Named(groups=("f",)).is_hit_by(fault)


def chosen(book: FaultBook, requests: int, api: str = "Produce") -> list[int | None]:
    numbers = []
    for _ in range(requests):
        armed = book.choose(api, ORDERS)
        numbers.append(None if armed is None else armed.number)
    return numbers


def test_it_hits_as_often_as_it_may_and_then_no_more() -> None:
    book = FaultBook()
    armed = book.arm(Fault(api="Produce", drop=True, times=2))
    assert chosen(book, 4) == [1, 1, None, None]
    assert (armed.hits, armed.is_spent, book.concerns("Produce")) == (2, True, False)


def test_it_hits_each_nth_request() -> None:
    book = FaultBook()
    armed = book.arm(Fault(api="Produce", drop=True, every=3, times=None))
    assert chosen(book, 7) == [None, None, 1, None, None, 1, None]
    assert (armed.seen, armed.hits, armed.is_spent) == (7, 2, False)


def test_requests_of_other_apis_are_not_counted() -> None:
    book = FaultBook()
    armed = book.arm(Fault(api="Produce", drop=True))
    assert chosen(book, 2, "Fetch") == [None, None]
    assert armed.seen == 0
    assert (book.concerns("Fetch"), book.concerns("Produce")) == (False, True)


def test_the_first_fault_that_is_due_acts() -> None:
    book = FaultBook()
    book.arm(Fault(api="Produce", drop=True, topic="payments"))
    book.arm(Fault(api="Produce", drop=True, every=2))
    book.arm(Fault(api="Produce", lose_answer=True, times=None))
    assert chosen(book, 4) == [3, 2, 3, 3]


def test_one_that_observes_counts_all_and_lets_the_next_act() -> None:
    book = FaultBook()
    watch = book.arm(Fault(api="Produce", observe=True))
    book.arm(Fault(api="Produce", drop=True))
    assert chosen(book, 3) == [2, None, None]
    assert (watch.hits, watch.is_spent) == (3, False)


def test_one_that_tears_is_counted_by_the_records_that_it_tore() -> None:
    book = FaultBook()
    armed = book.arm(Fault(api="Fetch", tear=10))
    assert book.choose("Fetch", ORDERS) is armed
    assert armed.hits == 0
    assert armed.is_due()
    assert book.choose("Fetch", ORDERS) is None


def test_a_removed_fault_acts_no_more() -> None:
    book = FaultBook()
    armed = book.arm(Fault(api="Produce", drop=True, times=None))
    assert chosen(book, 1) == [1]
    assert book.remove(armed.number) is armed
    assert (chosen(book, 1), list(book), armed.hits) == ([None], [], 1)
    with pytest.raises(BadFault, match="no fault 1"):
        book.remove(armed.number)


def test_the_number_of_faults_is_bounded() -> None:
    book = FaultBook()
    for _ in range(FAULTS_MAX):
        book.arm(Fault(api="Produce", drop=True))
    with pytest.raises(BadFault, match="remove some"):
        book.arm(Fault(api="Produce", drop=True))
