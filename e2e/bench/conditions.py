"""Where and on what a run was made: without it a figure says nothing."""

import os
import platform
import re
import signal
import subprocess
import sys
import tempfile
import time
import timeit
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from e2e.harness.kafka import HERE, java
from e2e.harness.processes import Rig
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


def conditions_beside_kafka() -> dict[str, Any]:
    """As `conditions`, with what else the figures of Kafka depend on. Raises KafkaUnavailable."""
    models = [
        line.partition(":")[2].strip()
        for line in Path("/proc/cpuinfo").read_text().splitlines()
        if line.startswith("model name")
    ]
    memory_gib = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    said = subprocess.run([java(), "-version"], check=True, capture_output=True, text=True).stderr
    return conditions() | {
        "cpu": models[0] if models else "unknown",
        "memory_gib": round(memory_gib, 1),
        "kafka": kafka_version(),
        "java": said.splitlines()[0],
    }


def kafka_version() -> str:
    """The release that the rig runs."""
    found = re.search(r"<version>(\d+\.\d+\.\d+)</version>", (HERE / "broker.xml").read_text())
    assert found is not None
    return found[1]


def print_conditions(found: dict[str, Any]) -> None:
    """Add the load at the end, and print all."""
    found["load_average_after"] = load_average()
    print(", ".join(f"{key} {value}" for key, value in found.items()))


@contextmanager
def bench_rig(name: str) -> Iterator[Rig]:
    """Programs in a directory below TMPDIR; both end with the block, and at SIGTERM."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    with tempfile.TemporaryDirectory(prefix=f"logfleet-{name}-") as directory:
        rig = Rig(Path(directory))
        try:
            yield rig
        finally:
            rig.close()
