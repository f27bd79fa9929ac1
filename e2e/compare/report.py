"""What a run of the oracle tells: differences as they come, a table at the end, figures to keep."""

import platform
import time
from collections.abc import Iterable, Mapping
from importlib.metadata import version
from typing import Any

from e2e.compare.reviewed import Reviewed, ReviewedList
from e2e.compare.runs import Finding, Tally

KAFKA = "4.4.0"
VALUE_CHARS = 300
REQUEST_CHARS = 900


def tell(findings: Iterable[Finding]) -> None:
    """Print differences that are not listed, grouped by the request."""
    asked = None
    for each in findings:
        head = f"\n{each.place.case}: {each.place.api} version {each.place.version}"
        if asked != (head, each.asked):
            asked = (head, each.asked)
            print(f"{head}\n  {each.asked[:REQUEST_CHARS]}")
        path, kafka, ours = each.difference
        print(
            f"    {path}\n      Kafka {_short(kafka)}\n      ours  {_short(ours)}",
            flush=True,
        )


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= VALUE_CHARS else text[:VALUE_CHARS] + " ..."


def table(tallies: Mapping[str, Tally], unneeded: Iterable[Reviewed]) -> str:
    """One line per corpus, then what makes the run fail."""
    lines = [
        "",
        f"{'corpus':<24}{'cases':>7}{'answers':>9}{'listed':>8}{'unlisted':>10}{'seconds':>9}",
    ]
    lines += [
        f"{name:<24}{each.cases:>7}{each.answers:>9}{each.listed:>8}{len(each.unlisted):>10}{each.seconds:>9.0f}  {each.slowest[1]} ({each.slowest[0]:.0f} s)"
        for name, each in tallies.items()
    ]
    for each in tallies.values():
        lines += [f"broken case: {text}" for text in each.broken]
    lines += [f"listed, but not seen: {line}" for line in unneeded]
    return "\n".join(lines)


def as_json(tallies: Mapping[str, Tally], reviewed: ReviewedList) -> dict[str, Any]:
    """What is kept of a run in which nothing differed that is not listed."""
    return {
        "at": time.strftime("%Y-%m-%dT%H:%MZ", time.gmtime()),
        "versions": {
            "kafka": KAFKA,
            "logfleet": version("logfleet"),
            "python": platform.python_version(),
        },
        "reviewed_differences": len(reviewed.lines),
        "corpora": {
            name: {
                "cases": each.cases,
                "answers": each.answers,
                "differences_listed": each.listed,
                "seconds": round(each.seconds),
            }
            for name, each in tallies.items()
        },
    }
