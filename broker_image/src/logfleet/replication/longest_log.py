"""Which replica leads where nobody is known to hold every committed record: the one whose log reaches furthest.

Logs are compared by their last leader epoch, then by their end offset, as Raft compares the logs of candidates (section 5.4.1): each leader appends
to what its predecessor had, so of two logs the greater one holds what the lesser one holds. A log whose records were all deleted may know no
epoch. If it is the last leader's, every log that ends before it lacks offsets that were committed. Brokers are asked for that
(Kafka: OffsetForLeaderEpoch) before somebody is elected; only a replica that is the only candidate leads unasked.
"""

from collections.abc import Mapping, Sequence
from typing import Final

from logfleet.log.epochs import NO_EPOCH
from logfleet.metadata.image import Broker
from logfleet.metadata.keys import PartitionValue
from logfleet.replication.fetch_check import EpochEnd
from logfleet.replication.partition_state import Member

LogEnds = Mapping[Member, EpochEnd]
"""By registration, last leader epoch and end offset (exclusive) of a replica's log; SILENT of one that was asked and did not answer."""
SILENT: Final[EpochEnd] = (-1, -1)
"""Less than any log: an empty one ends at offset 0."""
NOBODY_ASKED: Final[LogEnds] = {}


def has_disk(state: PartitionValue, broker: Broker) -> bool:
    """Whether the broker has the log directory on which it led last, as far as anybody knows (KIP-858)."""
    is_known = broker.id == state.last_leader and state.last_directory
    return not is_known or state.last_directory in broker.value.directories


def candidates(
    state: PartitionValue, active: Sequence[Broker], *, unclean: bool
) -> Sequence[Broker]:
    """Of whom the one with the longest log is to lead, the last leader first; nobody while a broker has to be waited for.

    state: without a leader, and nobody in it may lead cleanly. active: its active replicas that can serve it. unclean: nobody is waited for.
    """
    there = {broker.id for broker in active if has_disk(state, broker)}
    if not unclean and (not _may_ask(state) or not _needed(state) <= there):
        return ()
    return sorted(active, key=lambda broker: broker.id != state.last_leader)


def longest(
    state: PartitionValue, active: Sequence[Broker], log_ends: LogEnds, *, unclean: bool
) -> tuple[Broker, bool] | None:
    """Who leads, and whether records may be lost by it. None while a candidate has not been asked, or who is needed has not answered."""
    found = candidates(state, active, unclean=unclean)
    if not found:
        return None
    if len(found) == 1:
        best, known = found[0], {found[0].id}
    else:
        members = {broker.id: (broker.id, broker.epoch) for broker in found}
        if not log_ends.keys() >= set(members.values()):
            return None
        known = {each for each, member in members.items() if log_ends[member] != SILENT}
        if not unclean and not _needed(state) <= known:
            return None
        led = members.get(state.last_leader)
        emptied = 0 if led is None else _emptied_end(log_ends[led])
        ends = {each: log_ends[member] for each, member in members.items()}
        best = max(found, key=lambda broker: (ends[broker.id][1] >= emptied, ends[broker.id]))
    is_whole = state.restored and bool(state.elr) and known.issuperset(state.elr)
    return best, not is_whole


def _emptied_end(last_leaders: EpochEnd) -> int:
    """Where the last leader's log ends, if it has no records any more and knows no epoch; else 0."""
    epoch, end_offset = last_leaders
    return max(0, end_offset) if epoch == NO_EPOCH else 0


def _may_ask(state: PartitionValue) -> bool:
    return state.restored or not state.elr


def _needed(state: PartitionValue) -> set[int]:
    """Those without whom nobody is elected: the last leader (KIP-966), after a restoring all who were in sync."""
    return set(state.elr) or {state.last_leader}
