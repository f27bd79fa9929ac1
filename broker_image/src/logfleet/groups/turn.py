"""The turn of a group coordinator."""

from logfleet.coordinators.turn import Turn
from logfleet.groups.records import GroupRecord

GroupTurn = Turn[GroupRecord]
