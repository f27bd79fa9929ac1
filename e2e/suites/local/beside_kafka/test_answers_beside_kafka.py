"""The share of `make oracle` that takes seconds: every version that is advertised, all that is read of topics, transactions, and what clients seldom send.

In the order of files it comes before the other user of these two brokers, whose topics are not as large on both.
"""

import contextlib

import pytest

from e2e.compare.__main__ import LIST, run
from e2e.compare.all_corpora import all_corpora
from e2e.compare.brokers import Pair
from e2e.compare.report import tell
from e2e.compare.reviewed import ReviewedList
from e2e.compare.runs import Oracle

CASES_LEAST = {
    "versions": 51,
    "reading": 51,
    "batches": 25,
    "sessions": 15,
    "texts": 8,
    "topic-ids": 10,
    "refusals": 11,
    "edges": 5,
    "transactions": 60,
    "transactions-records": 63,
    "transactions-offsets": 27,
}
pytestmark = [pytest.mark.xdist_group("beside-kafka"), pytest.mark.timeout(900)]


@pytest.mark.parametrize("corpus", CASES_LEAST)
def test_answers_differ_from_kafkas_only_as_listed(beside: Pair, corpus: str) -> None:
    reviewed = ReviewedList.parse(LIST.read_text())
    with contextlib.closing(Oracle(beside, reviewed, tell)) as oracle:
        (tally,) = run(all_corpora(beside, 0), f"^{corpus}/", oracle).values()
    assert tally.cases >= CASES_LEAST[corpus]
    assert not tally.broken
    assert not tally.unlisted
