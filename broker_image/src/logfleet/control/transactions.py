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
from logfleet.metadata.store import (
    TXN_BYTES_MAX,
    TXN_OPERATIONS_MAX,
    Compare,
    Delete,
    DeletePrefix,
    Get,
    Put,
    Txn,
    compare_bytes,
    created_at,
    modified_at,
    operation_bytes,
    txn_bytes,
)
from logfleet.wire.errors import ErrorCode


class Refusal(msgspec.Struct, frozen=True):
    """Why a request changes nothing: Kafka's code and a sentence for the user."""

    error: ErrorCode
    message: str


class Step(msgspec.Struct, frozen=True):
    """One write and what must hold for it; compares that several steps share are sent once per transaction."""

    write: Put | Delete | DeletePrefix
    compares: tuple[Compare, ...] = ()


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
    txns: list[Txn] = []
    part = _Part((controls(epoch), *first))
    for step in steps:
        if part.writes and not part.has_room_for(step):
            txns.append(part.txn())
            part = _Part((controls(epoch), *rest))
        part.add(step)
    if part.writes:
        txns.append(part.txn())
    return tuple(txns)


class _Part:
    """One transaction while steps are added. The store's bound holds for it as it is attempted."""

    def __init__(self, compares: Iterable[Compare]) -> None:
        self._compares = dict.fromkeys(compares)
        self.writes: list[Put | Delete | DeletePrefix] = []
        self._bytes = operation_bytes(Get(keys.CONTROLLER))
        self._bytes += sum(map(compare_bytes, self._compares))

    def has_room_for(self, step: Step) -> bool:
        added = self._added(step)
        return (
            max(len(self._compares) + len(added), len(self.writes) + 1) <= TXN_OPERATIONS_MAX
            and self._bytes + _bytes_of(step.write, added) <= TXN_BYTES_MAX
        )

    def add(self, step: Step) -> None:
        added = self._added(step)
        self._bytes += _bytes_of(step.write, added)
        if not self.writes and not isinstance(step.write, DeletePrefix):
            self._bytes += operation_bytes(Get(step.write.key))
        self._compares.update(added)
        self.writes.append(step.write)

    def txn(self) -> Txn:
        return Txn(tuple(self._compares), tuple(self.writes))

    def _added(self, step: Step) -> dict[Compare, None]:
        return {compare: None for compare in step.compares if compare not in self._compares}


def _bytes_of(write: Put | Delete | DeletePrefix, compares: Iterable[Compare]) -> int:
    return operation_bytes(write) + sum(map(compare_bytes, compares))


def attempted(txn: Txn) -> Txn:
    """As it is sent: if its compares fail, it tells who controls the cluster, and what its first key holds."""
    first = txn.success[0]
    assert isinstance(first, Put | Delete), "a transaction begins with a single key"
    return Txn(txn.compares, txn.success, (Get(keys.CONTROLLER), Get(first.key)))


def refuse_large(txns: Iterable[Txn]) -> Refusal | None:
    """Why none of these is begun: one, which could not be cut further, is larger than the store takes."""
    size = max((txn_bytes(attempted(txn)) for txn in txns), default=0)
    if size <= TXN_BYTES_MAX:
        return None
    message = f"The change takes {size} bytes in the metadata store, {TXN_BYTES_MAX} at most."
    return Refusal(ErrorCode.INVALID_REQUEST, message)


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


def still_active(image: ClusterImage, broker_id: int) -> tuple[Compare, ...]:
    """The broker's registration, and that the controller lets it lead, are what the image says."""
    return (
        created_at(keys.broker(broker_id), image.brokers[broker_id].epoch),
        modified_at(keys.fence(broker_id), image.fences[broker_id].revision),
    )
