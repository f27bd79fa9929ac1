"""`make bench-spark`: the data source `logfleet` and Spark's own Kafka connector, in turns on one broker of ours.

Each has a Spark of its own (local[2], one machine) whose processor time and memory are those of all its processes: the JVM and the
Python workers. A third Spark has a source and a sink in Python that do nothing: the floor, see `e2e.bench.spark.floor`. A whole round comes
first that is not counted. Prints medians with their ranges and the ratio; a complete run is kept
as JSON. All data lies in a temporary directory (TMPDIR) and goes with the run.
"""

import argparse
import contextlib
import dataclasses
import sys
import time
from typing import Any

from e2e.bench.conditions import bench_rig, conditions, print_conditions
from e2e.bench.figures import Bound, Figure, Metric, Rounds, figure_of, short, spread, table
from e2e.bench.spark.page import PAGE, STORE, write_table
from e2e.bench.spark.rounds import SideProcess, run
from e2e.bench.spark.work import CPU, FLOOR, OWN, SIDES, Row, rows
from e2e.harness.java import JavaMissing, find_java
from e2e.harness.results import source_key, store

SOURCES = (
    "broker_image/src",
    "spark-on-k8s/src",
    ":(glob)e2e/bench/*.py",
    "e2e/bench/spark",
    "spark-on-k8s/jars.lock",
)
ROUNDS = 3
WITHIN_S = 15 * 60.0
"""No round begins later."""
HEAD = ("work", "logfleet", "Spark's own", "floor")
KEPT_AS = dict(zip((*SIDES, FLOOR), ("ours", "theirs", "floor"), strict=True))


def figures(row: Row, measured: dict[str, Rounds]) -> list[Figure]:
    """The figures of a row, with that of what is ours beyond the floor.

    A row with a codec has the floor of the row without, as the floor knows no codecs.
    """
    plain = dataclasses.replace(row, codec="none").name
    rounds = measured[row.name] | {FLOOR: measured.get(plain, {}).get(FLOOR, [])}
    found = []
    for metric in row.metrics:
        figure = figure_of(metric, rounds)
        found.append(figure)
        ours, theirs, floor = figure.sides.values()
        if metric.key == CPU and floor.rounds:
            own = (ours.median - floor.median) / theirs.median
            found.append(Figure(OWN, dict.fromkeys(rounds, spread([])), own))
    return found


def aim(metric: Metric) -> str:
    """A goal in the words of bench-spark.json."""
    goal = metric.goal
    if goal is None:
        return ""
    if goal.bound is Bound.OURS_MAX:
        return f"<= {goal.limit:g} {metric.title}"
    return f"{'<=' if goal.bound is Bound.RATIO_MAX else '>='} {goal.limit:g}"


def as_json(row: Row, found: list[Figure], rounds: Rounds) -> dict[str, Any]:
    kept: dict[str, Any] = {"title": row.title, "records": row.records}
    for figure in found:
        medians = {
            KEPT_AS[side]: float(short(each.median).replace(",", ""))
            for side, each in figure.sides.items()
            if each.rounds
        }
        kept[figure.metric.key] = {**medians, "ratio": round(figure.ratio, 3)}
        if figure.metric.goal is not None:
            kept[figure.metric.key] |= {"aim": aim(figure.metric), "met": figure.is_met}
    return kept | {"rounds": rounds}


def parsed() -> tuple[argparse.Namespace, list[Row]]:
    parser = argparse.ArgumentParser(prog="make bench-spark", description=__doc__)
    parser.add_argument("--rounds", type=int, help=f"that count (default {ROUNDS})")
    parser.add_argument("--only", default="", help="rows whose name contains this, e.g. write-lz4")
    parser.add_argument("--quick", action="store_true", help="a trial: small sizes, no results")
    options = parser.parse_args()
    options.rounds = options.rounds or (1 if options.quick else ROUNDS)
    chosen = [row for row in rows(quick=options.quick) if options.only in row.name]
    if not chosen:
        parser.error(f"no row is named {options.only}: {', '.join(row.name for row in rows())}")
    if options.rounds < 1:
        parser.error("ROUNDS is more than 0")
    return options, chosen


def main() -> int:
    options, chosen = parsed()
    try:
        find_java(at_least=17, wanted_by="Spark")
    except JavaMissing as missing:
        print(missing, file=sys.stderr)
        return 2
    begin = time.monotonic()
    found_on = conditions()
    with bench_rig("bench-spark") as rig, contextlib.ExitStack() as stack:
        broker = rig.broker()
        sides = [
            stack.enter_context(SideProcess(source, broker, rig.directory)) for source in KEPT_AS
        ]
        measured = run(chosen, broker, sides, rounds=options.rounds, until_s=begin + WITHIN_S)
    found_on["minutes"] = round((time.monotonic() - begin) / 60, 1)
    print_conditions(found_on)
    found = [(row, figures(row, measured)) for row in chosen]
    print(table(HEAD, found, quick=options.quick))
    if not options.quick and not options.only:
        kept = {row.name: as_json(row, each, measured[row.name]) for row, each in found}
        counted = len(measured[chosen[0].name][SIDES[0]])
        entry = {**found_on, "rounds": counted, "rows": kept}
        store(STORE, source_key(*SOURCES), entry)
        PAGE.write_text(write_table(PAGE.read_text(), entry))
    return 0


if __name__ == "__main__":
    sys.exit(main())
