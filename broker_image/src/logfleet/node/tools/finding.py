"""The findings of `logfleet doctor`."""

from collections.abc import Sequence
from enum import StrEnum

import msgspec


class Level(StrEnum):
    OK = "ok"
    WARNING = "warning"
    FAILED = "failed"


class Finding(msgspec.Struct, frozen=True):
    """A result of one check. check: its name in a word or two. message: one sentence.

    Unless level is OK, the message says what to do.
    """

    check: str
    level: Level
    message: str


def worst(findings: Sequence[Finding]) -> Level:
    """The worst level of the findings, OK if there are none."""
    order = list(Level)
    return max((each.level for each in findings), key=order.index, default=Level.OK)
