"""`make fuzz`: EXAMPLES hostile inputs to the dispatcher in this process, as many to a broker over TCP, and frames full of
tiny elements.

Each run over the same sources has a seed of its own, and its counts are added to those in e2e/results/fuzz.json.
"""

import argparse
import sys
import tempfile
from collections import Counter
from pathlib import Path
from typing import Any

from e2e.fuzz.in_process import fuzz_in_process
from e2e.fuzz.judge import Tally
from e2e.fuzz.over_tcp import crowds_over_tcp, fuzz_over_tcp
from e2e.harness.processes import Rig
from e2e.harness.results import RESULTS, entry_of, source_key, store

STORE = RESULTS / "fuzz.json"
SOURCES = ("broker_image/src", "broker_image/requirements.lock", "e2e/fuzz")
EXAMPLES = 100_000
FAULTS_SHOWN = 20


def added(entry: dict[str, Any], name: str, tally: Tally) -> dict[str, Any]:
    """The entry with this tally's counts in what it holds under `name`."""
    before = entry.get(name, {})
    return {
        **entry,
        name: {
            "inputs": before.get("inputs", 0) + tally.inputs,
            "input_bytes": before.get("input_bytes", 0) + tally.input_bytes,
            "outcomes": dict(
                sorted((Counter(before.get("outcomes", {})) + tally.outcomes).items())
            ),
            "api_versions": max(before.get("api_versions", 0), len(tally.apis)),
            "faults": 0,
        },
    }


def main() -> int:
    parser = argparse.ArgumentParser(prog="make fuzz", description=__doc__)
    parser.add_argument("--examples", type=int, default=EXAMPLES, help="inputs to each of the two")
    parser.add_argument(
        "--seed", type=int, help="again as in the run that had it; nothing is stored"
    )
    arguments = parser.parse_args()
    key = source_key(*SOURCES)
    entry = entry_of(STORE, key)
    seed = arguments.seed or entry.get("runs", 0) + 1
    with tempfile.TemporaryDirectory(prefix="logfleet-fuzz-") as scratch:
        tallies = {"dispatcher": fuzz_in_process(Path(scratch), seed, arguments.examples)}
        rig = Rig(Path(scratch) / "tcp")
        try:
            result = fuzz_over_tcp(rig, seed, arguments.examples)
            crowds = crowds_over_tcp(rig)
        finally:
            rig.close()
        tallies["tcp"] = result.tally
        tallies["crowds"] = crowds.tally
    for name, tally in tallies.items():
        print(
            f"{name}: {tally.inputs} inputs, {len(tally.apis)} API versions, {dict(tally.outcomes)}"
        )
        for fault in tally.faults[:FAULTS_SHOWN]:
            print(f"  FAULT (seed {seed}) {fault}")
        entry = added(entry, name, tally)
    growth = max(result.rss_growth_bytes, entry.get("rss_growth_bytes_max", 0))
    peak = max(crowds.rss_growth_bytes, entry.get("crowds_rss_peak_bytes_max", 0))
    print(
        f"the broker grew by {result.rss_growth_bytes} bytes; full frames took {peak} at the peak"
    )
    if any(tally.faults for tally in tallies.values()):
        return 1
    if arguments.seed is None:
        runs = entry.get("runs", 0) + 1
        store(
            STORE,
            key,
            {
                **entry,
                "runs": runs,
                "rss_growth_bytes_max": growth,
                "crowds_rss_peak_bytes_max": peak,
            },
        )
    return 0


if __name__ == "__main__":
    sys.exit(main())
