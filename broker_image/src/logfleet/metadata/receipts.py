"""How a controller recognises its own writes: each transaction writes a receipt, a key of its own.

If the reply to an attempt is lost, the attempt may have been applied or not. Its retry fails in
both cases: because of the attempt itself, or because of another writer. The written keys cannot
show which, as leaders may write the same bytes to a partition's key. A receipt can: its value, the
controller epoch and a number, is written only once.

A receipt's key names the controller's broker id and a slot. Up to SLOTS transactions are pending at
a time, each with its own slot: a shared key would be overwritten by the next transaction before the
first one is recognised. The broker id in the key keeps the next controller from overwriting
receipts of the last one, which may still wait for a reply. There are at most SLOTS keys for each
broker that was ever the controller.

Each transaction also compares the revision of its slot. So at most one of all attempts in a slot is
ever applied: a duplicate that the store holds and applies late fails, whatever else the transaction
compares.
"""

from collections import deque
from collections.abc import Iterable
from typing import Final

from logfleet.metadata.kinds.cluster import CONTROLLER, RECEIPT
from logfleet.metadata.store import (
    Get,
    KeyValue,
    Put,
    Txn,
    TxnResult,
    check_txn,
    entry_bytes,
    modified_at,
)

SLOTS: Final = 8
"""Pending transactions of a controller.

With 8, the 4,000 partitions of a dead broker get leaders in about 1 s.
"""


class Receipt:
    """A slot and its current transaction. revision: of the slot's key, 0 while it is absent."""

    __slots__ = ("_nonce", "key", "revision")

    def __init__(self, key: str, revision: int) -> None:
        self.key = key
        self.revision = revision
        self._nonce = b""

    def begin(self, nonce: bytes) -> None:
        self._nonce = nonce

    def on(self, txn: Txn) -> Txn:
        """`txn` with the receipt. If a compare fails it reads the controller's key and the slot."""
        assert not txn.failure, "the receipt sets the reads of a failed transaction"
        return Txn(
            (*txn.compares, modified_at(self.key, self.revision)),
            (*txn.success, Put(self.key, self._nonce)),
            (Get(CONTROLLER.prefix), Get(self.key)),
        )

    def settled(self, result: TxnResult, *, unanswered: bool) -> bool:
        """Whether the transaction was applied, by its definite reply.

        Then `revision` is its revision.

        unanswered: an earlier attempt got no reply, so it may have been applied; the slot shows
        that. Without such an attempt a failed transaction was never applied.
        """
        present = None if result.succeeded else result.reads[-1]
        was_done = result.succeeded or (
            unanswered and present is not None and present.value == self._nonce
        )
        if result.succeeded:
            self.revision = result.revision
        else:
            self.revision = 0 if present is None else present.mod_revision
        return was_done


def _largest() -> Receipt:
    receipt = Receipt(RECEIPT.key((2**31 - 1, SLOTS - 1)), 0)
    receipt.begin(f"{2**63 - 1}/{2**63 - 1}".encode())
    return receipt


_LARGEST: Final = _largest()
_OF_NOTHING: Final = _LARGEST.on(Txn())
RECEIPT_BYTES_MAX: Final = sum(
    map(entry_bytes, (*_OF_NOTHING.compares, *_OF_NOTHING.success, *_OF_NOTHING.failure))
)
"""Bytes that a receipt adds to a transaction. It also adds one compare and one write."""


def check_with_receipt(txn: Txn) -> None:
    """Raise ValueError if the transaction with its receipt exceeds a limit of the store.

    `check_txn`.
    """
    check_txn(_LARGEST.on(txn))


class Receipts:
    """The slots of one term. held: this broker's receipts from its last term."""

    def __init__(self, epoch: int, broker_id: int, held: Iterable[KeyValue]) -> None:
        revisions = {item.key: item.mod_revision for item in held}
        names = [RECEIPT.key((broker_id, slot)) for slot in range(SLOTS)]
        self._free = deque(Receipt(name, revisions.get(name, 0)) for name in names)
        self._epoch = epoch
        self._begun = 0

    def take(self) -> Receipt:
        """A free slot for a new transaction. Give it back once the reply is definite."""
        assert self._free, f"more than {SLOTS} transactions of one term are pending"
        self._begun += 1
        receipt = self._free.popleft()
        receipt.begin(f"{self._epoch}/{self._begun}".encode())
        return receipt

    def give_back(self, receipt: Receipt) -> None:
        self._free.append(receipt)
