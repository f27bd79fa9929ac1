"""What a check is, and what it finds. PURE."""

import inspect
from collections.abc import Callable, Iterator
from enum import StrEnum
from typing import NamedTuple

import msgspec

from logfleet.checks.snapshot import Part, Snapshot


class Severity(StrEnum):
    """How bad a finding is.

    ERROR: clients are refused, or will be at the next restart. WARNING: a fault would cost records
    or availability. HINT: it could be better.
    """

    ERROR = "error"
    WARNING = "warning"
    HINT = "hint"


class Finding(msgspec.Struct, frozen=True):
    """subject: the name of a topic, a group or a broker. sentence: what is wrong with it.

    remedy: a command that can be typed as it stands, or what to do where none can do it.
    """

    code: str
    severity: Severity
    subject: str
    sentence: str
    remedy: str

    def __str__(self) -> str:
        return f"{self.subject}: {self.sentence}"


class Found(NamedTuple):
    """What a check yields: a Finding without code. severity: if it is not the check's."""

    subject: str
    sentence: str
    remedy: str
    severity: Severity | None = None


class Check(msgspec.Struct, frozen=True):
    """needs: the parts of a snapshot without which nothing can be found.

    title: a few words. text: what the finding means, and what to do.
    """

    code: str
    severity: Severity
    title: str
    text: str
    needs: tuple[Part, ...]
    find: Callable[[Snapshot], Iterator[Found]]

    def findings(self, fleet: Snapshot) -> list[Finding]:
        return [
            Finding(self.code, found.severity or self.severity, *found[:3])
            for found in self.find(fleet)
        ]

    def not_checked(self, fleet: Snapshot) -> str | None:
        """Why it cannot be checked; None if it can."""
        reasons = (fleet.unknown(part) for part in self.needs)
        return next((reason for reason in reasons if reason is not None), None)


def check(
    code: str, severity: Severity, *needs: Part
) -> Callable[[Callable[[Snapshot], Iterator[Found]]], Check]:
    """Make a check of a function: its docstring has the title and, after that, the text."""

    def made(find: Callable[[Snapshot], Iterator[Found]]) -> Check:
        title, _, text = (inspect.getdoc(find) or "").partition("\n\n")
        return Check(code, severity, title.rstrip("."), text, needs, find)

    return made


def counted(count: int, noun: str) -> str:
    """A number and its noun: 1 partition, 2 partitions."""
    return f"{count:,} {noun}" if count == 1 else f"{count:,} {noun}s"


def listed(names: list[str], shown_max: int = 5) -> str:
    """Names as they stand in a sentence: a, b and 3 more."""
    if len(names) > shown_max:
        return f"{', '.join(names[:shown_max])} and {len(names) - shown_max} more"
    return " and ".join([*([", ".join(names[:-1])] if names[1:] else []), *names[-1:]])
