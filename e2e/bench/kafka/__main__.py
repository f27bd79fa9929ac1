"""`make bench-kafka`: Apache Kafka and Logfleet in the same run on the same machine, with librdkafka as the client.

The brokers share one processor, in turns; the client has another. Whole rounds come first that are not counted. Prints medians with
their ranges, the ratio and the goal; a complete run is kept as JSON. All data lies in a temporary directory (TMPDIR) and goes with the run.
"""

import argparse
import shutil
import sys
import tempfile

from e2e.bench.figures import Rounds
from e2e.bench.kafka.client import Client
from e2e.bench.kafka.lives import Lives
from e2e.bench.kafka.loads import SOURCES, Rows, measured, parsed, parser_of, run_loads
from e2e.bench.kafka.nodes import SIDES, Cluster, started
from e2e.bench.kafka.rows import ROWS, Life, Load
from e2e.harness.processes import Rig
from e2e.harness.results import RESULTS, source_key, store

STORE = RESULTS / "bench-kafka.json"
ROUNDS, WARMUPS = 3, 2
SIZE_GIB, MINUTES = 2.0, 10.0
QUICK_SIZE_GIB, QUICK_MINUTES = 0.1, 0.2
SPARE_GIB = 3.0
"""What the rows write besides the logs of SIGKILL: a round of the largest row on each side, and Kafka's empty indexes."""


def run(rows: Rows, options: argparse.Namespace, rig: Rig) -> dict[str, Rounds]:
    """Measure."""
    loads = [row for row in rows if isinstance(row, Load)]
    lives = [row for row in rows if isinstance(row, Life)]
    client = Client(rig.directory)
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


def main() -> int:
    parser = parser_of("make bench-kafka", __doc__, ROUNDS)
    parser.add_argument("--size", type=float, help=f"GiB before SIGKILL (default {SIZE_GIB})")
    parser.add_argument("--minutes", type=float, help=f"of churn (default {MINUTES})")
    options, rows = parsed(parser, ROWS, ROUNDS)
    options.size = options.size or (QUICK_SIZE_GIB if options.quick else SIZE_GIB)
    options.minutes = options.minutes or (QUICK_MINUTES if options.quick else MINUTES)
    if min(options.size, options.minutes) <= 0:
        parser.error("SIZE and MINUTES are more than 0")
    free_gib = shutil.disk_usage(tempfile.gettempdir()).free / 2**30
    if free_gib < options.size + SPARE_GIB:
        parser.error(
            f"{tempfile.gettempdir()} has {free_gib:.1f} GiB free, "
            f"{options.size + SPARE_GIB:.1f} are needed: set TMPDIR or SIZE"
        )
    entry = measured(lambda rig: run(rows, options, rig), rows, quick=options.quick)
    if not options.quick and len(rows) == len(ROWS):
        given = {"size_gib": options.size, "churn_minutes": options.minutes}
        store(STORE, source_key(*SOURCES), {**entry, **given})
    return 0


if __name__ == "__main__":
    sys.exit(main())
