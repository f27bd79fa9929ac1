"""`make test`: runs the parts one after another, prints minutes per part, fails if one failed.

A part that this machine cannot run is left out and said so in one line; under continuous integration (CI=true) that is
a failure.
"""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

from e2e.lab.machine import obstacle
from e2e.lab.settings import settings_from
from e2e.lab.tools import CONTROL_PLANE, unbuilt

Row = tuple[str, float, str]


def no_control_plane() -> str | None:
    """Continuous integration builds it; a person is not made to wait for that unasked."""
    missing = unbuilt(settings_from(os.environ, Path.home()), CONTROL_PLANE)
    if not missing or os.environ.get("CI") == "true":
        return None
    return "an API server and helm are not built here (make apiserver does it, in minutes)"


OBSTACLES: dict[str, Callable[[], str | None]] = {"e2e": obstacle, "apiserver": no_control_plane}
"""Part -> why this machine cannot run it, if it cannot."""


def run_part(part: str, *, is_ci: bool) -> Row:
    """(part, minutes, result); the result is `ok`, or begins with `left out` or `FAILED`."""
    reason = OBSTACLES[part]() if part in OBSTACLES else None
    if reason is not None:
        return (part, 0.0, f"FAILED: {reason}" if is_ci else f"left out: {reason}")
    print(f"\n=== {part}", flush=True)
    started = time.monotonic()
    code = subprocess.run(["make", "--no-print-directory", part], check=False).returncode
    minutes = (time.monotonic() - started) / 60
    return (part, minutes, "ok" if code == 0 else f"FAILED ({code})")


def main(parts: list[str]) -> int:
    """Run `make PART` for each part; later parts run even if an earlier one failed."""
    # Started in the background by a script, we were told to ignore SIGINT, and so would be what the tests press Ctrl-C for.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    rows = [run_part(part, is_ci=os.environ.get("CI") == "true") for part in parts]
    print(f"\npart            minutes  result   (load average {os.getloadavg()[0]:.1f})")
    for part, minutes, result in rows:
        print(f"{part:<15} {minutes:>7.1f}  {result}")
    print(f"{'all':<15} {sum(minutes for _, minutes, _ in rows):>7.1f}")
    return int(any(result.startswith("FAILED") for _, _, result in rows))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
