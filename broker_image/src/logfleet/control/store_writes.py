"""How the controller's writes become transactions.

Every transaction compares the controller epoch, so that a controller that was replaced without knowing it writes nothing
more, and what its decision rested on, so that a decision that came too late changes nothing. What does not fit into one
transaction is cut into several that are safe to stop between.
"""

from collections.abc import Iterable, Sequence

import msgspec

from logfleet.metadata import keys
from logfleet.metadata.image import ClusterImage
from logfleet.metadata.keys import NO_LEADER, PartitionValue
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
from logfleet.wire.errors import ErrorCode


class Refusal(msgspec.Struct, frozen=True):
    """Why a request changes nothing: Kafka's code and a sentence for the user."""

    error: ErrorCode
    message: str


def controls(epoch: int) -> Compare:
    """True while the controller of that epoch (the create revision of its key) has not been replaced."""
    return created_at(keys.CONTROLLER, epoch)


def pack(
    epoch: int,
    steps: Iterable[Step],
    *,
    first: Sequence[Compare] = (),
    rest: Sequence[Compare] = (),
) -> tuple[Txn, ...]:
    """The steps in their order, in as few transactions as the store's limits allow, with room for a receipt in each.

    first: compares of the first transaction only; rest: those of each later one.
    """
    who = controls(epoch)
    return tuple(
        pack_steps(
            steps,
            first=(who, *first),
            rest=(who, *rest),
            reserved=1,
            reserved_bytes=RECEIPT_BYTES_MAX,
        )
    )


def partition_step(
    image: ClusterImage, key: str, value: PartitionValue, revision: int | None = None
) -> Step:
    """Write a partition's state if its leader is still the registered, active broker that was elected.

    revision: the one that wrote the state which `value` replaces; None for a new partition.
    """
    compares: tuple[Compare, ...] = ()
    if revision is not None:
        compares += (modified_at(key, revision),)
    if value.leader != NO_LEADER:
        compares += still_active(image, value.leader)
    return Step(Put(key, keys.encode(value)), compares)
