"""docs/reference/checks.md, made from the table of checks. PURE."""

from typing import Final

from logfleet.checks.finding import Check
from logfleet.checks.table import CHECKS

_HEAD: Final = """\
# Checks

Made by `make pages` from `logfleet.checks`; do not edit.

`logfleet check` asks a fleet, or an Apache Kafka, and lists what is wrong with it or will be. Each
finding has a code of this page, and a command that mends it.

| | |
|---|---|
| error | clients are refused, or will be at the next restart |
| warning | a fault would cost records or availability |
| hint | it could be better |

`--explain CODE` prints a section of this page; `--select` and `--ignore` take codes or their
beginnings. What cannot be asked is listed as not checked.
"""
_SECTIONS: Final = {
    "1": "Availability",
    "2": "Durability",
    "3": "Groups",
    "4": "Brokers",
    "5": "Clients",
    "6": "Topics",
}


def check_docs() -> str:
    """The whole page, in Markdown."""
    lines = [_HEAD]
    section = ""
    for each in CHECKS:
        if each.code[2] != section:
            section = each.code[2]
            lines += [f"## {_SECTIONS[section]}", ""]
        lines += [f"### {each.code}", "", explained(each), ""]
    return "\n".join(lines).rstrip() + "\n"


def explained(each: Check) -> str:
    """The section of a check: what it finds, what that means, and what to do."""
    return f"{each.title} ({each.severity}).\n\n{each.text}"
