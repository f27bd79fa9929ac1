"""A kind of groups: its records in `__consumer_offsets`, and its groups in a coordinator.

A kind is a room, as `logfleet.groups.classic`. `logfleet.groups.registry` lists the kinds.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Generic, Protocol, TypeVar

from logfleet.groups.records import RecordType
from logfleet.groups.table import GroupTable
from logfleet.groups.turn import GroupTurn


class Groups(Protocol):
    """The groups of one kind in a coordinator, and the rules of their requests."""

    def apply(self, record: Any, /) -> None:
        """Apply a record of the kind (`GroupKind.records`): the only change of its stored state."""

    def take_up(self, begin_turn: Callable[[], GroupTurn]) -> Iterator[GroupTurn]:
        """Activate the stored groups, each in a turn; see `Coordinator.take_up`."""


G = TypeVar("G", bound=Groups)


@dataclass(frozen=True, eq=False, slots=True)
class GroupKind(Generic[G]):
    """records: the types of its records. open: its groups for the table of a coordinator.

    There are none yet: they are added to the table as they are stored or made.
    """

    records: Sequence[RecordType[Any, Any]]
    open: Callable[[GroupTable], G]
