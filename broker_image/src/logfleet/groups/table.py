"""The state of one coordinator: its groups in memory, and their stored state.

`stored` and `offsets` are replicated: they equal the state that the partition's log defines, and
only `GroupCoordinator.apply` changes them. `groups` and `timers` live in memory only.
"""

from dataclasses import dataclass, field

from logfleet.coordinators.timers import Timers
from logfleet.groups.classic.group import ClassicGroup
from logfleet.groups.config import GroupConfig
from logfleet.groups.turn import GroupTurn
from logfleet.wire.messages import GroupMetadataValue, OffsetCommitValue


@dataclass(slots=True)
class StoredGroup:
    """A group's last stored generation and the assignments in it, by member id."""

    value: GroupMetadataValue
    assignments: dict[str, bytes]


Offsets = dict[str, dict[int, OffsetCommitValue]]
"""Topic name -> partition -> the committed offset. No empty inner dicts."""


@dataclass(slots=True)
class GroupTable:
    """The groups of one coordinator, their stored state and their timers."""

    config: GroupConfig
    groups: dict[str, ClassicGroup] = field(default_factory=dict)
    stored: dict[str, StoredGroup] = field(default_factory=dict)
    offsets: dict[str, Offsets] = field(default_factory=dict)
    timers: Timers[GroupTurn] = field(default_factory=Timers)

    def assignment(self, group_id: str, member_id: str) -> bytes:
        """A member's assignment in the last stored generation; empty if it has none."""
        stored = self.stored.get(group_id)
        return stored.assignments.get(member_id, b"") if stored is not None else b""
