"""Election of a partition's leader.

The controller's rules, over one partition and an image's brokers.

The first rule that applies decides:

1. the leader stays while it is in the ISR and active;
2. else the first active replica of the ISR leads, by preference and then by assignment: brokers
   that have just started come last; when a leader hands over before it stops, brokers that the roll
   has already replaced come first (`logfleet.controller.changes.election_writes.preferences`); a
   draining broker leads only if no active one is left;
3. the ISR is empty: the first active eligible leader leads (KIP-966), as it holds every committed
   record;
4. no replica is eligible: once the last leader is active with the disk on which it led (KIP-966:
   last known leader; KIP-858), the active replica with the longest log leads
   (`replication.longest_log`). The last leader lost records, or it would be eligible; another
   replica may still have them;
5. the ISR is empty, and unclean.leader.election.enable is set or the partition was given up: the
   active replica with the longest log leads; the last leader is not waited for;
6. otherwise the partition has no leader.

Rules 4 and 5 may lose records: such a leader is `recovering`, and alone in the ISR. Both rules
compare the ends of the logs, unless only one replica is active.

After the metadata store is restored from a backup, `elr` names former members of the ISR, and some
of them may have fallen behind since. Rule 3 does not apply then: once all of them are active and
have replied, the active replica with the longest log leads, and no record is lost. A broker that
reports that it lacks the partition is not waited for: the partition moved away after the backup.

A member of the ISR is a registration, never just an id (KIP-903). A broker that is gone, fenced,
registered again or without the log directory leaves the ISR, even as its last member. A draining
broker leaves it as soon as the remaining members are enough.
"""

from collections.abc import Collection, Mapping, Sequence

from logfleet.metadata.image import Broker
from logfleet.metadata.kinds.topics import NO_LEADER, PartitionValue
from logfleet.replication.longest_log import (
    NOBODY_ASKED,
    LogEnds,
    candidates,
    has_disk,
    longest,
)
from logfleet.replication.partition_state import Member, effective_min_isr, with_isr
from logfleet.replication.reassignment_steps import completed, is_reassigning, with_target
from logfleet.types import LeaderEpoch, PartitionEpoch

Brokers = Mapping[int, Broker]
"""Registered brokers by id, as an image shows them."""
Preferences = Mapping[int, int]
"""Rank by broker id; the lowest leads first, 0 is the default.

Ranks below 0 apply only at a hand-over.
"""
NO_PREFERENCES: Preferences = {}


def first_state(replicas: Sequence[int], brokers: Brokers, min_isr: int) -> PartitionValue | None:
    """The state of a new partition: its active replicas are the ISR, the first of them leads.

    None if no replica is active.
    """
    active = [brokers[each] for each in replicas if each in brokers and brokers[each].is_active]
    if not active:
        return None
    isr = tuple((broker.id, broker.epoch) for broker in active)
    state = PartitionValue(
        tuple(replicas), isr, NO_LEADER, LeaderEpoch(0), PartitionEpoch(0), min_isr
    )
    return _led_by(active[0], state, LeaderEpoch(0)).changed(partition_epoch=0)


def next_state(
    state: PartitionValue,
    brokers: Brokers,
    *,
    min_isr: int,
    unclean: bool = False,
    offline: Collection[int] = (),
    preferences: Preferences = NO_PREFERENCES,
    log_ends: LogEnds | None = NOBODY_ASKED,
) -> PartitionValue | None:
    """The state that replaces `state`; None if `state` may stay.

    min_isr: min.insync.replicas in force. unclean: unclean.leader.election.enable.
    offline: brokers whose replica lies in a failed log directory. preferences: ranks for rule 2.
    log_ends: of the replicas that `replicas_to_query` returns; None: unknown, so rules that need
    them elect no leader.
    """
    if _is_settled(state, brokers, min_isr, offline):
        return None
    wanted = state.changed(min_isr=min_isr, last_leader=_last_leader(state))
    after = _replacing(
        state,
        wanted,
        brokers,
        unclean=unclean,
        offline=offline,
        preferences=preferences,
        log_ends=log_ends,
    )
    return None if after == state.changed() else after


