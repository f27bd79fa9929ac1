"""The steps of a reassignment (KIP-455): add the new replicas.

Once all are in sync, remove the old.

The plan is in the partition's state, so it survives the client, every broker and the controller:
`replicas` is the target, followed by the replicas to remove; `adding` are the new ones; `removing`
are the ones to remove. The *origin* is `replicas` without `adding`: a cancelled reassignment
returns to it.

Source: PartitionReassignmentReplicas, PartitionReassignmentRevert. Two differences to Kafka: a
second target replaces the first and keeps its origin (Kafka counts the replicas that the first one
added as part of the origin); replicas that are in neither are removed at once.
"""

from collections.abc import Collection, Sequence

from logfleet.metadata.kinds.topics import PartitionValue


def origin(state: PartitionValue) -> tuple[int, ...]:
    """The replicas before the current reassignment; the replicas if there is none."""
    return _without(state.replicas, state.adding)


def target(state: PartitionValue) -> tuple[int, ...]:
    """The replicas after the current reassignment."""
    return _without(state.replicas, state.removing)


def is_reassigning(state: PartitionValue) -> bool:
    return bool(state.adding or state.removing)


def with_target(state: PartitionValue, wanted: Sequence[int]) -> PartitionValue:
    """The state with the target `wanted`, from the origin of the current reassignment.

    ISR and leader do not change here; `replication.election` decides on them.
    wanted: distinct broker ids, the preferred leader first. The origin as target cancels.
    """
    before = origin(state)
    removing = sorted(_without(before, wanted))
    return state.changed(
        replicas=(*wanted, *removing),
        adding=tuple(sorted(_without(wanted, before))),
        removing=tuple(removing),
    )


def completed(state: PartitionValue) -> PartitionValue:
    """The completed reassignment, if every replica of the target is in sync; else `state`.

    The ISR holds only the target then. The leader does not change, and may be a replica that was
    removed: `replication.election` then elects another one.
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
