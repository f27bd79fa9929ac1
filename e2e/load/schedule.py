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
