"""Writes to the store: each is sent until its answer is definite, and done once the image shows it.

An attempt without an answer may have been applied, or may still be. So a write is sent again,
unchanged, until the store answers; its receipt then shows whether an earlier attempt was applied
(`logfleet.metadata.receipts`). An answer counts only for the write that it names, and only while an
attempt of it is under way.
"""

from collections import deque
from collections.abc import Iterable

import msgspec

from logfleet.controller.terms.effects import Committed, Emit, Report, Write
from logfleet.controller.terms.operations import NotControllerError
from logfleet.metadata.attempts import Attempts, Unanswered
from logfleet.metadata.image import ClusterImage
from logfleet.metadata.receipts import SLOTS, Receipt, Receipts
from logfleet.metadata.store import Txn, TxnResult


class ConflictError(Exception):
    """A write's compares failed: it was decided on an outdated image."""


class Settled(msgspec.Struct, frozen=True):
    """The definite answer to a write, or the error that no retry changes.

    unanswered: an earlier attempt may have been applied; a failed compare may be due to it.
    """

    number: int
    outcome: TxnResult | Exception
    unanswered: bool


class _Pending:
    """A write that has no definite answer. sent: the number of attempts.

    due_ms: of the next attempt; None: one is under way.
    """

    __slots__ = ("attempts", "cause", "due_ms", "sent", "txn")

    def __init__(self, txn: Txn, cause: str | None) -> None:
        self.txn = txn
        self.cause = cause
        self.attempts = Attempts()
        self.sent = 1
        self.due_ms: int | None = None


class Outbox:
    """All writes of a candidate that have no definite answer."""

    def __init__(self, emit: Emit) -> None:
        self._emit = emit
        self._pending: dict[int, _Pending] = {}
        self._sent = 0

    @property
    def due_ms(self) -> int | None:
        """When `retry` has something to do."""
        return min((p.due_ms for p in self._pending.values() if p.due_ms is not None), default=None)

    def send(self, txn: Txn, cause: str | None = None) -> int:
        """Begin a write; returns its number."""
        self._sent += 1
        self._pending[self._sent] = _Pending(txn, cause)
        self._emit(Write(self._sent, txn, 1, cause))
        return self._sent

    def answered(self, number: int, outcome: TxnResult | Exception, now_ms: int) -> Settled | None:
        """The answer to an attempt. None: nobody waits for it, or the write will be retried."""
        pending = self._pending.get(number)
        if pending is None or pending.due_ms is not None:
            return None
        if isinstance(outcome, Unanswered):
            pause_ms = pending.attempts.failed(outcome)
            pending.due_ms = now_ms + pause_ms
            facts = {"reason": str(outcome), "pause_s": pause_ms / 1000}
            self._emit(Report("warning", "metadata_write_repeated", facts))
            return None
        del self._pending[number]
        return Settled(number, outcome, pending.attempts.may_be_applied)

    def retry(self, now_ms: int) -> None:
        """Send again what is due."""
        for number, pending in self._pending.items():
            if pending.due_ms is not None and pending.due_ms <= now_ms:
                pending.due_ms = None
                pending.sent += 1
                self._emit(Write(number, pending.txn, pending.sent, pending.cause))

    def drop(self) -> None:
        """Nobody waits for the answers any more; what was sent may be applied all the same."""
        self._pending.clear()


class _Sent(msgspec.Struct, frozen=True):
    """image: the newest when the write was first sent."""

    txn: Txn
    cause: str | None
    image: ClusterImage
    receipt: Receipt


class TermWrites:
    """The writes of one step of a term: in order, or up to SLOTS of them at a time.

    A write counts until the image shows it. If one fails, those that follow it in order are not
    sent; in any order all are. `error` is the first failure.
    """

    def __init__(self, outbox: Outbox, epoch: int, receipts: Receipts, emit: Emit) -> None:
        self.error: Exception | None = None
        self._outbox = outbox
        self._epoch = epoch
        self._receipts = receipts
        self._emit = emit
        self._image = ClusterImage()
        self._in_order = False
        self._waiting: deque[tuple[Txn, str | None]] = deque()
        self._sent: dict[int, _Sent] = {}
        self._written: list[int] = []

    @property
    def are_done(self) -> bool:
        return not (self._waiting or self._sent or self._written)

    @property
    def have_room(self) -> bool:
        return not self._waiting

    def begin(
        self,
        image: ClusterImage,
        txns: Iterable[Txn],
        cause: str | None = None,
        *,
        in_order: bool = False,
    ) -> None:
        """Begin a step. image: the newest."""
        assert self.are_done, "the writes of one step at a time"
        self.error = None
        self._image = image
        self._in_order = in_order
        self.add(txns, cause)

    def add(self, txns: Iterable[Txn], cause: str | None = None) -> None:
        """More writes of the same step."""
        self._waiting += ((txn, cause) for txn in txns)
        self._send()

    def shown(self, image: ClusterImage) -> None:
        """The image is a newer one."""
        self._image = image
        self._written = [each for each in self._written if each > image.revision]
        self._send()

    def settled(self, settled: Settled) -> None:
        sent = self._sent.pop(settled.number, None)
        if sent is None:
            return
        receipt, outcome = sent.receipt, settled.outcome
        if isinstance(outcome, TxnResult):
            was_done = receipt.settled(outcome, unanswered=settled.unanswered)
            if was_done:
                self._emit(Committed(sent.image, sent.txn, sent.cause))
                if receipt.revision > self._image.revision:
                    self._written.append(receipt.revision)
            else:
                self._fail(self._refusal(outcome))
        else:
            self._fail(outcome)
        self._receipts.give_back(receipt)
        self._send()

    def _refusal(self, result: TxnResult) -> Exception:
        """Why a write was not applied: another controller, or a newer state."""
        control, _ = result.reads
        is_mine = control is not None and control.create_revision == self._epoch
        return ConflictError() if is_mine else NotControllerError()

    def _fail(self, error: Exception) -> None:
        self.error = self.error or error
        if self._in_order:
            self._waiting.clear()

    def _send(self) -> None:
        at_once = 1 if self._in_order else SLOTS
        while self._waiting and len(self._sent) + len(self._written) < at_once:
            txn, cause = self._waiting.popleft()
            receipt = self._receipts.take()
            number = self._outbox.send(receipt.on(txn), cause)
            self._sent[number] = _Sent(txn, cause, self._image, receipt)
