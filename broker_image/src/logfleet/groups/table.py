"""The state that the groups of one coordinator share: their offsets, and their timers.

`offsets` and `staged` are replicated: they equal the state that the partition's log defines, and
only records and markers change them (`logfleet.groups.replay`). `groups` and `timers` live in
memory only.
"""

from dataclasses import dataclass, field

from logfleet.coordinators.timers import Timers
from logfleet.groups.config import GroupConfig
from logfleet.groups.group import Group
from logfleet.groups.staged import StagedOffsets
from logfleet.groups.turn import GroupTurn
from logfleet.wire.messages import OffsetCommitValue

Offsets = dict[str, dict[int, OffsetCommitValue]]
"""Topic name -> partition -> the committed offset. No empty inner dicts."""


@dataclass(slots=True)
class GroupTable:
    """The groups of one coordinator, of all kinds."""

    config: GroupConfig
    groups: dict[str, Group] = field(default_factory=dict)
    offsets: dict[str, Offsets] = field(default_factory=dict)
    staged: StagedOffsets = field(default_factory=StagedOffsets)
    timers: Timers[GroupTurn] = field(default_factory=Timers)
