"""AlterPartitionReassignments and ListPartitionReassignments (KIP-455, KIP-860): what the controller writes for them, and why it refuses.

How a reassignment goes on from there is `replication.reassignment_steps`; the controller looks at each partition whose state changes
(`control.election_writes`), so that it is carried to its end whoever controls by then. Source: ReplicationControlManager.alterPartitionReassignment.

A difference to Kafka: a cancellation, or another target, that takes away at once who holds what is committed is refused unless as many are left in sync as
min.insync.replicas asks for.
"""

from collections.abc import Iterator, Sequence

import msgspec

from logfleet.control.election_writes import offline_replicas
from logfleet.control.store_writes import Refusal, partition_step
from logfleet.control.topics import refuse_assignment
from logfleet.metadata import keys
from logfleet.metadata.image import ClusterImage, Partition, Topic
from logfleet.metadata.packing import Step
from logfleet.metadata.store import Compare, exists
from logfleet.replication.election import reassigned_state
from logfleet.replication.partition_state import effective_min_isr
from logfleet.replication.reassignment_steps import is_reassigning, origin, target
from logfleet.wire import uuids
from logfleet.wire.errors import ErrorCode


def reassign(
    image: ClusterImage,
    name: str,
    index: int,
    replicas: Sequence[int] | None,
    *,
    may_change_factor: bool,
) -> Step | Refusal | None:
    """What is written for a partition to move to these brokers; None if it lies there already, or is on its way.

    replicas: the preferred leader first; None cancels what is under way. may_change_factor: there may be more or fewer of them than now (KIP-860).
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
    """Those of its partitions whose reassignment is under way, by index."""
    for index, partition in enumerate(topic.partitions):
        if is_reassigning(partition):
            yield index, partition


def _step(image: ClusterImage, topic: Topic, index: int, wanted: Sequence[int]) -> Step | Refusal:
    partition = topic.partitions[index]
    offline = offline_replicas(image, topic, index, {*partition.replicas, *wanted})
    after = reassigned_state(partition, wanted, image.brokers, offline=offline)
    needed = effective_min_isr(after)
    goes_at_once = _holders(partition) - set(after.replicas)
    if goes_at_once and len(after.isr) < needed:
        return Refusal(
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            f"Partition {topic.name}-{index} would be left with the in-sync replicas {[each for each, _ in after.isr]}, {needed} are needed: "
            f"wait until more of {list(wanted)} are in sync.",
        )
    key = keys.partition(uuids.to_text(topic.id), index)
    step = partition_step(image, key, after, partition.revision)
    added = sorted(set(after.replicas) - set(partition.replicas))
    known = (_still_known(image, each) for each in added)
    return msgspec.structs.replace(step, compares=(*step.compares, *known))


def _still_known(image: ClusterImage, broker_id: int) -> Compare:
    """That the broker has not been forgotten meanwhile (UnregisterBroker), which a controller whose watch stands still may not see."""
    return exists(keys.fence(broker_id) if broker_id in image.fences else keys.broker(broker_id))


def _holders(partition: Partition) -> set[int]:
    """Who may be the only one to hold what is committed: in sync, eligible, or the last leader where nobody is."""
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
