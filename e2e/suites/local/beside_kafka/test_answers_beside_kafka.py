"""The share of `make oracle` that takes seconds: every version that is advertised, and all that is read of topics.

In the order of files it comes before the other user of these two brokers, whose topics are not as large on both.
"""

import contextlib

import pytest

from e2e.compare.__main__ import LIST, run
from e2e.compare.brokers import Pair
from e2e.compare.corpora import all_corpora
from e2e.compare.report import tell
from e2e.compare.reviewed import ReviewedList
from e2e.compare.runs import Oracle

pytestmark = [pytest.mark.xdist_group("beside-kafka"), pytest.mark.timeout(900)]


@pytest.mark.parametrize("corpus", ["versions", "reading"])
def test_answers_differ_from_kafkas_only_as_listed(beside: Pair, corpus: str) -> None:
    reviewed = ReviewedList.parse(LIST.read_text())
    with contextlib.closing(Oracle(beside, reviewed, tell)) as oracle:
        (tally,) = run(all_corpora(beside, 0), f"^{corpus}/", oracle).values()
    assert tally.cases > 50
    assert not tally.broken
    assert not tally.unlisted
