"""How a controller knows its own writes: each transaction puts a receipt, a key that nobody else writes.

An attempt whose answer is lost may have been applied or not. The repetition then fails in both cases: by the attempt's
own work, or by somebody else's. What the transaction is about cannot tell the two apart, as leaders write the same
bytes to a partition's key. A receipt can: its value, the controller epoch and a number, is written once only.

A receipt's key names the broker that controls and a slot. Up to SLOTS transactions are under way at a time and each has
a slot of its own, as one shared key would be overwritten by the next transaction before the first one is recognised.
As the key names the broker, the next controller overwrites no receipt of the last one, which may still wait for an
answer. So the keys stay few: SLOTS of each broker that has ever controlled.

Each transaction also compares the revision of its slot. So at most one of all attempts in a slot is ever applied: a
duplicate that the store holds and applies late fails, whatever else the transaction compares.
"""

from collections import deque
from collections.abc import Iterable
from typing import Final

from logfleet.metadata import keys
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
"""Transactions of a controller under way: a broker that led 4,000 partitions is replaced within about a second."""


class Receipt:
    """One slot and what the transaction in it writes there. revision: of the slot's key, 0 while it is absent."""

    __slots__ = ("_nonce", "key", "revision")

    def __init__(self, key: str, revision: int) -> None:
        self.key = key
        self.revision = revision
        self._nonce = b""

    def begin(self, nonce: bytes) -> None:
        self._nonce = nonce

    def on(self, txn: Txn) -> Txn:
        """The transaction as it is committed. If its compares fail, it reads who controls, and the slot."""
        assert not txn.failure, "what it reads is read here"
        return Txn(
            (*txn.compares, modified_at(self.key, self.revision)),
            (*txn.success, Put(self.key, self._nonce)),
            (Get(keys.CONTROLLER), Get(self.key)),
        )

    def settled(self, result: TxnResult, *, unanswered: bool) -> bool:
        """Whether the transaction was done, by its definite answer; `revision` is the one that did it then.

        unanswered: an earlier attempt may have been applied. Both are needed: without such an attempt nothing can have
        been done, and with one, only the slot shows whether it has.
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
    receipt = Receipt(keys.receipt(2**31 - 1, SLOTS - 1), 0)
    receipt.begin(f"{2**63 - 1}/{2**63 - 1}".encode())
    return receipt


_LARGEST: Final = _largest()
_OF_NOTHING: Final = _LARGEST.on(Txn())
RECEIPT_BYTES_MAX: Final = sum(
    map(entry_bytes, (*_OF_NOTHING.compares, *_OF_NOTHING.success, *_OF_NOTHING.failure))
)
"""What a receipt adds to a transaction; it takes one entry more in the lists of compares and writes."""


def check_with_receipt(txn: Txn) -> None:
    """Raise ValueError if no store takes the transaction with whatever receipt (`check_txn`)."""
    check_txn(_LARGEST.on(txn))


class Receipts:
    """The slots of one term. held: the keys of this broker's receipts as its last term has left them."""

    def __init__(self, epoch: int, broker_id: int, held: Iterable[KeyValue]) -> None:
        revisions = {item.key: item.mod_revision for item in held}
        names = [keys.receipt(broker_id, slot) for slot in range(SLOTS)]
        self._free = deque(Receipt(name, revisions.get(name, 0)) for name in names)
        self._epoch = epoch
        self._begun = 0

    def take(self) -> Receipt:
        """A free slot, for a transaction that begins. To be given back once its answer is definite."""
        assert self._free, f"more than {SLOTS} transactions of one term are under way"
        self._begun += 1
        receipt = self._free.popleft()
        receipt.begin(f"{self._epoch}/{self._begun}".encode())
        return receipt

    def give_back(self, receipt: Receipt) -> None:
        self._free.append(receipt)
