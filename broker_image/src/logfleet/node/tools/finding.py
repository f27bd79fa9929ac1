"""What `logfleet doctor` finds."""

from collections.abc import Sequence
from enum import StrEnum

import msgspec


class Level(StrEnum):
    OK = "ok"
    WARNING = "warning"
    FAILED = "failed"


class Finding(msgspec.Struct, frozen=True):
    """check: what was looked at, a word or two. message: one sentence; unless level is OK it says what to do."""

    check: str
    level: Level
    message: str


def worst(findings: Sequence[Finding]) -> Level:
    """OK if there are none."""
    order = list(Level)
    return max((each.level for each in findings), key=order.index, default=Level.OK)
