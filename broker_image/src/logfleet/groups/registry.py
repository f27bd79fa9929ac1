"""The kinds of groups. A new kind is a room in `logfleet.groups` and its line here."""

from collections.abc import Sequence
from typing import Any, Final

from logfleet.groups.classic.groups import CLASSIC
from logfleet.groups.kind import GroupKind
from logfleet.groups.records import OFFSET, RecordTypes

Kinds = Sequence[GroupKind[Any]]

KINDS: Final[Kinds] = (CLASSIC,)


def record_types(kinds: Kinds = KINDS) -> RecordTypes:
    """The types of records of these kinds, and that of committed offsets."""
    return RecordTypes((OFFSET, *(each for kind in kinds for each in kind.records)))
