"""Writes whose outcome must be known, and keys that are created once."""

import asyncio

import msgspec
import structlog

from logfleet.metadata.attempts import Attempts
from logfleet.metadata.store import (
    Get,
    MetadataStore,
    Put,
    StoreUnavailable,
    Txn,
    TxnResult,
    UnknownOutcome,
    absent,
)

log = structlog.get_logger()


class Settled(msgspec.Struct, frozen=True):
    """The definite result of a store write.

    unanswered: an earlier attempt may have been applied; a failed compare may be due to it.
    """

    result: TxnResult
    unanswered: bool


async def settle(store: MetadataStore, txn: Txn) -> TxnResult:
    """As `settle_or_recognise`, for writes whose `failure` reads show whether they were applied."""
    return (await settle_or_recognise(store, txn)).result


async def settle_or_recognise(store: MetadataStore, txn: Txn) -> Settled:
    """Commit `txn` until the answer is definite, however long the store is away.

    Bound it by asyncio.timeout. For writes whose compares fail once they have succeeded: if an
    unanswered attempt was applied, the answer is a failed compare, and the `failure` reads show
    whose write it was (see logfleet.metadata.store). After a cancellation or a timeout the outcome
    is unknown. Raises StoreRefused, StoreReplaced, LeaseNotFound.
    """
    attempts = Attempts()
    while True:
        try:
            return Settled(await store.txn(txn), attempts.may_be_applied)
        except (UnknownOutcome, StoreUnavailable) as error:
            pause_s = attempts.failed(error) / 1000
            log.warning("metadata_write_repeated", reason=str(error), pause_s=pause_s)
        await asyncio.sleep(pause_s)


async def create_once(store: MetadataStore, key: str, value: bytes, *others: Put) -> bytes:
    """Create `key` with `value`, and the others with it, unless it exists; return its value.

    Raises StoreRefused, StoreReplaced.
    """
    result = await settle(store, Txn([absent(key)], [*others, Put(key, value)], [Get(key)]))
    if result.succeeded:
        return value
    held = result.reads[0]
    assert held is not None, "its compare just failed"
    return held.value
