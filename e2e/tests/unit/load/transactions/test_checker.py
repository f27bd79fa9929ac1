"""Histories made by hand, one for each kind of fault."""

import pytest

from e2e.load.transactions.checker import (
    Outcome,
    Transaction,
    Verdict,
    judge,
    miscopies,
    misreadings,
    report_line,
    transactions_of,
    value_of,
)


def history(*outcomes: Outcome) -> list[Transaction]:
    """Transactions 0, 1, ... of the producer p, with two records each."""
    return [Transaction("p", number, outcome, 2) for number, outcome in enumerate(outcomes)]


COMMITTED, ABORTED, UNKNOWN = Outcome
WHOLE = {0: {0: "p.0.0.2"}, 1: {5: "p.0.1.2"}}


def test_committed_transactions_are_whole_and_aborted_ones_nowhere() -> None:
    verdict = judge(history(COMMITTED, ABORTED), WHOLE)
    assert verdict.is_clean


def test_a_committed_transaction_that_is_nowhere_is_lost() -> None:
    verdict = judge(history(COMMITTED, COMMITTED), WHOLE)
    assert verdict == Verdict(lost=["p.1 of 2 records"], torn=[], aborted_read=[],
                              duplicated=[], reordered=[])  # fmt: skip
    assert not verdict.is_clean


def test_a_committed_transaction_without_records_is_not_lost() -> None:
    assert judge([Transaction("p", 0, COMMITTED, 0)], {}).is_clean


@pytest.mark.parametrize("outcomes", [(COMMITTED,), (UNKNOWN,), ()])
def test_a_transaction_with_a_part_of_its_records_is_torn(outcomes: tuple[Outcome, ...]) -> None:
    verdict = judge(history(*outcomes), {0: {7: "p.0.1.2"}})
    said = outcomes[0] if outcomes else UNKNOWN
    assert verdict.torn == [f"p.0 ({said}) at 0@7 without [0]"]
    assert verdict.lost == []


def test_a_record_of_an_aborted_transaction_is_an_aborted_read() -> None:
    verdict = judge(history(COMMITTED, ABORTED), {**WHOLE, 2: {9: "p.1.0.2"}})
    assert verdict.aborted_read == ["p.1 at 2@9"]
    assert verdict.torn == []


def test_an_unknown_transaction_may_be_there_or_not() -> None:
    assert judge(history(UNKNOWN, UNKNOWN), WHOLE).is_clean


def test_a_record_at_two_offsets_is_duplicated() -> None:
    verdict = judge(history(COMMITTED), {**WHOLE, 2: {4: "p.0.1.2"}})
    assert verdict.duplicated == ["p.0.1.2 at 1@5 and 2@4"]
    assert verdict.reordered == []


@pytest.mark.parametrize(
    "log, said",
    [
        ({1: "p.1.0.1", 2: "p.0.0.1"}, "p.0.0.1 at 0@2 after p.1.0.1"),
        ({1: "p.0.1.2", 2: "p.0.0.2"}, "p.0.0.2 at 0@2 after p.0.1.2"),
    ],
)
def test_records_of_a_producer_are_in_order(log: dict[int, str], said: str) -> None:
    verdict = judge([], {0: log})
    assert verdict.reordered == [said]


def test_records_of_two_producers_have_no_order() -> None:
    assert judge([], {0: {1: "p.9.0.1", 2: "q.3.0.1", 4: "p.10.0.1"}}).is_clean


LOG = {0: {0: "p.0.0.1", 2: "p.1.0.1", 4: "p.2.0.1"}}


def test_a_reader_has_read_each_committed_record_once() -> None:
    assert misreadings({0: [(0, "p.0.0.1"), (2, "p.1.0.1")]}, LOG) == []
    assert misreadings({0: [(2, "p.1.0.1"), (4, "p.2.0.1")]}, LOG) == []
    assert misreadings({0: [], 1: []}, LOG) == []


def test_a_reader_has_read_what_was_taken_back() -> None:
    said = misreadings({0: [(0, "p.0.0.1"), (1, "q.0.0.1"), (2, "p.1.0.1")]}, LOG)
    assert said == ["q.0.0.1 was read at 0@1, found None"]


def test_a_reader_was_passed_by_a_record_that_became_visible_below_it() -> None:
    said = misreadings({0: [(0, "p.0.0.1"), (4, "p.2.0.1")]}, LOG)
    assert said == ["p.1.0.1 at 0@2 was passed"]


def test_a_reader_went_back() -> None:
    said = misreadings({0: [(0, "p.0.0.1"), (2, "p.1.0.1"), (2, "p.1.0.1")]}, LOG)
    assert said == ["p.1.0.1 was read at 0@2 after offset 2"]


def test_a_copy_holds_what_the_committed_offset_covers() -> None:
    assert miscopies(LOG, {0: {0: "p.0.0.1", 3: "p.1.0.1"}}, {0: 3}) == []
    assert miscopies(LOG, {}, {}) == []


@pytest.mark.parametrize(
    "copy, said",
    [
        ({0: "p.0.0.1"}, "p.1.0.1 in partition 0 is not copied"),
        ({0: "p.0.0.1", 1: "p.1.0.1", 2: "p.0.0.1"}, "p.0.0.1 in partition 0 is there 2 times"),
        (
            {0: "p.0.0.1", 1: "p.1.0.1", 2: "p.2.0.1"},
            "p.2.0.1 in partition 0 is copied, the committed offset is 3",
        ),
        ({0: "p.1.0.1", 1: "p.0.0.1"}, "p.1.0.1 in partition 0 is copied before p.0.0.1"),
    ],
)
def test_a_copy_and_its_offsets_that_differ_are_found(copy: dict[int, str], said: str) -> None:
    assert miscopies(LOG, {0: copy}, {0: 3}) == [said]


def test_what_a_producer_prints_is_read_again() -> None:
    each = Transaction("ours-1", 7, UNKNOWN, 3, 12.5, 0.25)
    text = f"%3|a line of a library|\n{report_line(each)}\n1 2 3 4 5 6\nours-1 8 comm"
    assert transactions_of(text) == [each]


def test_a_value_names_its_transaction_and_its_place_there() -> None:
    value = value_of("ours.1.7.0.3")
    assert (value.producer, value.number, value.place, value.size) == ("ours.1", 7, 0, 3)
    assert str(value) == "ours.1.7.0.3"
    with pytest.raises(ValueError, match="unpack"):
        value_of("nothing")
