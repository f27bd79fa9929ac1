"""The classic groups of one coordinator, and their stored state.

`stored` is replicated: it equals the state that the partition's log defines, and only
`ClassicGroups.apply` changes it.
"""

from dataclasses import dataclass, field

from logfleet.groups.classic.group import ClassicGroup
from logfleet.groups.table import GroupTable
from logfleet.wire.messages import GroupMetadataValue


@dataclass(slots=True)
class StoredGroup:
    """A group's last stored generation and the assignments in it, by member id."""

    value: GroupMetadataValue
    assignments: dict[str, bytes]


@dataclass(slots=True)
class ClassicTable:
    """shared: the table of the groups of all kinds."""

    shared: GroupTable
    stored: dict[str, StoredGroup] = field(default_factory=dict)

    def find(self, group_id: str) -> ClassicGroup | None:
        """The classic group of that id; None if there is none, or a group of another kind."""
        group = self.shared.groups.get(group_id)
        return group if isinstance(group, ClassicGroup) else None

    def assignment(self, group_id: str, member_id: str) -> bytes:
        """A member's assignment in the last stored generation; empty if it has none."""
        stored = self.stored.get(group_id)
        return stored.assignments.get(member_id, b"") if stored is not None else b""