def replicas_to_query(
    state: PartitionValue, brokers: Brokers, *, unclean: bool, offline: Collection[int] = ()
) -> list[Broker]:
    """The replicas whose log ends `next_state` needs to elect a leader; empty if it needs none.

    unclean, offline: as in `next_state`.
    """
    if state.leader != NO_LEADER or state.isr:
        return []
    active = _active(_present(state, brokers, offline))
    if not state.restored and _eligible(state, active) is not None:
        return []
    found = candidates(state, active, unclean=unclean or state.given_up)
    return list(found) if len(found) > 1 else []


def reassigned_state(
    state: PartitionValue,
    wanted: Sequence[int],
    brokers: Brokers,
    *,
    offline: Collection[int] = (),
) -> PartitionValue:
    """The next state of a reassignment to `wanted` (`replication.reassignment_steps`).

    offline: as in `next_state`. Never elects a leader that may lack records.
    """
    moving = with_target(state, wanted)
    return _replacing(state, moving, brokers, unclean=False, offline=offline, log_ends=None)


def _replacing(
    state: PartitionValue,
    wanted: PartitionValue,
    brokers: Brokers,
    *,
    unclean: bool,
    offline: Collection[int],
    preferences: Preferences = NO_PREFERENCES,
    log_ends: LogEnds | None,
) -> PartitionValue:
    """`wanted` with its present ISR, its reassignment completed if it can be, and a leader.

    If a replica is removed the leader epoch grows, so that the replica cannot take part in the
    epoch that it has seen (Kafka: triggerLeaderEpochBumpForReplicaReassignmentIfNeeded).
    """
    present = _present(wanted, brokers, offline)
    registered = [brokers[each] for each in wanted.replicas if each in brokers]
    lost = [each.id for each in registered if _lost_records(each)]
    if wanted.restored:
        lost += [each.id for each in registered if each.is_active and each.id in offline]
    in_sync = with_isr(wanted, _in_sync(wanted, present), unclean=lost)
    done = completed(in_sync)
    there = {each: present[each] for each in done.replicas if each in present}
    next_epoch = LeaderEpoch(state.leader_epoch + 1)
    after = _elected(
        done,
        there,
        next_epoch,
        unclean=unclean or state.given_up,
        preferences=preferences,
        log_ends=log_ends,
    )
    has_lost_any = not set(state.replicas) <= set(after.replicas)
    leader_epoch = next_epoch if has_lost_any else after.leader_epoch
    return after.changed(partition_epoch=state.partition_epoch + 1, leader_epoch=leader_epoch)


def preferred_state(
    state: PartitionValue, brokers: Brokers, offline: Collection[int] = ()
) -> PartitionValue | None:
    """The state led by the preferred leader.

    None if it leads already, or is not in sync and active.
    """
    broker = _present(state, brokers, offline).get(state.replicas[0])
    if broker is None or not broker.is_active or state.leader == broker.id:
        return None
    if (broker.id, broker.epoch) not in state.isr:
        return None
    return _led_by(broker, state, LeaderEpoch(state.leader_epoch + 1))


def is_unclean(before: PartitionValue, after: PartitionValue) -> bool:
    """Whether the change elects a leader that may lack records.

    Source: Kafka: UncleanLeaderElectionsPerSec.
    """
    is_elected = after.leader != NO_LEADER and after.leader_epoch != before.leader_epoch
    return after.recovering and is_elected


def _is_settled(
    state: PartitionValue, brokers: Brokers, min_isr: int, offline: Collection[int]
) -> bool:
    """A quick check that `state` may stay.

    Nearly all partitions pass it when one broker changes.
    """
    if state.leader == NO_LEADER or state.min_isr != min_isr or state.elr or offline:
        return False
    if is_reassigning(state):
        return False
    for broker_id, epoch in state.isr:
        broker = brokers.get(broker_id)
        if broker is None or broker.epoch != epoch or not broker.is_active:
            return False
    return True


