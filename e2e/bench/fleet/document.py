"""The table of docs/internals/performance.md, made from the newest run that is kept."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from e2e.bench.figures import between, short
from e2e.bench.fleet.rows import ROWS
from e2e.harness.results import RESULTS, ROOT

STORE = RESULTS / "bench-fleet.json"
PAGE = ROOT / "docs" / "internals" / "performance.md"
BEGIN = "<!-- made by make bench-fleet from e2e/results/bench-fleet.json -->"
END = "<!-- end of what make bench-fleet makes -->"


def newest(path: Path = STORE) -> dict[str, Any] | None:
    """The last entry of the file; None before a whole run was kept."""
    if not path.exists():
        return None
    entries: dict[str, dict[str, Any]] = json.loads(path.read_text())
    return entries[next(reversed(entries))]


def as_markdown(entry: Mapping[str, Any]) -> str:
    """Where it was measured, and a line per figure: medians with their ranges, ratio, goal."""
    load = "/".join(f"{each:g}" for each in entry["load_average"])
    after = "/".join(f"{each:g}" for each in entry["load_average_after"])
    made_on = (
        f"{entry['cpus']} processors ({entry['cpu']}), {entry['memory_gib']} GiB, Linux {entry['kernel']}, "
        f"Python {entry['python']}, {entry['loop']}, Kafka {entry['kafka']}, {entry['java']}; "
        f"load average {load} before, {after} after the run."
    )
    lines = [
        made_on,
        "",
        "| row | figure | Logfleet | Kafka | ratio | goal |",
        "|---|---|---|---|---|---|",
    ]
    for row in ROWS:
        kept = entry["rows"][row.name]
        for place, metric in enumerate(row.metrics):
            figure = kept[metric.key]
            goal = figure.get("goal", "") + (", **missed**" if figure.get("met") is False else "")
            kafka = _spread(figure["kafka"]) if "kafka" in figure else ""
            ratio = f"{figure['ratio']:.2f}" if "ratio" in figure else ""
            title = "" if place else kept["title"]
            cells = (title, metric.title, _spread(figure["ours"]), kafka, ratio, goal)
            lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def _spread(figure: Mapping[str, float]) -> str:
    text = short(figure["median"])
    if figure["least"] == figure["most"]:
        return text
    return f"{text} ({short(figure['least'])}-{short(figure['most'])})"


def filled(page: str, entry: Mapping[str, Any] | None) -> str:
    """The page with this run's table between its marks, or nothing between them where none is kept. Raises ValueError without marks."""
    return between(page, BEGIN, END, "" if entry is None else f"{as_markdown(entry)}\n")


def write_document(entry: Mapping[str, Any], page: Path = PAGE) -> None:
    """Raises ValueError without marks."""
    page.write_text(filled(page.read_text(), entry))
