"""`make bench-testing`: how long a test waits for a broker of `logfleet.testing`, and what one costs.

Starts brokers and fleets one after the other, as a suite does that gives one to each test. Prints a
table and stores it in e2e/results/testing.json, with the load of the machine: times on the wall hold
for one that has nothing else to do, or with --realtime, which lets nothing else run meanwhile.
"""

import argparse
import os
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import median, quantiles
from typing import Final

from logfleet.testing import Broker, Fleet
from logfleet.testing.prepared import Prepared

from e2e.bench.conditions import conditions
from e2e.bench.cpu import REALTIME_PRIORITY, cpu_time
from e2e.harness.results import RESULTS, source_key, store

STORE: Final = RESULTS / "testing.json"
SOURCES: Final = ("broker_image/src", "e2e/bench/testing.py")
BROKERS: Final = 200
FLEETS: Final = 30

Made = Callable[[Prepared], Broker | Fleet]
Figures = dict[str, float]


def pss_mib(pid: int) -> float:
    """Memory of a process, where a page that several share counts in parts (proc_pid_smaps(5))."""
    text = Path(f"/proc/{pid}/smaps_rollup").read_text()
    return int(text.partition("\nPss:")[2].split()[0]) / 1024


def spread(values: Sequence[float]) -> Figures:
    p95 = quantiles(values, n=20, method="inclusive")[-1]
    return {"p50": round(median(values), 1), "p95": round(p95, 1)}


def started(made: Made, prepared: Prepared, count: int) -> dict[str, Figures]:
    """The wall time until each serves, until it is gone, and what its brokers used until then."""
    start, end, cpu, memory = [], [], [], []
    for _ in range(count):
        began = time.perf_counter()
        with made(prepared) as cluster:
            start.append(1000 * (time.perf_counter() - began))
            pids = [each.pid for each in getattr(cluster, "brokers", [cluster])]
            cpu.append(sum(cpu_time(pid).total_ns for pid in pids) / len(pids) / 1e6)
            memory.append(sum(map(pss_mib, pids)) / len(pids))
            began = time.perf_counter()
        end.append(1000 * (time.perf_counter() - began))
    return {
        "start ms": spread(start),
        "end ms": spread(end),
        "CPU ms a broker": spread(cpu),
        "MiB a broker": spread(memory),
    }


def first(made: Made, prepared: Prepared) -> float:
    began = time.perf_counter()
    with made(prepared):
        return 1000 * (time.perf_counter() - began)


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--brokers", type=int, default=BROKERS)
    options.add_argument("--fleets", type=int, default=FLEETS)
    options.add_argument("--realtime", action="store_true", help="as root, on a busy machine")
    asked = options.parse_args()
    if asked.realtime:  # processes inherit it
        os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(REALTIME_PRIORITY))
    began = time.perf_counter()
    prepared = Prepared()
    kinds: dict[str, tuple[Made, int]] = {
        "broker": (lambda it: Broker(prepared=it), asked.brokers),
        "fleet of three": (lambda it: Fleet(3, prepared=it), asked.fleets),
    }
    entry: dict[str, object] = {"conditions": conditions(), "realtime": asked.realtime}
    for name, (made, count) in kinds.items():
        first(made, prepared)
        first_ms = 1000 * (time.perf_counter() - began)
        rows = started(made, prepared, count)
        entry[name] = {"count": count, "first ms": round(first_ms), **rows}
        print(f"{name}: the first {first_ms:,.0f} ms, then {count}")
        for row, figures in rows.items():
            print(f"  {row:16} p50 {figures['p50']:7.1f}   p95 {figures['p95']:7.1f}")
        began = time.perf_counter()
    prepared.close()
    print(f"load {conditions()['load_average']}")
    store(STORE, source_key(*SOURCES), entry)


if __name__ == "__main__":
    main()
