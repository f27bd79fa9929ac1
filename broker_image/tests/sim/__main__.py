"""`make sim SEEDS=n`: so many seeds on two processes, and with MUTANTS=1 the seeds at which each mutant is found.

Prints what went wrong, shrunk, and how often each thing worth testing has happened; counts add up in e2e/results/sim.json.
"""

import argparse
import multiprocessing
import sys
import time
from collections import Counter

import msgspec

from broker_image.tests.sim.labels import LABELS
from broker_image.tests.sim.mutant import SEEDS_MAX, found
from broker_image.tests.sim.mutants import BY_SEED
from broker_image.tests.sim.report import report_of
from broker_image.tests.sim.simulation import drawn_case, run
from e2e.harness.results import RESULTS, entry_of, source_key, store

STORE = RESULTS / "sim.json"
OPERATOR = "operator/src/logfleet_operator/clusters"
SOURCES = (
    "broker_image/src",
    "broker_image/tests/sim",
    f"{OPERATOR}/may_i.py",
    f"{OPERATOR}/rollout.py",
)
PROCESSES = 2
SHARE = 25
SHOWN_MAX = 3
LABELS_SEEDS_MIN = 2_000


class Share(msgspec.Struct):
    """What came of some seeds. seconds: of processor time."""

    labels: Counter[str]
    failed: list[tuple[int, str]]
    seconds: float


def run_share(seeds: range) -> Share:
    began_s = time.process_time()
    share = Share(Counter(), [], 0.0)
    for seed in seeds:
        outcome = run(drawn_case(seed))
        share.labels.update(outcome.labels.keys())
        if outcome.failure is not None:
            share.failed.append((seed, outcome.failure))
    share.seconds = time.process_time() - began_s
    return share


def find(number: int) -> tuple[str, tuple[int, str] | None]:
    return BY_SEED[number].name, found(BY_SEED[number], range(SEEDS_MAX))


def main() -> int:
    parser = argparse.ArgumentParser(prog="make sim", description=__doc__)
    parser.add_argument("--seeds", type=int, default=6_000)
    parser.add_argument(
        "--first",
        type=int,
        help="begin there and store nothing; else where the last run over these sources ended",
    )
    parser.add_argument("--mutants", action="store_true")
    arguments = parser.parse_args()
    key = source_key(*SOURCES)
    entry = entry_of(STORE, key)
    first = entry.get("seeds", 0) if arguments.first is None else arguments.first
    seeds = range(first, first + arguments.seeds)
    shares = [seeds[start : start + SHARE] for start in range(0, len(seeds), SHARE)]
    labels, failed, seconds, found_at = Counter[str](), list[tuple[int, str]](), 0.0, {}
    with multiprocessing.Pool(PROCESSES) as pool:
        for share in pool.imap(run_share, shares):
            labels += share.labels
            failed += share.failed
            seconds += share.seconds
        for name, at in pool.imap(find, range(len(BY_SEED))) if arguments.mutants else ():
            print(f"{name}: {'NOT FOUND' if at is None else f'seed {at[0]}, {at[1][:100]}'}")
            found_at[name] = None if at is None else at[0]
    for label in LABELS:
        print(f"{labels[label]:>7} {label}{'' if labels[label] else '   NEVER'}")
    rate = len(seeds) / max(seconds, 1e-9)
    print(
        f"{len(seeds)} seeds from {first} on, {rate:.0f} per second and core, {len(failed)} failed"
    )
    for seed, failure in failed[:SHOWN_MAX]:
        print(f"\n{report_of(seed) or failure}")
    missed = [label for label in LABELS if not labels[label] and len(seeds) >= LABELS_SEEDS_MIN]
    if failed or missed or None in found_at.values():
        return 1
    if arguments.first is not None:
        return 0
    entry = {
        **entry,
        "seeds": seeds.stop,
        "seeds_per_s_and_core": round(rate) or entry.get("seeds_per_s_and_core", 0),
        "labels": dict(sorted((Counter(entry.get("labels", {})) + labels).items())),
        "mutants": {**entry.get("mutants", {}), **found_at},
    }
    store(STORE, key, entry)
    return 0


if __name__ == "__main__":
    sys.exit(main())
