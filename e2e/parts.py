"""`make test`: runs the parts one after another, prints minutes per part and what failed in them, fails if one failed.

A part that this machine cannot run, or for which it could not build what the part needs, is left out and said so in one line; under
continuous integration (CI=true) that is a failure.
"""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable

from e2e.lab.machine import obstacle

Row = tuple[str, float, str]

PYTEST_FAILED = ("FAILED ", "ERROR ")
"""How the lines of pytest's summary begin that name a failed test; they are said again at the end, as what is kept of a long run's output is often that."""

OBSTACLES: dict[str, Callable[[], str | None]] = {"build": obstacle, "e2e": obstacle}
"""Part -> why this machine cannot run it, if it cannot."""
BUILDERS = ("tools", "jars", "build")
"""What makes or fetches, once per version, what other parts use; the minutes of these are told apart."""
BUILT_BY = {"apiserver": "tools", "e2e": "build"}
"""Part -> the builder without which nothing of it can be run."""


def why_not(part: str, broken: set[str]) -> str | None:
    """Why a part cannot be run on this machine, if it cannot. broken: parts before it that did not end well."""
    reason = OBSTACLES[part]() if part in OBSTACLES else None
    if reason is None and BUILT_BY.get(part) in broken:
        return f"make {BUILT_BY[part]} failed"
    return reason


def make(part: str, failed: list[str]) -> int:
    """The exit code of `make PART`, whose output is passed on; the lines that name failed tests are added to `failed`."""
    command = ["make", "--no-print-directory", part]
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
    """(part, minutes, result); the result is `ok`, or begins with `left out` or `FAILED`. failed: see `make`."""
    missing = "FAILED" if is_ci else "left out"
    reason = why_not(part, broken)
    if reason is not None:
        return (part, 0.0, f"{missing}: {reason}")
    print(f"\n=== {part}", flush=True)
    started = time.monotonic()
    code = make(part, failed)
    minutes = (time.monotonic() - started) / 60
    if code == 0:
        return (part, minutes, "ok")
    return (part, minutes, f"{missing if part in BUILDERS else 'FAILED'} ({code})")


def main(parts: list[str]) -> int:
    """Run `make PART` for each part; later parts run even if an earlier one failed."""
    # Started in the background by a script, we were told to ignore SIGINT, and so would be what the tests press Ctrl-C for.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    rows: list[Row] = []
    failed: list[str] = []
    for part in parts:
        broken = {name for name, _, result in rows if result != "ok"}
        rows.append(run_part(part, broken, failed, is_ci=os.environ.get("CI") == "true"))
    print("", *failed, sep="\n")
    print(f"\npart            minutes  result   (load average {os.getloadavg()[0]:.1f})")
    for part, minutes, result in rows:
        print(f"{part:<15} {minutes:>7.1f}  {result}")
    building = sum(minutes for part, minutes, _ in rows if part in BUILDERS)
    total = sum(minutes for _, minutes, _ in rows)
    print(f"{'all':<15} {total:>7.1f}  {building:.1f} of them for what is built once")
    return int(any(result.startswith("FAILED") for _, _, result in rows))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
