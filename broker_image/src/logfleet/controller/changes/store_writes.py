"""How the controller's writes become transactions.

Each compares the controller epoch, so that a controller that was replaced and has not noticed it
writes nothing, and the keys that the decision depended on, so that a decision that comes too late
changes nothing. Writes that do not fit into one transaction are split into several that are safe to
stop between.
"""

from collections.abc import Iterable, Sequence

from logfleet.metadata.image import ClusterImage
from logfleet.metadata.kinds.cluster import CONTROLLER
from logfleet.metadata.kinds.topics import NO_LEADER, PARTITION, PartitionValue
from logfleet.metadata.packing import Step, pack_steps
from logfleet.metadata.receipts import RECEIPT_BYTES_MAX
from logfleet.metadata.store import (
    Compare,
    Put,
    Txn,
    created_at,
    modified_at,
)
from logfleet.replication.partition_state import still_active


def controls(epoch: int) -> Compare:
    """True until the controller of that epoch (the create revision of its key) is replaced."""
    return created_at(CONTROLLER.key(None), epoch)


def pack(
    epoch: int,
    steps: Iterable[Step],
    *,
    first: Sequence[Compare] = (),
    rest: Sequence[Compare] = (),
) -> tuple[Txn, ...]:
    """The steps in order, in as few transactions as possible, each with room for a receipt.

    first: compares of the first transaction only; rest: those of each later one.
    """
    is_controller = controls(epoch)
    return tuple(
        pack_steps(
            steps,
            first=(is_controller, *first),
            rest=(is_controller, *rest),
            reserved=1,
            reserved_bytes=RECEIPT_BYTES_MAX,
        )
    )


def partition_step(
    image: ClusterImage, key: str, value: PartitionValue, revision: int | None = None
) -> Step:
    """Write a partition's state if its leader is still registered and active as at its election.

    revision: of the state which `value` replaces; None for a new partition.
    """
    compares: tuple[Compare, ...] = ()
    if revision is not None:
        compares += (modified_at(key, revision),)
    if value.leader != NO_LEADER:
        compares += still_active(image, value.leader)
    return Step(Put(key, PARTITION.encode(value)), compares)
