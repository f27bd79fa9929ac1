"""Who leads a partition: the controller's rules, over one partition and the brokers of an image.

In this order:

1. the leader stays while it is in the ISR and active;
2. else the first active replica of the ISR, in the order of preference and then of assignment: those that have only just started come last, and where a leader that
   stops hands over, those that a roll may already have replaced come first (`logfleet.control.elections.preferences`); a draining one only where no active one is left;
3. the ISR is empty: the first active eligible leader (KIP-966), as it holds every committed record;
4. nobody is eligible either: the last leader, if it has the disk on which it led (KIP-858; KIP-966: last known leader);
5. the ISR is empty and unclean.leader.election.enable is set, or the partition was given up: the first active replica;
6. nobody.

By 4 and 5 records may be lost: that leader is `recovering`, and alone in the ISR. Who is in the ISR is a registration, never just an
id (KIP-903): a broker that is gone, fenced, registered anew or without the log directory leaves it, the last member too. A draining one
leaves as soon as those that stay are enough.
"""

from collections.abc import Collection, Mapping, Sequence

from logfleet.metadata.image import Broker
from logfleet.metadata.keys import NO_LEADER, PartitionValue
from logfleet.replication.partition_state import Member, effective_min_isr, with_isr
from logfleet.replication.reassignment import completed, is_reassigning, with_target

Brokers = Mapping[int, Broker]
"""Those registered, by id, as an image shows them."""
Preferences = Mapping[int, int]
"""By broker id, the lowest first; 0 where it has none. What is below 0 counts only where a leader hands over."""
NO_PREFERENCES: Preferences = {}


def first_state(replicas: Sequence[int], brokers: Brokers, min_isr: int) -> PartitionValue | None:
    """The state of a new partition: who is active is in sync, the first of them leads. None if nobody is active."""
    active = [brokers[each] for each in replicas if each in brokers and brokers[each].is_active]
    if not active:
        return None
    isr = tuple((broker.id, broker.epoch) for broker in active)
    state = PartitionValue(tuple(replicas), isr, NO_LEADER, 0, 0, min_isr)
    return _led_by(active[0], state, 0).changed(partition_epoch=0)


def next_state(
    state: PartitionValue,
    brokers: Brokers,
    *,
    min_isr: int,
    unclean: bool = False,
    offline: Collection[int] = (),
    preferences: Preferences = NO_PREFERENCES,
) -> PartitionValue | None:
    """The state that replaces `state`; None if it is right.

    min_isr: min.insync.replicas in force. unclean: whether rule 5 holds. offline: replicas in log directories that failed. preferences: between those that may
    lead by rule 2.
    """
    if _is_settled(state, brokers, min_isr, offline):
        return None
    wanted = state.changed(min_isr=min_isr, last_leader=_last_leader(state))
    after = _replacing(
        state, wanted, brokers, unclean=unclean, offline=offline, preferences=preferences
    )
    return None if after == state.changed() else after


def reassigned_state(
    state: PartitionValue,
    wanted: Sequence[int],
    brokers: Brokers,
    *,
    offline: Collection[int] = (),
) -> PartitionValue:
    """The state on the way to these replicas (`replication.reassignment`), or there already. offline: as in `next_state`."""
    return _replacing(state, with_target(state, wanted), brokers, unclean=False, offline=offline)


def _replacing(
    state: PartitionValue,
    wanted: PartitionValue,
    brokers: Brokers,
    *,
    unclean: bool,
    offline: Collection[int],
    preferences: Preferences = NO_PREFERENCES,
) -> PartitionValue:
    """What replaces `state`: `wanted`, with those in sync who are still, at the end of its reassignment if it has come there, and with a leader.

    A replica that has gone cannot take part any more in the leader epoch that it knew (Kafka: triggerLeaderEpochBumpForReplicaReassignmentIfNeeded).
    """
    present = _present(wanted, brokers, offline)
    lost = [each for each in wanted.replicas if each in brokers and _lost_records(brokers[each])]
    in_sync = with_isr(wanted, _in_sync(wanted, present), unclean=lost)
    done = completed(in_sync)
    there = {each: present[each] for each in done.replicas if each in present}
    after = _elected(
        done,
        there,
        state.leader_epoch + 1,
        unclean=unclean or state.given_up,
        preferences=preferences,
    )
    has_lost_any = not set(state.replicas) <= set(after.replicas)
    leader_epoch = state.leader_epoch + 1 if has_lost_any else after.leader_epoch
    return after.changed(partition_epoch=state.partition_epoch + 1, leader_epoch=leader_epoch)


