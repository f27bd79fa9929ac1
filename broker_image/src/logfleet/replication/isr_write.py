"""A leader's ISR changes as transactions of the metadata store, and what the replies mean.

Each transaction compares everything that permits the change (KIP-380, 841, 903): the partition's
state, the leader's registration and fence, and the registration and fence of each member that
joins. So a replaced leader or a fenced broker cannot add a member to an ISR, even if its image is
old.

Only revisions are compared, never values. A revision never comes back, so a transaction whose
compare failed once can never succeed later, not even an earlier attempt whose reply was lost. That
makes a failure definite. A value may come back: a fence can be active, fenced, then active again.
"""

from collections.abc import Mapping
from typing import Final

import msgspec

from logfleet.metadata.image import ClusterImage
from logfleet.metadata.kinds.brokers import BROKER, FENCED
from logfleet.metadata.kinds.topics import PARTITION, PartitionValue
from logfleet.metadata.packing import Step, pack_steps
from logfleet.metadata.store import (
    Compare,
    Get,
    KeyValue,
    Put,
    Txn,
    TxnResult,
    modified_at,
)
from logfleet.replication.leader import IsrChange
from logfleet.replication.partition_state import Member, still_active
from logfleet.types import BrokerEpoch

CHANGES_MAX: Final = 20
"""Partitions per transaction.

One failed compare fails them all; far below the store's size limit.
"""
_PARTITION: Final = msgspec.json.Decoder(PartitionValue)


class Won(msgspec.Struct, frozen=True):
    """The change was written, as `revision`."""

    revision: int


class Lost(msgspec.Struct, frozen=True):
    """The change was not written and never will be. The store holds `state`, written by `revision`.

    state: None if the key is gone. It is the state that the change started from if a registration
    or fence failed the compare: a retry fails again until the image shows that (`is_shown`).
    """

    state: PartitionValue | None
    revision: int


class Alone(msgspec.Struct, frozen=True):
    """Another change of the same transaction failed it: retry this one in its own transaction."""


def isr_txns(image: ClusterImage, me: Member, changes: Mapping[str, IsrChange]) -> list[Txn]:
    """The changes, by the partition's key, in as few transactions as possible.

    A retry must send the same transaction. Changes that the image already forbids are left out, as
    if they had failed: a joining member is no longer registered and active. If the leader itself is
    fenced, the list is empty.
    """
    broker_id, broker_epoch = me
    fence = image.fences.get(broker_id)
    if fence is None or fence.broker_epoch != broker_epoch or fence.state == FENCED:
        return []
    if not _is_registered(image, me):
        return []
    mine = still_active(image, broker_id)
    steps = (
        Step(
            Put(key, PARTITION.encode(change.state)),
            (
                modified_at(key, change.revision),
                *(compare for member, _ in change.added for compare in still_active(image, member)),
            ),
        )
        for key, change in changes.items()
        if all(_may_join(image, member) for member in change.added)
    )
    return [
        Txn(txn.compares, txn.success, tuple(Get(compare.key) for compare in txn.compares))
        for txn in pack_steps(steps, first=mine, rest=mine, steps_max=CHANGES_MAX)
    ]


def read_answer(
    txn: Txn, answer: TxnResult, changes: Mapping[str, IsrChange]
) -> dict[str, Won | Lost | Alone]:
    """The outcome of each change in a transaction of `isr_txns`, by key.

    answer: a definite reply.
    """
    outcomes: dict[str, Won | Lost | Alone] = {}
    found = _found(txn, answer)
    for write in _writes(txn):
        if answer.succeeded:
            outcomes[write.key] = Won(answer.revision)
            continue
        item = found[write.key]
        if item is None:
            outcomes[write.key] = Lost(None, 0)
        elif item.mod_revision == changes[write.key].revision and len(txn.success) > 1:
            outcomes[write.key] = Alone()
        else:
            outcomes[write.key] = Lost(_PARTITION.decode(item.value), item.mod_revision)
    return outcomes


def is_shown(image: ClusterImage, txn: Txn, answer: TxnResult) -> bool:
    """Whether the image shows what made a transaction of `isr_txns` fail, or something newer.

    The reply's own revision cannot be used: in a shared etcd it may belong to another user's key,
    which no image of ours ever shows.
    """
    found = _found(txn, answer)
    newest = max((item.mod_revision for item in found.values() if item is not None), default=0)
    return image.revision >= newest and not any(
        found[compare.key] is None and _is_still_registered(image, compare)
        for compare in txn.compares
    )


def _is_still_registered(image: ClusterImage, compare: Compare) -> bool:
    """Whether the compare names a registration that the image still shows."""
    if not compare.key.startswith(BROKER.prefix):
        return False
    broker_id = int(compare.key.removeprefix(BROKER.prefix))
    epoch = compare.operand
    return isinstance(epoch, int) and _is_registered(image, (broker_id, BrokerEpoch(epoch)))


def _found(txn: Txn, answer: TxnResult) -> dict[str, KeyValue | None]:
    """The values that a failed transaction read, by key; empty if it succeeded."""
    read = (get.key for get in txn.failure if isinstance(get, Get))
    return {} if answer.succeeded else dict(zip(read, answer.reads, strict=True))


def _writes(txn: Txn) -> list[Put]:
    return [write for write in txn.success if isinstance(write, Put)]


def _may_join(image: ClusterImage, member: Member) -> bool:
    return _is_registered(image, member) and image.brokers[member[0]].is_active


def _is_registered(image: ClusterImage, member: Member) -> bool:
    broker = image.brokers.get(member[0])
    return broker is not None and broker.epoch == member[1]
