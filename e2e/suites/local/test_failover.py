"""A share of `make failover`: three replicas, brokers killed and told to stop under four clients."""

from pathlib import Path

from e2e.load.fleet.round import run_round

FAULTS = ("SIGKILL leader", "SIGTERM", "SIGKILL controller")


def test_no_acknowledged_record_is_lost_when_brokers_die_and_leave(tmp_path: Path) -> None:
    outcome = run_round(tmp_path, 1, FAULTS)
    assert outcome.verdict.is_clean, outcome.verdict
    assert outcome.commits_back == []
    assert outcome.unlike == []
    assert outcome.failed == []
    assert outcome.acknowledged > 1_000
