"""What adds up over rounds of transactions under faults."""

from e2e.load.transactions.__main__ import WANTED, added, stalls_of
from e2e.load.transactions.checker import Outcome, Transaction, Verdict
from e2e.load.transactions.faults import TRANSACTION_FAULTS
from e2e.load.transactions.round import Outcomes
from e2e.load.verdict import Fault


def outcomes(*rows: tuple[str, Outcome, float, float]) -> Outcomes:
    """Rows of producer, outcome, end and duration; a fault lasts from second 10 to 20."""
    found = [
        Transaction(producer, number, outcome, 1, ended_s, took_s)
        for number, (producer, outcome, ended_s, took_s) in enumerate(rows)
    ]
    fault = Fault("SIGSTOP", "2", 10.0, 20.0, frozenset())
    return Outcomes(found, Verdict(), [fault], {"copier-1": 7, "copier-2": 8})


def test_the_stall_of_a_fault_is_the_longest_transaction_that_ended_in_its_time() -> None:
    found = outcomes(
        ("ours-1-0", Outcome.COMMITTED, 9.0, 8.0),
        ("ours-1-0", Outcome.COMMITTED, 12.0, 1.5),
        ("ours-1-11", Outcome.ABORTED, 19.0, 4.25),
        ("java-0", Outcome.COMMITTED, 20.0, 9.0),
    )
    assert stalls_of(found) == {"ours-1": {"SIGSTOP": [4.25]}}


def test_rounds_add_up() -> None:
    one = outcomes(("java-0", Outcome.COMMITTED, 12.0, 1.0), ("java-0", Outcome.ABORTED, 13.0, 1.0))
    other = outcomes(("java-0", Outcome.UNKNOWN, 12.0, 2.0))
    entry = added(added({}, ["SIGSTOP"], one), ["SIGSTOP", "SIGTERM"], other)
    counts = {key: entry[key] for key in ("rounds", "committed", "aborted", "unknown")}
    assert counts == {"rounds": 2, "committed": 1, "aborted": 1, "unknown": 1}
    assert entry["records_copied"] == 30
    assert entry["faults"] == {"SIGSTOP": 2, "SIGTERM": 1}
    assert entry["stalls_s"] == {"java": {"SIGSTOP": [1.0, 2.0]}}


def test_what_is_wanted_can_be_done() -> None:
    assert WANTED.keys() <= TRANSACTION_FAULTS.keys()
    assert sum(WANTED.values()) == 60
