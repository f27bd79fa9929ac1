"""`make bench-fleet`: three Apache Kafkas and three Logfleet brokers in the same run on the same machine, records with three replicas.

In the rows of load all brokers share one processor and the client has another; both fleets run all the time. Whole rounds come first that
are not counted. Prints medians with their ranges, the ratio and the goal; a complete run is kept as JSON, and the table of
broker_image/docs/performance.md is made from it. All data lies in a temporary directory (TMPDIR) and goes with the run.
"""

import argparse
import contextlib
import os
import sys
from pathlib import Path

from e2e.bench.fleet.document import STORE, write_document
from e2e.bench.fleet.fleets import started
from e2e.bench.fleet.lives import SIDES, run_lives
from e2e.bench.fleet.rows import MANY, MOVED, ROWS
from e2e.bench.kafka.client import Client
from e2e.bench.kafka.machine import measured
from e2e.bench.kafka.nodes import BROKER_CPU, on_cpu
from e2e.bench.kafka.rows import Life, Load, Row, chosen
from e2e.bench.report import as_json, compared, table
from e2e.bench.rounds import Rounds, run_loads
from e2e.harness.results import source_key, store

SOURCES = ("broker_image/src", "broker_image/requirements.lock", "e2e/bench/fleet", "e2e/kafka")
ROUNDS, WARMUPS = 3, 4
"""Three Java machines that share a processor still became faster after three whole rounds."""
MOVES_MAX = 2
"""Rounds of leaders that move: Kafka's broker takes most of a minute to end and to be in sync again."""
QUICK_PARTITIONS = 300


def run(rows: list[Row], options: argparse.Namespace, scratch: Path) -> dict[str, Rounds]:
    """Measure. Whatever was started is ended with it."""
    loads = [row for row in rows if isinstance(row, Load)]
    lives = [row for row in rows if isinstance(row, Life)]
    found: dict[str, Rounds] = {}
    if loads:
        client = Client(scratch)
        with contextlib.ExitStack() as stack:
            fleets = {
                side: stack.enter_context(started(side, scratch / side, on_cpu(BROKER_CPU)))
                for side in SIDES
            }
            found = run_loads(
                loads,
                {side: fleet.cluster for side, fleet in fleets.items()},
                client,
                rounds=options.rounds,
                warmups=1 if options.quick else WARMUPS,
            )
    few = QUICK_PARTITIONS if options.quick else None
    return found | run_lives(
        lives,
        scratch,
        rounds=min(options.rounds, MOVES_MAX),
        leaders=few or MOVED,
        partitions=few or MANY,
    )


def parsed() -> tuple[argparse.Namespace, list[Row]]:
    parser = argparse.ArgumentParser(prog="make bench-fleet", description=__doc__)
    parser.add_argument("--rows", default="", help="rows whose name contains one of these words")
    parser.add_argument("--rounds", type=int, help=f"that count (default {ROUNDS})")
    parser.add_argument("--quick", action="store_true", help="a trial: small sizes, no results")
    options = parser.parse_args()
    options.rounds = options.rounds or (1 if options.quick else ROUNDS)
    try:
        rows = chosen(options.rows, ROWS)
    except ValueError as error:
        parser.error(str(error))
    if options.rounds < 1:
        parser.error("ROUNDS is 1 or more")
    if not {0, 1} <= os.sched_getaffinity(0):
        parser.error("processors 0 and 1 are needed: one for the brokers, one for the client")
    return options, [
        row.smaller if options.quick and isinstance(row, Load) else row for row in rows
    ]


def main() -> int:
    options, rows = parsed()
    found_on, rounds = measured(lambda scratch: run(rows, options, scratch))
    figures = [(row, compared(row, rounds[row.name])) for row in rows]
    print(table(figures, quick=options.quick))
    if not options.quick and len(rows) == len(ROWS):
        kept = {row.name: as_json(row, found, rounds[row.name]) for row, found in figures}
        entry = {**found_on, "rows": kept}
        store(STORE, source_key(*SOURCES), entry)
        write_document(entry)
    return 0


if __name__ == "__main__":
    sys.exit(main())
