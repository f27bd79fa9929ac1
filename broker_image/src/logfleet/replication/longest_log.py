"""Elects the replica with the longest log, where no replica is sure to hold every committed record.

Logs are compared by their last leader epoch, then by their end offset, as Raft compares the logs of
candidates (section 5.4.1): each leader appends to its predecessor's log, so the greater of two logs
holds all that the lesser one holds. A log whose records were all deleted may have no epoch. If it
is the last leader's log, every log that ends before it lacks committed offsets. The controller asks
the brokers for these ends (Kafka: OffsetForLeaderEpoch) before it elects; a single candidate leads
without that.
"""

from collections.abc import Mapping, Sequence
from typing import Final

from logfleet.metadata.image import Broker
from logfleet.metadata.kinds.topics import PartitionValue
from logfleet.replication.fetch_check import EpochEnd
from logfleet.replication.leader_epochs import NO_EPOCH
from logfleet.replication.partition_state import Member
from logfleet.types import NO_LEADER_EPOCH

LogEnds = Mapping[Member, EpochEnd]
"""(Last leader epoch, end offset) of a replica's log, by registration.

SILENT if it did not reply.
"""
SILENT: Final[EpochEnd] = (NO_LEADER_EPOCH, -1)
"""Less than the end of any log: an empty log ends at offset 0."""
NOBODY_ASKED: Final[LogEnds] = {}


def has_disk(state: PartitionValue, broker: Broker) -> bool:
    """Whether the broker has the log directory in which it led last.

    True if none is recorded (KIP-858).
    """
    is_recorded = broker.id == state.last_leader and state.last_directory
    return not is_recorded or state.last_directory in broker.value.directories


def candidates(
    state: PartitionValue, active: Sequence[Broker], *, unclean: bool
) -> Sequence[Broker]:
    """The replicas among which the longest log decides, the last leader first.

    Empty while a broker must be waited for; with `unclean` none is waited for.
    state: without a leader, and without a replica that may lead cleanly. active: its active
    replicas.
    """
    there = {broker.id for broker in active if has_disk(state, broker)}
    if not unclean and (not _may_ask(state) or not _needed(state) <= there):
        return ()
    return sorted(active, key=lambda broker: broker.id != state.last_leader)


def longest(
    state: PartitionValue, active: Sequence[Broker], log_ends: LogEnds, *, unclean: bool
) -> tuple[Broker, bool] | None:
    """The new leader, and whether it may lack records.

    None while the end of a candidate's log is missing, or a broker that is needed has not replied.
    """
    found = candidates(state, active, unclean=unclean)
    if not found:
        return None
    if len(found) == 1:
        best, replied = found[0], {found[0].id}
    else:
        members = {broker.id: (broker.id, broker.epoch) for broker in found}
        if not log_ends.keys() >= set(members.values()):
            return None
        replied = {each for each, member in members.items() if log_ends[member] != SILENT}
        if not unclean and not _needed(state) <= replied:
            return None
        led = members.get(state.last_leader)
        emptied = 0 if led is None else _emptied_end(log_ends[led])
        ends = {each: log_ends[member] for each, member in members.items()}
        best = max(found, key=lambda broker: (ends[broker.id][1] >= emptied, ends[broker.id]))
    is_whole = state.restored and bool(state.elr) and replied.issuperset(state.elr)
    return best, not is_whole


def _emptied_end(last_leaders: EpochEnd) -> int:
    """The end of the last leader's log if all its records were deleted and it has no epoch.

    Else 0.
    """
    epoch, end_offset = last_leaders
    return max(0, end_offset) if epoch == NO_EPOCH else 0


def _may_ask(state: PartitionValue) -> bool:
    return state.restored or not state.elr


def _needed(state: PartitionValue) -> set[int]:
    """The brokers that an election waits for: the last leader (KIP-966).

    After a restore the former ISR.
    """
    return set(state.elr) or {state.last_leader}
