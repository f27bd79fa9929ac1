"""The list of differences that were looked at and may stay: differences.toml, one table per line.

[[difference]]
api = "ApiVersions"          # of the answer; "*": any
versions = "0-4"             # as the message schemas write them; any if left out
field = "api_keys[17].*"     # [] is any row, * is anything
case = "versions/*"          # any if left out
kafka = 0                    # the values, where only these may differ
ours = "<absent>"
reason = "not built yet: ..."
"""

import re
import tomllib
from collections.abc import Iterable
from fnmatch import fnmatchcase
from functools import cached_property
from typing import Any

import msgspec
from logfleet.wire.schema import within

from e2e.oracle.compare import Difference

Value = str | int | bool | float | list[str | int]


class Place(msgspec.Struct, frozen=True):
    """Where an answer was given. case: CORPUS/NAME."""

    case: str
    api: str
    version: int


class Reviewed(msgspec.Struct, frozen=True, forbid_unknown_fields=True, dict=True):
    """One line of the list."""

    api: str
    field: str
    reason: str
    versions: str = "0+"
    case: str = "*"
    kafka: Value | msgspec.UnsetType = msgspec.UNSET
    ours: Value | msgspec.UnsetType = msgspec.UNSET

    @cached_property
    def _pattern(self) -> re.Pattern[str]:
        escaped = re.escape(self.field).replace(r"\[\]", r"\[[^]]*\]").replace(r"\*", ".*")
        return re.compile(escaped)

    def covers(self, place: Place, difference: Difference) -> bool:
        """Whether this line is about that difference."""
        return (
            self.api in {"*", place.api}
            and within(self.versions, place.version)
            and fnmatchcase(place.case, self.case)
            and self._pattern.fullmatch(difference.path) is not None
            and _same(self.kafka, difference.kafka)
            and _same(self.ours, difference.ours)
        )


def _each(table: dict[str, Any]) -> list[dict[str, Any]]:
    """A table of several fields as one of each: each must be needed."""
    fields = table.get("field")
    return [{**table, "field": one} for one in fields] if isinstance(fields, list) else [table]


def _same(wanted: object, value: object) -> bool:
    return wanted is msgspec.UNSET or (wanted == value and type(wanted) is type(value))


class ReviewedList:
    """The lines, and how often each was needed."""

    def __init__(self, lines: Iterable[Reviewed]) -> None:
        self.lines = list(lines)
        self._needed = [False] * len(self.lines)

    @classmethod
    def parse(cls, text: str) -> "ReviewedList":
        """Raises msgspec.ValidationError for a line that has an unknown key or lacks one."""
        tables = tomllib.loads(text).get("difference", [])
        lines = msgspec.convert([one for each in tables for one in _each(each)], list[Reviewed])
        for line in lines:
            if not line.reason.strip():
                raise ValueError(f"a line without a reason: {line}")
        return cls(lines)

    def allows(self, place: Place, difference: Difference) -> bool:
        """Whether a line covers the difference. Every line that does counts as needed."""
        covering = [n for n, line in enumerate(self.lines) if line.covers(place, difference)]
        for number in covering:
            self._needed[number] = True
        return bool(covering)

    def unneeded(self) -> list[Reviewed]:
        """Lines that have covered nothing."""
        return [line for line, used in zip(self.lines, self._needed, strict=True) if not used]
