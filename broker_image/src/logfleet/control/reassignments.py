"""AlterPartitionReassignments: Kafka's checks; replicas are not moved yet.

No reassignment is ever under way, so that nothing can be cancelled or listed. Source: ReplicationControlManager.alterPartitionReassignment.
"""

from collections.abc import Sequence

from logfleet.control.topics import refuse_assignment
from logfleet.control.transactions import Refusal
from logfleet.metadata.image import ClusterImage
from logfleet.wire.errors import ErrorCode


def refuse_reassignment(
    image: ClusterImage,
    name: str,
    index: int,
    replicas: Sequence[int] | None,
    *,
    may_change_factor: bool,
) -> Refusal | None:
    """Why a partition is not moved to these brokers; None if it lies there already.

    replicas: None cancels a reassignment. may_change_factor: there may be more or fewer of them than now (KIP-860).
    """
    topic = image.topic(name)
    if topic is None:
        return _unknown(f"Unable to find a topic named {name}.")
    partition = image.partition(topic.id, index)
    if partition is None:
        return _unknown(f"Unable to find partition {name}:{index}.")
    if replicas is None:
        return Refusal(ErrorCode.NO_REASSIGNMENT_IN_PROGRESS, "")
    refusal = refuse_assignment(image, replicas)
    if refusal is not None:
        return refusal
    factor = len(partition.replicas)
    if not may_change_factor and len(replicas) != factor:
        return Refusal(
            ErrorCode.INVALID_REPLICATION_FACTOR,
            f"The replication factor is changed from {factor} to {len(replicas)}",
        )
    if tuple(replicas) == partition.replicas:
        return None
    return Refusal(
        ErrorCode.INVALID_REPLICA_ASSIGNMENT,
        f"Partition {name}-{index} stays on {list(partition.replicas)}: this version does not move "
        "replicas between brokers.",
    )


def _unknown(message: str) -> Refusal:
    return Refusal(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, message)
