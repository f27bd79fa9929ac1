"""A run beside Kafka, and what it was made on."""

import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from e2e.bench.conditions import conditions, load_average
from e2e.bench.kafka.nodes import kafka_version
from e2e.bench.rounds import Rounds
from e2e.harness.debian import PackagesMissing
from e2e.harness.kafka import KafkaUnavailable, classpath, java


def machine() -> dict[str, Any]:
    """What the figures depend on besides Logfleet itself."""
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


def measured(run: Callable[[Path], dict[str, Rounds]]) -> tuple[dict[str, Any], dict[str, Rounds]]:
    """What `run` found in a directory that goes with it, and on what; the latter is printed. Exits with 2 where Java, Kafka or a package is missing."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))  # to end in order
    try:
        classpath("broker")
        found_on = machine()
        with tempfile.TemporaryDirectory(prefix="logfleet-bench-") as scratch:
            rounds = run(Path(scratch))
    except (PackagesMissing, KafkaUnavailable) as missing:
        print(missing, file=sys.stderr)
        sys.exit(2)
    found_on["load_average_after"] = load_average()
    print(", ".join(f"{key} {value}" for key, value in found_on.items()))
    return found_on, rounds