def _present(
    state: PartitionValue, brokers: Brokers, offline: Collection[int]
) -> dict[int, Broker]:
    return {
        each: brokers[each]
        for each in state.replicas
        if each in brokers and not brokers[each].is_fenced and each not in offline
    }


def _lost_records(broker: Broker) -> bool:
    """Whether its logs may lack records that it acknowledged before this registration.

    Only a broker that the controller has not made active yet can: afterwards the ISR holds only
    what it has copied since.
    """
    return broker.is_new and (broker.value.unclean or _has_older_disk(broker))


def _has_older_disk(broker: Broker) -> bool:
    """Whether its disk is older than its last active registration (KIP-966).

    False for a broker whose version sends no previous epoch, and for one that was never active.
    """
    previous, last = broker.value.previous_epoch, broker.last_epoch
    return previous is not None and last is not None and previous != last


def _last_leader(state: PartitionValue) -> int:
    """The last leader.

    An older version did not store it: then the leader or a member of the ISR.
    """
    leaders = (state.last_leader, state.leader, *(broker_id for broker_id, _ in state.isr))
    return next((each for each in leaders if each != NO_LEADER), NO_LEADER)


def _in_sync(state: PartitionValue, present: Brokers) -> list[Member]:
    """The members that stay in the ISR.

    Draining brokers stay only if it would be too small otherwise.
    """
    isr = [each for each in state.isr if each[0] in present and present[each[0]].epoch == each[1]]
    active = [each for each in isr if present[each[0]].is_active]
    return active if len(active) >= effective_min_isr(state) else isr


def _elected(
    state: PartitionValue,
    present: Brokers,
    leader_epoch: LeaderEpoch,
    *,
    unclean: bool,
    preferences: Preferences,
    log_ends: LogEnds | None,
) -> PartitionValue:
    """`state` with a leader, if a rule finds one.

    state: with its new ISR. leader_epoch: for a leader other than the one of `state`.
    """
    active = _active(present)
    if state.isr:
        ids = [broker_id for broker_id, _ in state.isr]
        may_lead = [broker.id for broker in active if broker.id in ids] or ids
        if state.leader in may_lead:
            return state
        hands_over = (last := present.get(state.last_leader)) is not None and last.is_draining
        if not hands_over:
            preferences = {each: place for each, place in preferences.items() if place > 0}
        best = min(may_lead, key=lambda each: preferences.get(each, 0))
        return _led_by(present[best], state, leader_epoch)
    eligible = None if state.restored else _eligible(state, active)
    if eligible is not None:
        alone = with_isr(state, [(eligible.id, eligible.epoch)])
        return _led_by(eligible, alone, leader_epoch)
    found = None if log_ends is None else longest(state, active, log_ends, unclean=unclean)
    if found is None:
        return state
    leader, may_lack_records = found
    alone = with_isr(state.changed(elr=()), [(leader.id, leader.epoch)])
    return _led_by(leader, alone, leader_epoch).changed(recovering=may_lack_records)


def _active(present: Brokers) -> list[Broker]:
    return [broker for broker in present.values() if broker.is_active]


def _eligible(state: PartitionValue, active: Sequence[Broker]) -> Broker | None:
    """The first active eligible leader that has its disk."""
    return next((each for each in active if each.id in state.elr and has_disk(state, each)), None)


def _led_by(broker: Broker, state: PartitionValue, leader_epoch: LeaderEpoch) -> PartitionValue:
    """`state` led by `broker`.

    last_directory stays empty for a broker with several log directories: it reports only which
    replicas are offline, not in which directory each one lies.
    """
    directories = broker.value.directories
    return state.changed(
        leader=broker.id,
        leader_epoch=leader_epoch,
        last_leader=broker.id,
        last_directory=directories[0] if len(directories) == 1 else "",
        recovering=False,
        given_up=False,
        restored=False,
    )
