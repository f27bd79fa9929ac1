"""Ten deaths of a broker under the mixed load; `make soak` goes through hundreds of them."""

from pathlib import Path

import pytest

from e2e.load.disk.round import run_round


@pytest.mark.timeout(300)  # half a minute on a machine of its own
def test_ten_kills_lose_repeat_and_turn_back_nothing(tmp_path: Path) -> None:
    figures = run_round(tmp_path, seed=1, kills=10)
    print(figures)
    assert figures.kills >= 10
    assert min(figures.records, figures.commits, figures.deletions, figures.compactions) > 0