def preferred_state(
    state: PartitionValue, brokers: Brokers, offline: Collection[int] = ()
) -> PartitionValue | None:
    """The state led by the first replica; None if it leads, or is not in sync and active."""
    broker = _present(state, brokers, offline).get(state.replicas[0])
    if broker is None or not broker.is_active or state.leader == broker.id:
        return None
    if (broker.id, broker.epoch) not in state.isr:
        return None
    return _led_by(broker, state, state.leader_epoch + 1)


def is_unclean(before: PartitionValue, after: PartitionValue) -> bool:
    """Whether the change elects a leader that may lack records (Kafka: UncleanLeaderElectionsPerSec)."""
    return after.recovering and after.leader_epoch != before.leader_epoch


def _is_settled(
    state: PartitionValue, brokers: Brokers, min_isr: int, offline: Collection[int]
) -> bool:
    """Whether nothing is to be done, seen at a glance: so are nearly all partitions whenever something happens to a broker."""
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

    Once the controller has made it active, only what it copied since counts.
    """
    return broker.is_new and (broker.value.unclean or _has_older_disk(broker))


def _has_older_disk(broker: Broker) -> bool:
    """Whether its disk is not the one that its last active registration wrote (KIP-966).

    A version that does not send the previous epoch is believed, as is a broker that was never active.
    """
    previous, last = broker.value.previous_epoch, broker.last_epoch
    return previous is not None and last is not None and previous != last


def _last_leader(state: PartitionValue) -> int:
    """Of a state that a version wrote which kept no last leader: who leads, or alone was in sync."""
    known = (state.last_leader, state.leader, *(broker_id for broker_id, _ in state.isr))
    return next((each for each in known if each != NO_LEADER), NO_LEADER)


def _in_sync(state: PartitionValue, present: Brokers) -> list[Member]:
    """Who stays in the ISR; draining brokers only where it would be too small without them."""
    isr = [each for each in state.isr if each[0] in present and present[each[0]].epoch == each[1]]
    active = [each for each in isr if present[each[0]].is_active]
    return active if len(active) >= effective_min_isr(state) else isr


def _elected(
    state: PartitionValue,
    present: Brokers,
    leader_epoch: int,
    *,
    unclean: bool,
    preferences: Preferences,
) -> PartitionValue:
    """With a leader, if there can be one. state: its ISR holds whom it should; leader_epoch: of another leader than `state` has."""
    active = [broker for broker in present.values() if broker.is_active]
    if state.isr:
        ids = [broker_id for broker_id, _ in state.isr]
        candidates = [broker.id for broker in active if broker.id in ids] or ids
        if state.leader in candidates:
            return state
        hands_over = (last := present.get(state.last_leader)) is not None and last.is_draining
        if not hands_over:
            preferences = {each: place for each, place in preferences.items() if place > 0}
        best = min(candidates, key=lambda each: preferences.get(each, 0))
        return _led_by(present[best], state, leader_epoch)
    with_disk = [broker for broker in active if _has_disk(state, broker)]
    eligible = next((broker for broker in with_disk if broker.id in state.elr), None)
    if eligible is not None:
        alone = with_isr(state, [(eligible.id, eligible.epoch)])
        return _led_by(eligible, alone, leader_epoch)
    left = [broker for broker in with_disk if broker.id == state.last_leader and not state.elr]
    left += active if unclean else []
    if not left:
        return state
    alone = with_isr(state.changed(elr=()), [(left[0].id, left[0].epoch)])
    return _led_by(left[0], alone, leader_epoch).changed(recovering=True)


def _has_disk(state: PartitionValue, broker: Broker) -> bool:
    """Whether it has the log directory on which it led last, as far as anybody knows."""
    is_known = broker.id == state.last_leader and state.last_directory
    return not is_known or state.last_directory in broker.value.directories


def _led_by(broker: Broker, state: PartitionValue, leader_epoch: int) -> PartitionValue:
    """A broker with several log directories does not say in which one the replica is; what is offline it does say."""
    directories = broker.value.directories
    return state.changed(
        leader=broker.id,
        leader_epoch=leader_epoch,
        last_leader=broker.id,
        last_directory=directories[0] if len(directories) == 1 else "",
        recovering=False,
        given_up=False,
    )
