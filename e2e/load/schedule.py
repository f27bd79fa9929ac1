"""Rounds that add up: what a schedule went through is kept in a file of results under the hash of the sources.

So a run can be ended at any time and gone on with; each round has its own seed. A round that fails leaves its directory and names it.
"""

import shutil
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from e2e.harness.results import entry_of, source_key, store

Entry = dict[str, Any]
FAULTS_PER_ROUND = 12


def run_rounds(
    name: str,
    kept: Path,
    sources: Sequence[str],
    next_round: Callable[[Entry, int, Path], Entry | None],
    *,
    is_done: Callable[[Entry], bool],
) -> Entry | None:
    """Run rounds until the entry is done, and return it; None after a round that failed.

    next_round: takes the entry so far, a seed and an empty directory. It returns the entry with the
    round added, or None after a failure, which it has printed.
    """
    key = source_key(*sources)
    entry = entry_of(kept, key)
    while not is_done(entry):
        seed = entry.get("rounds", 0) + 1
        directory = Path(tempfile.mkdtemp(prefix=f"logfleet-{name}-{seed}-"))
        found = next_round(entry, seed, directory)
        if found is None:
            print(f"round {seed} FAILED, see {directory}")
            return None
        shutil.rmtree(directory)
        entry = found
        store(kept, key, entry)
    return entry


def due(entry: Entry, wanted: dict[str, int]) -> list[str]:
    """The faults of the next round: of each kind its share of what is missing."""
    done = entry.get("faults", {})
    missing = {kind: count - done.get(kind, 0) for kind, count in wanted.items()}
    kinds: list[str] = []
    while len(kinds) < FAULTS_PER_ROUND and any(count > 0 for count in missing.values()):
        kind = max(missing, key=lambda each: missing[each])
        missing[kind] -= 1
        kinds.append(kind)
    return kinds
