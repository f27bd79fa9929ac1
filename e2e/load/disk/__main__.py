"""`make soak`: kills brokers under the mixed load, round after round, until KILLS of them have died over these sources.

What was gone through adds up in e2e/results/soak.json under the hash of the sources, so a run can be ended at any time and gone on with;
each round has its own seed. A round that fails leaves its directory and names it.
"""

import argparse
import shutil
import sys
import tempfile
from pathlib import Path
from typing import Any

from e2e.harness.program import ProgramFailed
from e2e.harness.results import RESULTS, entry_of, source_key, store
from e2e.load.disk.round import Figures, SoakFailed, run_round

STORE = RESULTS / "soak.json"
SOURCES = (
    "broker_image/src",
    "broker_image/requirements.lock",
    "broker_image/tests/sim/rebuild.py",
    "e2e/load/disk",
)
KILLS = 200
KILLS_PER_ROUND = 10


def added(entry: dict[str, Any], figures: Figures) -> dict[str, Any]:
    """The entry with one more round in it."""
    sums = {name: round(entry.get(name, 0) + value, 1) for name, value in figures._asdict().items()}
    return {"rounds": entry.get("rounds", 0) + 1, **sums}


def main() -> int:
    parser = argparse.ArgumentParser(prog="make soak", description=__doc__)
    parser.add_argument("--kills", type=int, default=KILLS, help="in all, with earlier runs")
    kills = parser.parse_args().kills
    key = source_key(*SOURCES)
    entry = entry_of(STORE, key)
    while entry.get("kills", 0) < kills:
        seed = entry.get("rounds", 0) + 1
        directory = Path(tempfile.mkdtemp(prefix=f"logfleet-soak-{seed}-"))
        try:
            figures = run_round(directory, seed, KILLS_PER_ROUND)
        except (SoakFailed, ProgramFailed) as error:
            print(f"round {seed} FAILED, see {directory}:\n{error}")
            return 1
        shutil.rmtree(directory)
        entry = added(entry, figures)
        store(STORE, key, entry)
        print(f"round {seed}: {figures}; {entry['kills']} of {kills} kills", flush=True)
    print(entry)
    return 0


if __name__ == "__main__":
    sys.exit(main())
