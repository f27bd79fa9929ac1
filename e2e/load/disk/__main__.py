"""`make soak`: kills brokers under the mixed load, round after round, until KILLS of them have died over these sources.

What was gone through adds up in e2e/results/soak.json, see `e2e.load.schedule`.
"""

import argparse
import sys
from pathlib import Path

from e2e.harness.program import ProgramFailed
from e2e.harness.results import RESULTS
from e2e.load.disk.round import Figures, SoakFailed, run_round
from e2e.load.schedule import Entry, run_rounds

STORE = RESULTS / "soak.json"
SOURCES = (
    "broker_image/src",
    "broker_image/requirements.lock",
    "broker_image/tests/sim/rebuild.py",
    "e2e/load/disk",
    "e2e/load/schedule.py",
)
KILLS = 200
KILLS_PER_ROUND = 10


def added(entry: Entry, figures: Figures) -> Entry:
    """The entry with one more round in it."""
    sums = {name: round(entry.get(name, 0) + value, 1) for name, value in figures._asdict().items()}
    return {"rounds": entry.get("rounds", 0) + 1, **sums}


def next_round(entry: Entry, seed: int, directory: Path) -> Entry | None:
    try:
        figures = run_round(directory, seed, KILLS_PER_ROUND)
    except (SoakFailed, ProgramFailed) as error:
        print(error)
        return None
    entry = added(entry, figures)
    print(f"round {seed}: {figures}; {entry['kills']} kills", flush=True)
    return entry


def main() -> int:
    parser = argparse.ArgumentParser(prog="make soak", description=__doc__)
    parser.add_argument("--kills", type=int, default=KILLS, help="in all, with earlier runs")
    kills = parser.parse_args().kills
    entry = run_rounds(
        "soak", STORE, SOURCES, next_round, is_done=lambda found: found.get("kills", 0) >= kills
    )
    print(entry or "")
    return 0 if entry is not None else 1


if __name__ == "__main__":
    sys.exit(main())
