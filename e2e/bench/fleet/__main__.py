"""`make bench-fleet`: three Apache Kafkas and three Logfleet brokers in the same run on the same machine, records with three replicas.

In the rows of load all brokers share one processor and the client has another; both fleets run all the time. Whole rounds come first that
are not counted. Prints medians with their ranges, the ratio and the goal; a complete run is kept as JSON, and the table of
docs/internals/performance.md is made from it. All data lies in a temporary directory (TMPDIR) and goes with the run.
"""

import argparse
import contextlib
import sys
from pathlib import Path

from e2e.bench.figures import Rounds
from e2e.bench.fleet.document import STORE, write_document
from e2e.bench.fleet.fleets import started
from e2e.bench.fleet.lives import SIDES, run_lives
from e2e.bench.fleet.rows import MANY, MOVED, ROWS
from e2e.bench.kafka.client import Client
from e2e.bench.kafka.loads import SOURCES, Rows, measured, parsed, parser_of, run_loads
from e2e.bench.kafka.nodes import BROKER_CPU, on_cpu
from e2e.bench.kafka.rows import Life, Load
from e2e.harness.results import source_key, store

ROUNDS, WARMUPS = 3, 4
"""Three Java machines that share a processor still became faster after three whole rounds."""
MOVES_MAX = 2
"""Rounds of leaders that move: Kafka's broker takes most of a minute to end and to be in sync again."""
QUICK_PARTITIONS = 300


def run(rows: Rows, options: argparse.Namespace, scratch: Path) -> dict[str, Rounds]:
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


def main() -> int:
    parser = parser_of("make bench-fleet", __doc__, ROUNDS)
    options, rows = parsed(parser, ROWS, ROUNDS)
    entry = measured(lambda rig: run(rows, options, rig.directory), rows, quick=options.quick)
    if not options.quick and len(rows) == len(ROWS):
        store(STORE, source_key(*SOURCES, "e2e/bench/fleet"), entry)
        write_document(entry)
    return 0


if __name__ == "__main__":
    sys.exit(main())
