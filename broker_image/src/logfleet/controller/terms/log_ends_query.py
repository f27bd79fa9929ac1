"""Asks replicas how far their logs reach, before an election that may lose records.

Each broker is asked for all its replicas at once, and again, after a pause, for those that it did
not report: it refused a connection, or still sees a leader. A report counts for the registration
that was asked, the first one per replica, and only until LOG_ENDS_MS_MAX have passed. Replicas that
are missing then are SILENT.
"""

from collections.abc import Iterable, Sequence
from typing import Final

import msgspec

from logfleet.controller.changes.election_writes import (
    LogEndsByPartition,
    PartitionId,
    ReplicasToAsk,
)
from logfleet.replication.fetch_check import EpochEnd
from logfleet.replication.longest_log import SILENT
from logfleet.replication.partition_state import Member

LOG_ENDS_MS_MAX: Final = 2_000
"""A broker that has not reported by then counts as silent.

A broker that has just started serves a moment after it was admitted.
"""
PAUSE_MS: Final = 100
"""Pause before a broker is asked again."""


class Ask(msgspec.Struct, frozen=True):
    """Ask this broker for these partitions; `LogEndsQuery.ended` once no more reports come."""

    member: Member
    partitions: Sequence[PartitionId]


class LogEndsQuery:
    """One query. Take the `asks` that are due at its begin and at `due_ms`, until `is_over`."""

    def __init__(self, asked: ReplicasToAsk, now_ms: int) -> None:
        self._until_ms = now_ms + LOG_ENDS_MS_MAX
        self._found: dict[PartitionId, dict[Member, EpochEnd]] = {}
        self._missing: dict[Member, dict[PartitionId, None]] = {}
        for partition, brokers in asked.items():
            self._found[partition] = {(each.id, each.epoch): SILENT for each in brokers}
            for member in self._found[partition]:
                self._missing.setdefault(member, {})[partition] = None
        self._next_ms = dict.fromkeys(self._missing, now_ms)
        """When a broker is asked next; one that is being asked is not in it."""

    @property
    def found(self) -> LogEndsByPartition:
        return self._found

    @property
    def due_ms(self) -> int:
        """When the query has something to do, though no report comes."""
        return min((self._until_ms, *self._next_ms.values()))

    def is_over(self, now_ms: int) -> bool:
        return not self._missing or now_ms >= self._until_ms

    def asks(self, now_ms: int) -> list[Ask]:
        """What is to be asked now."""
        if self.is_over(now_ms):
            return []
        due = [member for member, at_ms in self._next_ms.items() if at_ms <= now_ms]
        for member in due:
            del self._next_ms[member]
        return [Ask(member, tuple(self._missing[member])) for member in due]

    def reported(
        self, member: Member, ends: Iterable[tuple[PartitionId, EpochEnd]], now_ms: int
    ) -> None:
        """A broker reports the ends of some of its logs."""
        missing = self._missing.get(member, {})
        if self.is_over(now_ms):
            return
        for partition, end in ends:
            if partition in missing and end != SILENT:
                del missing[partition]
                self._found[partition][member] = end
        if not missing:
            self._missing.pop(member, None)

    def gave_up(self, member: Member) -> None:
        """This broker cannot be asked at all: it has no address for brokers."""
        self._missing.pop(member, None)

    def ended(self, member: Member, now_ms: int) -> None:
        """This attempt at a broker is over, whether it reported or not."""
        if member in self._missing:
            self._next_ms[member] = now_ms + PAUSE_MS
