"""`make failover`, second part: brokers killed, stopped and left under transactions of four clients.

Three copiers of records and a group's offsets run beside them, ours by each protocol and Kafka's. Then
each transaction has to be visible whole or not at all, as its producer was answered. What was gone
through adds up in e2e/results/failover-transactions.json, see `e2e.load.schedule`.
"""

import argparse
import os
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from e2e.harness.results import RESULTS
from e2e.load.schedule import Entry, due, run_rounds
from e2e.load.transactions.checker import Outcome
from e2e.load.transactions.faults import TRANSACTION_FAULTS
from e2e.load.transactions.round import Outcomes, run_round
from e2e.load.verdict import percentile

STORE = RESULTS / "failover-transactions.json"
SOURCES = (
    "broker_image/src",
    "broker_image/requirements.lock",
    ":(glob)e2e/load/*.py",
    "e2e/load/fleet",
    "e2e/load/transactions",
)
WANTED = {
    "SIGKILL leader": 16,
    "SIGKILL coordinator": 16,
    "SIGKILL controller": 8,
    "SIGTERM": 10,
    "SIGSTOP": 8,
    "old volume": 2,
}
SHOWN_MAX = 20


def added(entry: Entry, kinds: Sequence[str], found: Outcomes) -> Entry:
    """The entry with one more round in it. stalls_s: by client, the longest transaction of each fault."""
    done = dict(entry.get("faults", {}))
    for kind in kinds:
        done[kind] = done.get(kind, 0) + 1
    stalls = {client: dict(rows) for client, rows in entry.get("stalls_s", {}).items()}
    for client, rows in stalls_of(found).items():
        known = stalls.setdefault(client, {})
        for kind, seconds in rows.items():
            known[kind] = [*known.get(kind, []), *seconds]
    return {
        "rounds": entry.get("rounds", 0) + 1,
        **{each.value: entry.get(each.value, 0) + found.count(each) for each in Outcome},
        "records_copied": entry.get("records_copied", 0) + sum(found.copied.values()),
        "faults": done,
        "load_average": round(os.getloadavg()[0], 1),
        "stalls_s": stalls,
    }


def stalls_of(found: Outcomes) -> dict[str, dict[str, list[float]]]:
    """By client and kind of fault: seconds of the longest transaction that ended during each."""
    stalls: dict[str, dict[str, list[float]]] = {}
    for fault in found.faults:
        longest: dict[str, float] = {}
        for each in found.transactions:
            if fault.from_s <= each.ended_s < fault.to_s:
                client = each.producer.rpartition("-")[0]
                longest[client] = max(longest.get(client, 0.0), each.took_s)
        for client, seconds in longest.items():
            stalls.setdefault(client, {}).setdefault(fault.kind, []).append(round(seconds, 3))
    return stalls


def show(entry: Entry) -> None:
    """Print what was gone through."""
    counts = ", ".join(f"{entry[each.value]:,} {each}" for each in Outcome)
    print(f"transactions: {counts}; {entry['records_copied']:,} records copied")
    print(f"faults: {entry['faults']}")
    print(f"{'client':<12} {'fault':<24} {'p50':>8} {'most':>8}  seconds, longest transaction")
    for client, rows in sorted(entry["stalls_s"].items()):
        for kind, seconds in sorted(rows.items()):
            print(f"{client:<12} {kind:<24} {percentile(seconds, 0.5):>8.2f} {max(seconds):>8.2f}")


def next_round(entry: Entry, seed: int, directory: Path, wanted: dict[str, int]) -> Entry | None:
    """The entry with one more round; None, after it was printed, if a transaction did not hold."""
    kinds = due(entry, wanted)
    print(f"round {seed}: {', '.join(kinds)}", flush=True)
    found = run_round(directory, seed, kinds)
    counts = ", ".join(f"{found.count(each):,} {each}" for each in Outcome)
    print(f"  {counts}; copied {dict(found.copied)}", flush=True)
    if found.verdict.is_clean:
        return added(entry, kinds, found)
    for name, cases in found.verdict._asdict().items():
        print(f"{name}: {len(cases)}", *cases[:SHOWN_MAX], sep="\n  ")
    return None


def main() -> int:
    parser = argparse.ArgumentParser(prog="make failover", description=__doc__)
    parser.add_argument("--only", help="part of a fault's name")
    parser.add_argument("--count", type=int, help="of each kind of fault, with earlier runs")
    parser.add_argument("--minutes", type=float, help="no round begins after so many")
    asked = parser.parse_args()
    wanted = {
        kind: asked.count or count
        for kind, count in WANTED.items()
        if asked.only is None or asked.only in kind
    }
    assert wanted.keys() <= TRANSACTION_FAULTS.keys()
    until_s = time.monotonic() + 60 * asked.minutes if asked.minutes else float("inf")
    entry = run_rounds(
        "failover-transactions",
        STORE,
        SOURCES,
        lambda entry, seed, directory: next_round(entry, seed, directory, wanted),
        is_done=lambda entry: not due(entry, wanted) or time.monotonic() > until_s,
    )
    if entry is None:
        return 1
    if entry:
        show(entry)
    return 0


if __name__ == "__main__":
    sys.exit(main())
