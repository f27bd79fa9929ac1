"""The list of differences that were looked at and may stay: differences.toml, one table per line.

[[difference]]
api = "ApiVersions"          # of the answer; "*": any
versions = "0-4"             # as the message schemas write them; any if left out
field = "api_keys[17].*"     # [] is any row, * is anything
case = "versions/*"          # any if left out
kafka = 0                    # the values, where only these may differ
ours = "<absent>"
reason = "not built yet: ..."

api, field and case may be lists: each combination is a line of its own, and must be needed.
"""

import itertools
import re
import tomllib
from collections.abc import Iterable
from fnmatch import fnmatchcase
from functools import cached_property
from typing import Any

import msgspec
from logfleet.wire.schema import within

from e2e.compare.differences import Difference

SEVERAL = ("api", "field", "case")
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
    """A table with lists as one of each combination."""
    lists = {name: table[name] for name in SEVERAL if isinstance(table.get(name), list)}
    return [
        {**table, **dict(zip(lists, chosen, strict=True))}
        for chosen in itertools.product(*lists.values())
    ]


def _same(wanted: object, value: object) -> bool:
    return wanted is msgspec.UNSET or (wanted == value and type(wanted) is type(value))


class ReviewedList:
    """The lines, and how often each was needed."""

    def __init__(self, lines: Iterable[Reviewed]) -> None:
        self.lines = list(lines)
        self._covering: set[frozenset[int]] = set()

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
        """Whether a line covers the difference."""
        lines = enumerate(self.lines)
        covering = frozenset(n for n, line in lines if line.covers(place, difference))
        if covering:
            self._covering.add(covering)
        return bool(covering)

    def unneeded(self) -> list[Reviewed]:
        """Lines that could be left out: they have covered nothing, or only what other lines cover as well."""
        needed = {number for each in self._covering if len(each) == 1 for number in each}
        for each in sorted(self._covering, key=sorted):
            if needed.isdisjoint(each):
                needed.add(min(each))
        return [line for number, line in enumerate(self.lines) if number not in needed]
