"""The table of docs/internals/performance.md, from the figures that `make bench-spark` keeps.

`python -m e2e.bench.spark.page` writes the last ones into the page.
"""

import json
from typing import Any

from e2e.bench.figures import between
from e2e.harness.results import RESULTS, ROOT

PAGE = ROOT / "docs" / "spark" / "performance.md"
STORE = RESULTS / "bench-spark.json"
BEGIN, END = "<!-- figures of make bench-spark -->", "<!-- end of figures -->"
HEAD = "| work | `logfleet` | Spark's own | ratio | processor time of Spark, ratio | of which own | of the broker, ratio |"
SPEEDS = {"rows_per_s": "rows/s", "trigger_ms": "ms per micro-batch", "spark_cpu_s": "CPU s"}
"""The figure of a row that both sides are shown with: the first that it has."""


def line(row: dict[str, Any]) -> str:
    key = next(key for key in SPEEDS if key in row)
    speed, cpu, own = row[key], row["spark_cpu_s"], row.get("own")
    cells = [
        f"{row['title']}, {SPEEDS[key]}",
        f"{speed['ours']:,g}" if speed["ours"] < 1000 else f"{speed['ours']:,.0f}",
        f"{speed['theirs']:,g}" if speed["theirs"] < 1000 else f"{speed['theirs']:,.0f}",
        f"{speed['ratio']:.2f}",
        f"{cpu['ratio']:.2f}",
        f"{max(own['ratio'], 0):.2f}" if own else "",
        f"{row['broker_cpu_s']['ratio']:.2f}",
    ]
    return "| " + " | ".join(cells) + " |"


def write_table(text: str, entry: dict[str, Any]) -> str:
    """The page with the figures of an entry of bench-spark.json between its two marks."""
    load = f"load {entry['load_average'][0]:g} to {entry['load_average_after'][0]:g}"
    rounds = entry["rounds"]
    of = f"Medians of {rounds} rounds" if rounds > 1 else "One round"
    intro = f"{of} after one that does not count; broker of commit {entry['commit']}, {load}."
    rows = [line(row) for row in entry["rows"].values()]
    lines = [intro, "", HEAD, "|---" * (HEAD.count("|") - 1) + "|", *rows]
    return between(text, BEGIN, END, "\n".join(lines) + "\n")


def main() -> None:
    entries: dict[str, Any] = json.loads(STORE.read_text())
    last = list(entries.values())[-1]
    PAGE.write_text(write_table(PAGE.read_text(), last))


if __name__ == "__main__":
    main()
