"""`make bench-console`: what the console costs with 10,000 partitions, and how long its pages take.

One broker has 100 topics of 100 partitions. The processor time of a console that nobody opens is
the sampler's; then its pages are opened in turns. Prints a table with the load of the machine and
stores it in e2e/results/console.json. Times of pages count what waits for the processor: on a busy
machine they are upper bounds.
"""

import argparse
import asyncio
import os
import sys
import time
import urllib.request
from statistics import quantiles
from typing import Any, Final

from logfleet.client.admin import Admin, NewTopic
from logfleet.client.cluster import Client

from e2e.bench.conditions import bench_rig, conditions, load_average
from e2e.harness.results import RESULTS, source_key, store

STORE: Final = RESULTS / "console.json"
SOURCES: Final = ("broker_image/src", "e2e/bench/console.py")
TOPICS: Final = 100
PARTITIONS: Final = 100
WARM_S: Final = 20.0
IDLE_S: Final = 60.0
ROUNDS: Final = 30
PAGES: Final = (
    "/",
    "/topics",
    "/topics?sort=records",
    "/topics/t-007",
    "/groups",
    "/brokers",
    "/events",
    "/health",
)
SHARE_MAX: Final = 0.05
"""Aim for the sampler: of one core."""
P95_MS_MAX: Final = 150.0


async def fill(bootstrap: str) -> None:
    async with Client(bootstrap) as client:
        for number in range(TOPICS):
            await Admin(client).create_topic(NewTopic(f"t-{number:03}", PARTITIONS, 1))


def opened_ms(url: str) -> float:
    """Milliseconds until the whole page is there."""
    began = time.perf_counter()
    with urllib.request.urlopen(url, timeout=60) as answer:
        answer.read()
    return (time.perf_counter() - began) * 1000


def measure(rounds: int) -> dict[str, Any]:
    """Share of a core, milliseconds by page, MiB, and the load before and after."""
    before = load_average()
    with bench_rig("console") as rig:
        broker = rig.broker()
        asyncio.run(fill(broker.bootstrap))
        command = [sys.executable, "-m", "logfleet", "console", "-b", broker.bootstrap]
        console = rig.program("console", [*command, "--listen", "127.0.0.1:0"], dict(os.environ))
        console.launch()
        console.wait_until(lambda: "ready: " in console.said() and "\n" in console.said())
        base = console.said().partition("ready: ")[2].split()[0].rstrip("/")
        time.sleep(WARM_S)
        cpu_s, began = console.cpu_seconds(), time.monotonic()
        time.sleep(IDLE_S)
        share = (console.cpu_seconds() - cpu_s) / (time.monotonic() - began)
        cpu_s = console.cpu_seconds()
        found: dict[str, list[float]] = {page: [] for page in PAGES}
        for _ in range(rounds):
            for page in PAGES:
                found[page].append(opened_ms(base + page))
        every = [each for times in found.values() for each in times]
        figures = {
            "partitions": TOPICS * PARTITIONS,
            "sampler_share": round(share, 4),
            "page_cpu_ms": round((console.cpu_seconds() - cpu_s) / len(every) * 1000, 1),
            "p50_ms": round(quantiles(every, n=20)[9], 1),
            "p95_ms": round(quantiles(every, n=20)[18], 1),
            "slowest_ms": {page: round(max(times), 1) for page, times in found.items()},
            "rss_mib": round(console.peak_rss_bytes() / (1 << 20)),
            "load_before": before,
            "load_after": load_average(),
        }
        for name, value in figures.items():  # now: removing so many files takes a while
            print(f"{name:16} {value}", flush=True)
        return figures


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    found = measure(parser.parse_args().rounds)
    print(f"aims: sampler_share {SHARE_MAX}, p95_ms {P95_MS_MAX:.0f}")
    store(STORE, source_key(*SOURCES), {"conditions": conditions(), **found})


if __name__ == "__main__":
    main()
