"""A share of `make failover`: transactions of four clients while brokers are killed and stop."""

from pathlib import Path

import pytest

from e2e.load.transactions.checker import Outcome
from e2e.load.transactions.round import FEW, run_round

FAULTS = ("SIGKILL leader", "SIGTERM", "SIGKILL coordinator")


@pytest.mark.timeout(300)
def test_transactions_are_whole_or_not_there_when_brokers_die_and_leave(tmp_path: Path) -> None:
    outcomes = run_round(tmp_path, 1, FAULTS, FEW, seen_s=2)
    assert outcomes.verdict.is_clean, outcomes.verdict
    assert outcomes.count(Outcome.COMMITTED) > 100
    assert outcomes.count(Outcome.ABORTED) > 10
    assert {each.producer.rpartition("-")[0] for each in outcomes.transactions} == {
        "confluent",
        "java",
        "ours-1",
        "ours-2",
    }
    assert min(outcomes.copied.values()) > 100
