"""Another set of replicas for a partition, step by step (KIP-455): the new ones are added, and once all that are wanted are in sync, the others go.

What is under way is in the partition's state, so that it outlives whoever asked, any broker and the controller: `replicas` is the target followed by what will go;
`adding` are those of it that were not there before, `removing` those that will go. The *origin*, to which a cancelled reassignment goes back, is `replicas` without `adding`.

Source: PartitionReassignmentReplicas, PartitionReassignmentRevert. Differences to Kafka: a second target is taken as if it had been the first, so that the origin
stays (Kafka would count what the first one added as part of it); what neither has goes at once.
"""

from collections.abc import Collection, Sequence

from logfleet.metadata.keys import PartitionValue


def origin(state: PartitionValue) -> tuple[int, ...]:
    """Where the replicas were before the reassignment that is under way, or are if there is none."""
    return _without(state.replicas, state.adding)


def target(state: PartitionValue) -> tuple[int, ...]:
    """Where they will be when it is done."""
    return _without(state.replicas, state.removing)


def is_reassigning(state: PartitionValue) -> bool:
    return bool(state.adding or state.removing)


def with_target(state: PartitionValue, wanted: Sequence[int]) -> PartitionValue:
    """The state on the way to these replicas, from the origin of what was under way. ISR and leader are as they were: `replication.election` looks at them.

    wanted: distinct broker ids, the preferred leader first; the origin to cancel.
    """
    before = origin(state)
    removing = sorted(_without(before, wanted))
    return state.changed(
        replicas=(*wanted, *removing),
        adding=tuple(sorted(_without(wanted, before))),
        removing=tuple(removing),
    )


def completed(state: PartitionValue) -> PartitionValue:
    """The state at the target, if every replica of it is in sync, with an ISR of these only; else as it is.

    The leader is as it was, and may be one that goes: `replication.election` chooses another one then.
    """
    wanted = target(state)
    members = dict(state.isr)
    if not is_reassigning(state) or any(each not in members for each in wanted):
        return state
    return state.changed(
        replicas=wanted,
        adding=(),
        removing=(),
        isr=tuple((each, members[each]) for each in wanted),
        elr=(),
    )


def _without(ids: Sequence[int], others: Collection[int]) -> tuple[int, ...]:
    return tuple(each for each in ids if each not in others)
