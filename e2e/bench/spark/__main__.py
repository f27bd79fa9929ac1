"""`make bench-spark`: the data source `logfleet` and Spark's own Kafka connector, in turns on one broker of ours.

Each has a Spark of its own (local[2], one machine) whose processor time and memory are those of all its processes: the JVM and the
Python workers. A third Spark has a source and a sink in Python that do nothing: the floor, see `e2e.bench.spark.floor`. A whole round comes
first that is not counted. Prints medians with their ranges and the ratio; a complete run is kept
as JSON. All data lies in a temporary directory (TMPDIR) and goes with the run.
"""

import argparse
import contextlib
import dataclasses
import signal
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from e2e.bench.conditions import conditions, load_average
from e2e.bench.report import short, spread
from e2e.bench.spark.page import PAGE, STORE, write_table
from e2e.bench.spark.rounds import Rounds, SideProcess, run
from e2e.bench.spark.work import CPU, FLOOR, OVER_FLOOR_MOST, SIDES, Row, rows
from e2e.harness.java import JavaMissing, find_java
from e2e.harness.processes import Rig
from e2e.harness.results import source_key, store

SOURCES = ("broker_image/src", "spark-on-k8s/src", "e2e/bench/spark", "spark-on-k8s/jars.lock")
ROUNDS = 3
WITHIN_S = 15 * 60.0
"""No round begins later."""
NOTHING = spread([])

HEAD = ("work", "figure", "logfleet", "Spark's own", "floor", "ratio", "aim", "")
VERDICTS = {None: "", True: "met", False: "missed"}


def floors(measured: dict[str, Rounds], row: Row) -> list[dict[str, float]]:
    """The floor's values of a row; one with a codec has that of the row without, as the floor knows no codecs."""
    plain = dataclasses.replace(row, codec="none").name
    return measured.get(plain, {}).get(FLOOR, [])


def figures(row: Row, measured: dict[str, Rounds]) -> list[dict[str, Any]]:
    """Each metric of a row with the spreads of both sides and of the floor, the ratio of the sides' medians and whether the aim is met."""
    found = []
    rounds = measured[row.name]
    for metric in row.metrics:
        ours, theirs = (spread([values[metric.key] for values in rounds[side]]) for side in SIDES)
        floor = spread([values[metric.key] for values in floors(measured, row)])
        ratio = ours.median / theirs.median
        figure = {"title": metric.title, "key": metric.key, "ours": ours, "theirs": theirs}
        figure |= {"floor": floor, "ratio": ratio, "aim": metric.aim}
        found.append(figure | {"met": metric.is_met(ratio, ours.median)})
        if metric.key == CPU and floor.rounds:
            own = (ours.median - floor.median) / theirs.median
            figure = {"title": "own CPU beyond the floor / Spark's own", "key": "own", "ratio": own}
            figure |= {"ours": NOTHING, "theirs": NOTHING, "floor": NOTHING}
            found.append(figure | {"aim": f"<= {OVER_FLOOR_MOST:g}", "met": own <= OVER_FLOOR_MOST})
    return found


def table(found: Sequence[tuple[Row, list[dict[str, Any]]]]) -> str:
    lines: list[Sequence[str]] = [HEAD]
    for row, each in found:
        for place, figure in enumerate(each):
            title = "" if place else row.title
            spreads = [str(figure[side]) for side in ("ours", "theirs", "floor")]
            cells = (*spreads, f"{figure['ratio']:.2f}", figure["aim"], VERDICTS[figure["met"]])
            lines.append((title, figure["title"], *cells))
    widths = [max(len(line[column]) for line in lines) for column in range(len(HEAD))]
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip()
        for line in lines
    )


def as_json(row: Row, each: Sequence[dict[str, Any]], rounds: Rounds) -> dict[str, Any]:
    kept: dict[str, Any] = {"title": row.title, "records": row.records}
    for figure in each:
        medians = {
            side: float(short(figure[side].median).replace(",", ""))
            for side in ("ours", "theirs", "floor")
            if figure[side].rounds
        }
        kept[figure["key"]] = {**medians, "ratio": round(figure["ratio"], 3)}
        if figure["aim"]:
            kept[figure["key"]] |= {"aim": figure["aim"], "met": figure["met"]}
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
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))  # to end in order
    try:
        find_java(at_least=17, wanted_by="Spark")
    except JavaMissing as missing:
        print(missing, file=sys.stderr)
        return 2
    begin = time.monotonic()
    found_on = conditions()
    with (
        tempfile.TemporaryDirectory(prefix="logfleet-bench-spark-") as scratch,
        contextlib.ExitStack() as stack,
    ):
        rig = Rig(Path(scratch))
        stack.callback(rig.close)
        broker = rig.broker()
        sides = [
            stack.enter_context(SideProcess(side, broker, Path(scratch)))
            for side in (*SIDES, FLOOR)
        ]
        measured = run(chosen, broker, sides, rounds=options.rounds, until=begin + WITHIN_S)
    found_on["load_average_after"] = load_average()
    found_on["minutes"] = round((time.monotonic() - begin) / 60, 1)
    print(", ".join(f"{key} {value}" for key, value in found_on.items()))
    found = [(row, figures(row, measured)) for row in chosen]
    print(table(found))
    if options.quick:
        print("QUICK=1: a trial of the bench itself; these figures say nothing")
    elif not options.only:
        kept = {row.name: as_json(row, each, measured[row.name]) for row, each in found}
        counted = len(measured[chosen[0].name][SIDES[0]])
        entry = {**found_on, "rounds": counted, "rows": kept}
        store(STORE, source_key(*SOURCES), entry)
        PAGE.write_text(write_table(PAGE.read_text(), entry))
    return 0


if __name__ == "__main__":
    sys.exit(main())
