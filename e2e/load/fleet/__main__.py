"""`make failover`: brokers and etcd killed, stopped and left, disks full and failing, under idempotent acks=all producers of four clients.

Then every acknowledged record is looked for, and Kafka's dump tool has to find the same batches in all replicas. Disks take root to mount.

What was gone through adds up in e2e/results/failover.json, see `e2e.load.schedule`.
"""

import argparse
import os
import sys
from pathlib import Path

from e2e.harness.results import RESULTS
from e2e.load.fleet.faults import FAULTS
from e2e.load.fleet.round import Outcome, run_round
from e2e.load.schedule import Entry, due, run_rounds
from e2e.load.verdict import percentile

STORE = RESULTS / "failover.json"
SOURCES = (
    "broker_image/src",
    "broker_image/requirements.lock",
    ":(glob)e2e/load/*.py",
    "e2e/load/fleet",
)
WANTED = {
    "SIGKILL leader": 40,
    "SIGKILL follower": 20,
    "SIGKILL controller": 40,
    "SIGTERM": 20,
    "SIGSTOP": 20,
    "etcd member": 3,
    "etcd": 3,
    "etcd for 5 minutes": 1,
    "disk full": 3,
    "EIO": 3,
    "old volume": 3,
}
PROBE = "probe"
"""The one client that does not wait for its default timeouts."""
DEFAULTS = "all defaults"


def added(entry: Entry, kinds: list[str], outcome: Outcome) -> Entry:
    """The entry with one more round in it. gaps: seconds by client, kind, and whether the victim led the partition."""
    done = dict(entry.get("faults", {}))
    for kind in kinds:
        done[kind] = done.get(kind, 0) + 1
    seconds = {name: dict(rows) for name, rows in entry.get("gaps", {}).items()}
    for client, found in outcome.gaps.items():
        rows = seconds.setdefault(client, {})
        for gap in found:
            role = "led" if gap.partition in gap.fault.partitions else "others"
            rows.setdefault(f"{gap.fault.kind}, {role}", []).append(round(gap.seconds, 3))
    return {
        "rounds": entry.get("rounds", 0) + 1,
        "acknowledged": entry.get("acknowledged", 0) + outcome.acknowledged,
        "failed_sends": entry.get("failed_sends", 0) + len(outcome.failed),
        "faults": done,
        "load_average": round(os.getloadavg()[0], 1),
        "gaps": seconds,
    }


def of_defaults(seconds: dict[str, dict[str, list[float]]]) -> dict[str, list[float]]:
    """The gaps of all clients with their default timeouts together, by fault and partitions."""
    together: dict[str, list[float]] = {}
    for client, rows in seconds.items():
        if client != PROBE:
            for name, values in rows.items():
                together.setdefault(name, []).extend(values)
    return together


def show(entry: Entry) -> None:
    print(
        f"{entry['acknowledged']:,} records acknowledged, {entry['failed_sends']} sends failed; faults {entry['faults']}"
    )
    print(
        f"{'client':<12} {'fault and partitions':<32} {'p50':>8} {'p99':>8} {'most':>8}  seconds without an answer"
    )
    together = {DEFAULTS: of_defaults(entry["gaps"])}
    for client, rows in [*sorted(entry["gaps"].items()), *together.items()]:
        for name, values in sorted(rows.items()):
            p50, p99 = percentile(values, 0.5), percentile(values, 0.99)
            print(f"{client:<12} {name:<32} {p50:>8.3f} {p99:>8.3f} {max(values):>8.3f}")


def next_round(entry: Entry, seed: int, directory: Path, wanted: dict[str, int]) -> Entry | None:
    kinds = due(entry, wanted)
    print(f"round {seed}: {', '.join(kinds)}", flush=True)
    outcome = run_round(directory, seed, kinds)
    if not outcome.is_clean:
        for name, found in outcome.verdict._asdict().items():
            print(f"{name}: {len(found)}", *found[:20], sep="\n  ")
        print("commits that went back:", *outcome.commits_back[:20], sep="\n  ")
        print("replicas that differ:", *outcome.unlike[:20], sep="\n  ")
        return None
    for reason in outcome.failed[:5]:
        print(f"  failed send: {reason}")
    return added(entry, kinds, outcome)


def main() -> int:
    parser = argparse.ArgumentParser(prog="make failover", description=__doc__)
    parser.add_argument("--only", help="part of a fault's name")
    parser.add_argument("--count", type=int, help="of each kind of fault, with earlier runs")
    asked = parser.parse_args()
    wanted = {
        kind: asked.count or count
        for kind, count in WANTED.items()
        if asked.only is None or asked.only in kind
    }
    assert wanted.keys() <= FAULTS.keys()
    entry = run_rounds(
        "failover",
        STORE,
        SOURCES,
        lambda entry, seed, directory: next_round(entry, seed, directory, wanted),
        is_done=lambda entry: not due(entry, wanted),
    )
    if entry is None:
        return 1
    show(entry)
    return 0


if __name__ == "__main__":
    sys.exit(main())
