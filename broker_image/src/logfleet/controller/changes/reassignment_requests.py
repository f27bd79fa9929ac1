"""AlterPartitionReassignments, ListPartitionReassignments: the controller's writes and refusals.

KIP-455, KIP-860. `replication.reassignment_steps` has the further steps of a reassignment; the
controller checks each partition whose state changes (`controller.changes.election_writes`), so it
ends even if the controller changes. Source: ReplicationControlManager.alterPartitionReassignment.
Unlike Kafka, a cancellation or another target is refused if it removes at once a replica that may
hold committed records and leaves fewer than min.insync.replicas in sync.
"""

from collections.abc import Iterator, Sequence

import msgspec

from logfleet.controller.changes.election_writes import offline_replicas
from logfleet.controller.changes.store_writes import partition_step
from logfleet.controller.changes.topics import refuse_assignment
from logfleet.metadata.image import ClusterImage, Partition, Topic
from logfleet.metadata.kinds.brokers import BROKER, FENCE
from logfleet.metadata.kinds.topics import PARTITION
from logfleet.metadata.packing import Step
from logfleet.metadata.store import Compare, exists
from logfleet.replication.election import reassigned_state
from logfleet.replication.partition_state import effective_min_isr
from logfleet.replication.reassignment_steps import is_reassigning, origin, target
from logfleet.wire.errors import ErrorCode
from logfleet.wire.refusal import Refusal


def reassign(
    image: ClusterImage,
    name: str,
    index: int,
    replicas: Sequence[int] | None,
    *,
    may_change_factor: bool,
) -> Step | Refusal | None:
    """The write that moves a partition to these brokers; None if it is there already or on its way.

    replicas: the preferred leader first; None cancels the reassignment. may_change_factor: their
    number may differ from the current one (KIP-860).
    """
    topic = image.topic(name)
    if topic is None:
        return _unknown(f"Unable to find a topic named {name}.")
    partition = image.partition(topic.id, index)
    if partition is None:
        return _unknown(f"Unable to find partition {name}:{index}.")
    if replicas is None and not is_reassigning(partition):
        return Refusal(ErrorCode.NO_REASSIGNMENT_IN_PROGRESS, "")
    if replicas is not None:
        refusal = refuse_assignment(image, replicas) or _refuse_factor(
            partition, replicas, may_change_factor=may_change_factor
        )
        if refusal is not None:
            return refusal
        if tuple(replicas) == target(partition):
            return None
    wanted = origin(partition) if replicas is None else replicas
    return _step(image, topic, index, wanted)


def reassigning(topic: Topic) -> Iterator[tuple[int, Partition]]:
    """The topic's partitions with a reassignment under way, by index."""
    for index, partition in enumerate(topic.partitions):
        if is_reassigning(partition):
            yield index, partition


def _step(image: ClusterImage, topic: Topic, index: int, wanted: Sequence[int]) -> Step | Refusal:
    partition = topic.partitions[index]
    offline = offline_replicas(image, topic, index, {*partition.replicas, *wanted})
    after = reassigned_state(partition, wanted, image.brokers, offline=offline)
    needed = effective_min_isr(after)
    removed_at_once = _holders(partition) - set(after.replicas)
    if removed_at_once and len(after.isr) < needed:
        return Refusal(
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            f"Partition {topic.name}-{index}  would have only the in-sync replicas "
            f"{[each for each, _ in after.isr]}, {needed} are needed: "
            f"wait until more of {list(wanted)} are in sync.",
        )
    key = PARTITION.key((topic.id, index))
    step = partition_step(image, key, after, partition.revision)
    added = sorted(set(after.replicas) - set(partition.replicas))
    registered = (_still_registered(image, each) for each in added)
    return msgspec.structs.replace(step, compares=(*step.compares, *registered))


def _still_registered(image: ClusterImage, broker_id: int) -> Compare:
    """A compare that fails if the broker was unregistered meanwhile.

    A controller whose watch lags may not have seen that.
    """
    return exists(FENCE.key(broker_id) if broker_id in image.fences else BROKER.key(broker_id))


def _holders(partition: Partition) -> set[int]:
    """Replicas of which one may be the only holder of committed records.

    Those in sync or eligible, or the last leader if there are none.
    """
    holders = {*partition.isr_ids, *partition.elr}
    return holders or {partition.last_leader}


def _refuse_factor(
    partition: Partition, replicas: Sequence[int], *, may_change_factor: bool
) -> Refusal | None:
    factor = len(origin(partition))
    if may_change_factor or len(replicas) == factor:
        return None
    message = f"The replication factor is changed from {factor} to {len(replicas)}"
    return Refusal(ErrorCode.INVALID_REPLICATION_FACTOR, message)


def _unknown(message: str) -> Refusal:
    return Refusal(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, message)
