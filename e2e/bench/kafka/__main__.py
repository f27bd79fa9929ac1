"""`make bench-kafka`: Apache Kafka and Logfleet in the same run on the same machine, with librdkafka as the client.

The brokers share one processor, in turns; the client has another. Whole rounds come first that are not counted. Prints medians with
their ranges, the ratio and the goal; a complete run is kept as JSON. All data lies in a temporary directory (TMPDIR) and goes with the run.
"""

import argparse
import contextlib
import os
import shutil
import sys
import tempfile
from pathlib import Path

from e2e.bench.kafka.client import Client
from e2e.bench.kafka.lives import Lives
from e2e.bench.kafka.machine import measured
from e2e.bench.kafka.nodes import SIDES, Cluster, started
from e2e.bench.kafka.rows import ROWS, Life, Load, Row, chosen
from e2e.bench.report import as_json, compared, table
from e2e.bench.rounds import Rounds, run_loads
from e2e.harness.processes import Rig
from e2e.harness.results import RESULTS, source_key, store

SOURCES = ("broker_image/src", "broker_image/requirements.lock", "e2e/bench/kafka", "e2e/kafka")
STORE = RESULTS / "bench-kafka.json"
ROUNDS, WARMUPS = 3, 2
SIZE_GIB, MINUTES = 2.0, 10.0
QUICK_SIZE_GIB, QUICK_MINUTES = 0.1, 0.2
SPARE_GIB = 3.0
"""What the rows write besides the logs of SIGKILL: a round of the largest row on each side, and Kafka's empty indexes."""


def run(rows: list[Row], options: argparse.Namespace, scratch: Path) -> dict[str, Rounds]:
    """Measure. Whatever was started is ended with it."""
    loads = [row for row in rows if isinstance(row, Load)]
    lives = [row for row in rows if isinstance(row, Life)]
    with contextlib.ExitStack() as stack:
        rig = Rig(scratch)
        stack.callback(rig.close)
        client = Client(scratch)
        found: dict[str, Rounds] = {}
        if loads:
            nodes = {side: started(rig, side, "loads") for side in SIDES}
            clusters = {side: Cluster(side, [node]) for side, node in nodes.items()}
            warmups = 1 if options.quick else WARMUPS
            found = run_loads(loads, clusters, client, rounds=options.rounds, warmups=warmups)
            for node in nodes.values():
                node.close()
                shutil.rmtree(node.directory)
        if lives:
            own = Lives(rig, client, size_gib=options.size, minutes=options.minutes)
            found |= own.run(lives, options.rounds)
        return found


def parsed() -> tuple[argparse.Namespace, list[Row]]:
    parser = argparse.ArgumentParser(prog="make bench-kafka", description=__doc__)
    parser.add_argument("--rows", default="", help="rows whose name contains one of these words")
    parser.add_argument("--rounds", type=int, help=f"that count (default {ROUNDS})")
    parser.add_argument("--size", type=float, help=f"GiB before SIGKILL (default {SIZE_GIB})")
    parser.add_argument("--minutes", type=float, help=f"of churn (default {MINUTES})")
    parser.add_argument("--quick", action="store_true", help="a trial: small sizes, no results")
    options = parser.parse_args()
    quick = options.quick
    options.rounds = options.rounds or (1 if quick else ROUNDS)
    options.size = options.size or (QUICK_SIZE_GIB if quick else SIZE_GIB)
    options.minutes = options.minutes or (QUICK_MINUTES if quick else MINUTES)
    try:
        rows = chosen(options.rows)
    except ValueError as error:
        parser.error(str(error))
    if min(options.rounds, options.size, options.minutes) <= 0:
        parser.error("ROUNDS, SIZE and MINUTES are more than 0")
    if not {0, 1} <= os.sched_getaffinity(0):
        parser.error("processors 0 and 1 are needed: one for the brokers, one for the client")
    free_gib = shutil.disk_usage(tempfile.gettempdir()).free / 2**30
    if free_gib < options.size + SPARE_GIB:
        parser.error(
            f"{tempfile.gettempdir()} has {free_gib:.1f} GiB free, "
            f"{options.size + SPARE_GIB:.1f} are needed: set TMPDIR or SIZE"
        )
    return options, [row.smaller if quick and isinstance(row, Load) else row for row in rows]


def main() -> int:
    options, rows = parsed()
    found_on, rounds = measured(lambda scratch: run(rows, options, scratch))
    figures = [(row, compared(row, rounds[row.name])) for row in rows]
    print(table(figures, quick=options.quick))
    if not options.quick and len(rows) == len(ROWS):
        kept = {row.name: as_json(row, found, rounds[row.name]) for row, found in figures}
        given = {"size_gib": options.size, "churn_minutes": options.minutes}
        store(STORE, source_key(*SOURCES), {**found_on, **given, "rows": kept})
    return 0


if __name__ == "__main__":
    sys.exit(main())
