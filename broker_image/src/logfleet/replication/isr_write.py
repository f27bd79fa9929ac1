"""How a leader's changes of ISRs become transactions, and what the answers mean.

Each transaction compares all that its right rests on (KIP-380, 841, 903): the partition's state is the one that was changed, the leader's registration
and that the controller has not fenced it, and the same of each member that joins. So neither a leader that was replaced nor a broker
that was fenced meanwhile can bring anybody into an ISR, whatever image it acts on.

Only revisions are compared, never values: a revision that has gone by never comes again, so a transaction whose compares failed once can never
succeed, not even an earlier attempt whose answer was lost and which the store may still hold. That is what makes a no definite.
A fence's value comes again (active, fenced, active).
"""

from collections.abc import Mapping
from typing import Final

import msgspec

from logfleet.metadata import keys
from logfleet.metadata.image import ClusterImage
from logfleet.metadata.keys import PartitionValue
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

CHANGES_MAX: Final = 20
"""Partitions per transaction: one that loses takes no more than these with it. Far below what the store takes in bytes."""
_PARTITION: Final = msgspec.json.Decoder(PartitionValue)


class Won(msgspec.Struct, frozen=True):
    """The change was written, as `revision`."""

    revision: int


class Lost(msgspec.Struct, frozen=True):
    """The change was not written and never will be; `state` is there, None for nothing, written by `revision`.

    It is the one that the change rests on if somebody's registration or fence has changed: then the same change is lost again
    unless the image shows that first (`is_shown`).
    """

    state: PartitionValue | None
    revision: int


class Alone(msgspec.Struct, frozen=True):
    """Another change of the transaction was in the way: this one is to be written anew, by a transaction of its own."""


def isr_txns(image: ClusterImage, me: Member, changes: Mapping[str, IsrChange]) -> list[Txn]:
    """The changes, by key of the partition, in as few transactions as may be; each is committed, again and again if need be, as it is.

    A change that the image forbids by now is in none of them: a member that would join is not registered and active any more, or the leader is
    fenced, and then it is every change. It is lost as it stands, as it was never sent.
    """
    broker_id, broker_epoch = me
    fence = image.fences.get(broker_id)
    if fence is None or fence.broker_epoch != broker_epoch or fence.state == keys.FENCED:
        return []
    if not _is_registered(image, me):
        return []
    mine = still_active(image, broker_id)
    steps = (
        Step(
            Put(key, keys.encode(change.state)),
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
    """What the definite answer to a transaction of `isr_txns` says of each of its changes, by key."""
    told: dict[str, Won | Lost | Alone] = {}
    found = _found(txn, answer)
    for write in _writes(txn):
        if answer.succeeded:
            told[write.key] = Won(answer.revision)
            continue
        item = found[write.key]
        if item is None:
            told[write.key] = Lost(None, 0)
        elif item.mod_revision == changes[write.key].revision and len(txn.success) > 1:
            told[write.key] = Alone()
        else:
            told[write.key] = Lost(_PARTITION.decode(item.value), item.mod_revision)
    return told


def is_shown(image: ClusterImage, txn: Txn, answer: TxnResult) -> bool:
    """Whether the image shows what made a transaction of `isr_txns` fail, or something newer.

    The answer's own revision does not tell: in an etcd that others use too it may be theirs, and never be shown here.
    """
    found = _found(txn, answer)
    newest = max((item.mod_revision for item in found.values() if item is not None), default=0)
    return image.revision >= newest and not any(
        found[compare.key] is None and _is_still_registered(image, compare)
        for compare in txn.compares
    )


def _is_still_registered(image: ClusterImage, compare: Compare) -> bool:
    """Whether the compare is about a registration, and the image shows that very one."""
    if not compare.key.startswith(keys.BROKERS):
        return False
    broker_id = int(compare.key.removeprefix(keys.BROKERS))
    return isinstance(compare.operand, int) and _is_registered(image, (broker_id, compare.operand))


def _found(txn: Txn, answer: TxnResult) -> dict[str, KeyValue | None]:
    """What a failed transaction read, by key; nothing of one that succeeded."""
    read = (get.key for get in txn.failure if isinstance(get, Get))
    return {} if answer.succeeded else dict(zip(read, answer.reads, strict=True))


def _writes(txn: Txn) -> list[Put]:
    return [write for write in txn.success if isinstance(write, Put)]


def _may_join(image: ClusterImage, member: Member) -> bool:
    return _is_registered(image, member) and image.brokers[member[0]].is_active


def _is_registered(image: ClusterImage, member: Member) -> bool:
    broker = image.brokers.get(member[0])
    return broker is not None and broker.epoch == member[1]
