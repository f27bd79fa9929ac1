"""Writes whose outcome must be known before life goes on, and keys that one process at a time may hold."""

import asyncio
from typing import Final

import msgspec
import structlog

from logfleet.metadata.store import (
    Get,
    KeyValue,
    Lease,
    MetadataStore,
    Put,
    StoreUnavailable,
    Txn,
    TxnResult,
    UnknownOutcome,
    absent,
)

log = structlog.get_logger()

PAUSE_S_MIN: Final = 0.05
PAUSE_S_MAX: Final = 2.0


class Settled(msgspec.Struct, frozen=True):
    """unanswered: an earlier attempt may have been done; what a failed compare found may be its work."""

    result: TxnResult
    unanswered: bool


async def settle(store: MetadataStore, txn: Txn) -> TxnResult:
    """As `settle_or_recognise`, for transactions of which `failure` reads all that is to be known."""
    return (await settle_or_recognise(store, txn)).result


async def settle_or_recognise(store: MetadataStore, txn: Txn) -> Settled:
    """Commit `txn` until the answer is definite, however long the store is away. Bound it by asyncio.timeout.

    For transactions whose compares stop holding once they have succeeded: where an unanswered attempt may have been done, the
    answer is a failed compare, and what `failure` reads tells whose write it was (see logfleet.metadata.store).
    After a cancellation or a time out the outcome is unknown. Raises StoreRefused, StoreReplaced, LeaseNotFound.
    """
    pause_s = PAUSE_S_MIN
    unanswered = False
    while True:
        try:
            return Settled(await store.txn(txn), unanswered)
        except (UnknownOutcome, StoreUnavailable) as error:
            unanswered = unanswered or isinstance(error, UnknownOutcome)
            log.warning("metadata_write_repeated", reason=str(error), pause_s=pause_s)
        await asyncio.sleep(pause_s)
        pause_s = min(2 * pause_s, PAUSE_S_MAX)


async def claim(store: MetadataStore, key: str, value: bytes, lease: Lease) -> KeyValue:
    """Create `key` with `lease` unless it is there; the key as it is now. It is ours if it has our lease.

    Its create_revision is then the epoch that everything written by right of this key must compare.
    Raises LeaseNotFound if the lease has ended, StoreRefused, StoreReplaced.
    """
    txn = Txn([absent(key)], [Put(key, value, lease.id)], [Get(key)])
    result = await settle(store, txn)
    if result.succeeded:
        return KeyValue(key, value, result.revision, result.revision, 1, lease.id)
    held = result.reads[0]
    assert held is not None, "its compare just failed"
    return held


async def create_once(store: MetadataStore, key: str, value: bytes, *others: Put) -> bytes:
    """The value of `key`, created with `value`, and the others with it, if nobody has before. Raises StoreRefused, StoreReplaced."""
    result = await settle(store, Txn([absent(key)], [*others, Put(key, value)], [Get(key)]))
    if result.succeeded:
        return value
    held = result.reads[0]
    assert held is not None, "its compare just failed"
    return held.value
