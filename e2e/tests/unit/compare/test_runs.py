"""What the answers of a case, side by side, come to."""

from e2e.compare.differences import ABSENT, Difference
from e2e.compare.reviewed import Place
from e2e.compare.runs import Finding, Tally, findings
from e2e.compare.side import Seen


def test_answers_are_compared_in_their_order_also_those_that_one_side_lacks() -> None:
    kafka = [Seen("Produce", 9, "first", {"a": 1}), Seen("Fetch", 4, "second", {"b": 1})]
    ours = [Seen("Produce", 9, "first", {"a": 2})]
    assert list(findings("c/x", kafka, ours)) == [
        Finding(Place("c/x", "Produce", 9), "first", Difference("a", 1, 2)),
        Finding(Place("c/x", "Fetch", 4), "second", Difference("answer", {"b": 1}, ABSENT)),
    ]


def test_a_corpus_without_cases_is_not_green() -> None:
    assert not Tally().is_green
    assert Tally(cases=1).is_green
    assert not Tally(cases=1, broken=["x"]).is_green
