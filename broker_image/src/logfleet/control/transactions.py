"""How the controller's writes become transactions.

Every transaction compares the controller epoch, so that a controller that was replaced without knowing it writes nothing
more, and what its decision rested on, so that a decision that came too late changes nothing. What does not fit into one
transaction is cut into several that are safe to stop between.
"""

from collections.abc import Iterable, Sequence
from typing import Final

import msgspec

from logfleet.metadata import keys
from logfleet.metadata.image import ClusterImage
from logfleet.metadata.keys import NO_LEADER, PartitionValue
from logfleet.metadata.packing import Step, pack_steps
from logfleet.metadata.store import (
    Compare,
    Delete,
    Get,
    Put,
    Txn,
    created_at,
    entry_bytes,
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
    """The steps in their order, in as few transactions as the store's limits allow.

    first: compares of the first transaction only; rest: those of each later one.
    """
    who = controls(epoch)
    return tuple(
        pack_steps(
            steps,
            first=(who, *first),
            rest=(who, *rest),
            reserved_bytes=entry_bytes(_WHO_CONTROLS),
        )
    )


_WHO_CONTROLS: Final = Get(keys.CONTROLLER)


def repeatable(txn: Txn) -> Txn:
    """The transaction as it is committed: should its compares fail, it reads who controls, and the key of its witness."""
    return Txn(txn.compares, txn.success, (_WHO_CONTROLS, Get(witness(txn).key)))


def witness(txn: Txn) -> Put | Delete:
    """The last write of a single key; in a transaction that must be recognised, one that only controllers write.

    A controller that finds its own key unchanged, and this one as the transaction leaves it, has made it so itself.
    """
    return next(write for write in reversed(txn.success) if isinstance(write, Put | Delete))


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
