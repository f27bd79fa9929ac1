"""`make test` and `make release`: run parts one after another and print the minutes of each.

A part is a target of the Makefile, with its variables if it has any: `local-suites`,
`"sim SEEDS=50000"`. It is left out, with the reason, where this machine cannot run it or where
what it needs could not be built. Under continuous integration (CI=true) that is a failure.
"""

import argparse
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path

from e2e.harness.results import ROOT, store
from e2e.lab.machine import obstacle

PYTEST_FAILED = ("FAILED ", "ERROR ")
"""Lines of pytest's summary that name a failed test begin so; they are printed again at the end."""

OBSTACLES: dict[str, Callable[[], str | None]] = {
    "build": obstacle,
    "e2e": obstacle,
    "e2e-full": obstacle,
}
"""Returns why this machine cannot run the part, or None."""
BUILDERS = ("tools", "jars", "build")
"""These build or fetch what other parts use, once per version."""
BUILT_BY = {"apiserver": "tools", "e2e": "build", "e2e-full": "build"}
"""Part -> the builder that it needs."""


@dataclass(frozen=True, slots=True)
class Row:
    """result: `ok`, or text that begins with `left out` or `FAILED`. load: average at the end."""

    part: str
    minutes: float
    result: str
    load: float


def why_not(part: str, broken: set[str]) -> str | None:
    """Return why a part cannot run here, or None. broken: earlier parts that failed."""
    reason = OBSTACLES[part]() if part in OBSTACLES else None
    if reason is None and BUILT_BY.get(part) in broken:
        return f"make {BUILT_BY[part]} failed"
    return reason


def make(part: str, failed: list[str]) -> int:
    """Return the exit code of `make PART`; lines that name failed tests are added to `failed`."""
    command = ["make", "--no-print-directory", *part.split()]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace"
    ) as process:
        assert process.stdout is not None
        for line in process.stdout:
            print(line, end="", flush=True)
            if line.startswith(PYTEST_FAILED):
                failed.append(f"{part}: {line.rstrip()}")
    return process.returncode


def run_part(part: str, broken: set[str], failed: list[str], *, is_ci: bool) -> Row:
    missing = "FAILED" if is_ci else "left out"
    reason = why_not(part, broken)
    if reason is not None:
        return Row(part, 0.0, f"{missing}: {reason}", os.getloadavg()[0])
    print(f"\n=== {part}", flush=True)
    started = time.monotonic()
    code = make(part, failed)
    minutes = (time.monotonic() - started) / 60
    result = "ok"
    if code != 0:
        result = f"{missing if part in BUILDERS else 'FAILED'} ({code})"
    return Row(part, minutes, result, os.getloadavg()[0])


def table(rows: list[Row]) -> str:
    """Return a line per part, and their sum."""
    lines = [f"{'part':<24} minutes  load  result"]
    lines += [f"{row.part:<24} {row.minutes:>7.1f}  {row.load:>4.1f}  {row.result}" for row in rows]
    building = sum(row.minutes for row in rows if row.part in BUILDERS)
    total = sum(row.minutes for row in rows)
    lines.append(f"{'all':<24} {total:>7.1f}        {building:.1f} of them build once per version")
    return "\n".join(lines)


def commit() -> str:
    """Return the commit of the sources, marked if files have changed since."""
    command = ["git", "describe", "--always", "--dirty", "--abbrev=12", "--match="]
    return subprocess.run(
        command, cwd=ROOT, check=True, capture_output=True, text=True
    ).stdout.strip()


def main(arguments: list[str]) -> int:
    """Run each part, also after a failure. Returns 1 if a part failed."""
    parser = argparse.ArgumentParser(prog="e2e.parts", description=__doc__)
    parser.add_argument(
        "--into", type=Path, help="store the rows under the commit in this JSON file"
    )
    parser.add_argument("parts", nargs="+")
    chosen = parser.parse_args(arguments)
    # A shell ignores SIGINT for what it starts in the background, and the tests' programs would
    # inherit that; some tests interrupt them.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    rows: list[Row] = []
    failed: list[str] = []
    began = {"commit": commit(), "began": f"{datetime.now(UTC):%Y-%m-%d %H:%M}"}
    for part in chosen.parts:
        broken = {row.part for row in rows if row.result != "ok"}
        rows.append(run_part(part, broken, failed, is_ci=os.environ.get("CI") == "true"))
        if chosen.into is not None:
            entry = began | {"parts": [asdict(row) for row in rows], "failed": failed}
            store(chosen.into, began["commit"], entry)
    print("", *failed, sep="\n")
    print(f"\n{table(rows)}")
    return int(any(row.result.startswith("FAILED") for row in rows))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
