"""Where and on what a run was made: without it a figure says nothing."""

import os
import platform
import subprocess
import time
import timeit
from importlib.metadata import PackageNotFoundError, version
from typing import Any

from e2e.harness.results import ROOT


def conditions() -> dict[str, Any]:
    """Where and on what a run was made."""
    try:
        loop = f"uvloop {version('uvloop')}"
    except PackageNotFoundError:
        loop = "asyncio"
    git = ["git", "describe", "--always", "--dirty", "--abbrev=10"]
    return {
        "commit": subprocess.run(
            git, cwd=ROOT, check=True, capture_output=True, text=True
        ).stdout.strip(),
        "python": platform.python_version(),
        "python_ns": interpreter_ns(),
        "loop": loop,
        "kernel": platform.release(),
        "cpus": os.cpu_count(),
        "load_average": load_average(),
    }


def interpreter_ns() -> int:
    """Nanoseconds of a fixed piece of Python: builds without profile-guided optimisation take nearly twice as long."""
    times = timeit.repeat(
        "box[number & 255] = [number, box]; len(box)",
        "box = {}; number = 7",
        timer=time.process_time,
        number=100_000,
        repeat=7,
    )
    return round(min(times) * 1e9 / 100_000)


def load_average() -> list[float]:
    """Of the last 1, 5 and 15 minutes."""
    return [round(value, 1) for value in os.getloadavg()]
