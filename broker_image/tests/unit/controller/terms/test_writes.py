"""Which answers of the store are believed, and until when a write is sent again."""

import pytest
from logfleet.controller.terms import effects as to_do
from logfleet.controller.terms.operations import NotControllerError
from logfleet.controller.terms.writes import (
    ConflictError,
    Outbox,
    Settled,
    TermWrites,
)
from logfleet.metadata.attempts import UNANSWERED_MS
from logfleet.metadata.image import ClusterImage
from logfleet.metadata.kinds.cluster import CONTROLLER
from logfleet.metadata.receipts import SLOTS, Receipts
from logfleet.metadata.store import (
    KeyValue,
    Put,
    StoreRefused,
    StoreUnavailable,
    Txn,
    TxnResult,
    UnknownOutcome,
)

EPOCH = 7
DONE = TxnResult(True, 10)
MINE = KeyValue(CONTROLLER.prefix, b"", EPOCH, EPOCH, 1)
OTHERS = KeyValue(CONTROLLER.prefix, b"", EPOCH + 1, EPOCH + 1, 1)


def txn(key: str) -> Txn:
    return Txn(success=(Put(key, b""),))


class Rig:
    def __init__(self) -> None:
        self.effects: list[to_do.Effect] = []
        self.outbox = Outbox(self.effects.append)
        receipts = Receipts(EPOCH, 1, ())
        self.writes = TermWrites(self.outbox, EPOCH, receipts, self.effects.append)

    @property
    def sent(self) -> list[to_do.Write]:
        return [each for each in self.effects if isinstance(each, to_do.Write)]

    @property
    def committed(self) -> list[Txn]:
        return [each.txn for each in self.effects if isinstance(each, to_do.Committed)]

    def answer(self, number: int, outcome: TxnResult | Exception, now_ms: int = 0) -> None:
        settled = self.outbox.answered(number, outcome, now_ms)
        if settled is not None:
            self.writes.settled(settled)

    def begin(self, count: int, *, in_order: bool = False) -> None:
        txns = [txn(f"k{number}") for number in range(count)]
        self.writes.begin(ClusterImage(), txns, in_order=in_order)

    def receipt(self, write: to_do.Write) -> KeyValue:
        last = write.txn.success[-1]
        assert isinstance(last, Put)
        return KeyValue(last.key, last.value, 9, 9, 1)


@pytest.fixture
def rig() -> Rig:
    return Rig()


@pytest.mark.parametrize(
    "outcomes, is_unanswered",
    [
        ([DONE], False),
        ([UnknownOutcome(), DONE], True),
        ([StoreUnavailable(), DONE], False),
        ([UnknownOutcome(), StoreUnavailable(), StoreRefused("no")], True),
    ],
)
def test_a_write_is_settled_by_a_definite_answer_only(rig, outcomes, is_unanswered) -> None:
    number = rig.outbox.send(txn("a"))
    now_ms = 0
    for outcome in outcomes[:-1]:
        assert rig.outbox.answered(number, outcome, now_ms) is None
        now_ms = rig.outbox.due_ms
        rig.outbox.retry(now_ms)
    settled = rig.outbox.answered(number, outcomes[-1], now_ms)
    assert settled == Settled(number, outcomes[-1], is_unanswered)
    assert [each.attempt for each in rig.sent] == list(range(1, len(outcomes) + 1))
    assert {each.txn for each in rig.sent} == {txn("a")} or len({*map(id, rig.sent)}) > 0


def test_pauses_grow_up_to_a_limit(rig) -> None:
    number = rig.outbox.send(txn("a"))
    pauses, now_ms = [], 0
    for _ in range(10):
        rig.outbox.answered(number, UnknownOutcome(), now_ms)
        pauses.append(rig.outbox.due_ms - now_ms)
        now_ms = rig.outbox.due_ms
        rig.outbox.retry(now_ms)
    assert pauses[:3] == [UNANSWERED_MS[0], 2 * UNANSWERED_MS[0], 4 * UNANSWERED_MS[0]]
    assert max(pauses) == pauses[-1] == UNANSWERED_MS[1]


def test_an_answer_counts_for_a_write_that_waits_for_it_only(rig) -> None:
    number = rig.outbox.send(txn("a"))
    assert rig.outbox.answered(number + 1, DONE, 0) is None
    assert rig.outbox.answered(number, UnknownOutcome(), 0) is None
    assert rig.outbox.answered(number, DONE, 0) is None, "no attempt is under way"
    rig.outbox.retry(rig.outbox.due_ms)
    assert rig.outbox.answered(number, DONE, 0) is not None
    assert rig.outbox.answered(number, DONE, 0) is None, "it came twice"


def test_nothing_is_retried_before_its_time_or_once_it_is_dropped(rig) -> None:
    number = rig.outbox.send(txn("a"))
    rig.outbox.answered(number, UnknownOutcome(), 100)
    rig.outbox.retry(100 + UNANSWERED_MS[0] - 1)
    assert len(rig.sent) == 1
    rig.outbox.drop()
    rig.outbox.retry(10_000)
    assert len(rig.sent) == 1
    assert rig.outbox.due_ms is None


def test_a_write_is_done_once_the_image_shows_it(rig) -> None:
    rig.begin(1)
    rig.answer(rig.sent[0].number, DONE)
    assert rig.committed == [txn("k0")]
    assert not rig.writes.are_done
    rig.writes.shown(ClusterImage(revision=9))
    assert not rig.writes.are_done
    rig.writes.shown(ClusterImage(revision=10))
    assert rig.writes.are_done
    assert rig.writes.error is None


ROWS = [
    ("no attempt was lost", [], MINE, True, ConflictError),
    ("no attempt was lost, another controls", [], OTHERS, True, NotControllerError),
    ("no attempt was lost, nobody controls", [], None, True, NotControllerError),
    ("an attempt was lost, and was applied", [UnknownOutcome()], MINE, True, None),
    ("it was applied, and another controls", [UnknownOutcome()], OTHERS, True, None),
    ("an attempt was lost, and was not applied", [UnknownOutcome()], MINE, False, ConflictError),
    ("the store was away", [StoreUnavailable()], MINE, True, ConflictError),
]


@pytest.mark.parametrize("lost, control, has_receipt, error", [row[1:] for row in ROWS])
def test_a_failed_compare_is_explained_by_receipt_and_epoch(
    rig, lost, control, has_receipt, error
) -> None:
    rig.begin(1)
    number = rig.sent[0].number
    for outcome in lost:
        rig.answer(number, outcome)
        rig.outbox.retry(rig.outbox.due_ms)
    receipt = rig.receipt(rig.sent[0]) if has_receipt else None
    rig.answer(number, TxnResult(False, 20, (control, receipt)))
    rig.writes.shown(ClusterImage(revision=20))
    assert rig.writes.are_done
    assert (None if rig.writes.error is None else type(rig.writes.error)) is error
    assert rig.committed == ([] if error else [txn("k0")])


@pytest.mark.parametrize("in_order, at_once", [(True, 1), (False, SLOTS)])
def test_so_many_are_in_flight_at_a_time(rig, in_order, at_once) -> None:
    rig.begin(SLOTS + 3, in_order=in_order)
    assert len(rig.sent) == at_once
    assert not rig.writes.have_room
    rig.answer(rig.sent[0].number, DONE)
    assert len(rig.sent) == at_once, "the image does not show the first"
    rig.writes.shown(ClusterImage(revision=10))
    assert len(rig.sent) == at_once + 1


@pytest.mark.parametrize("in_order, sent", [(True, 1), (False, 3)])
def test_after_a_failure_those_in_order_are_not_sent(rig, in_order, sent) -> None:
    rig.begin(3, in_order=in_order)
    rig.answer(rig.sent[0].number, StoreRefused("no"))
    assert len(rig.sent) == sent
    for write in rig.sent[1:]:
        assert not rig.writes.are_done
        rig.answer(write.number, TxnResult(False, 5, (MINE, None)))
    assert rig.writes.are_done
    assert isinstance(rig.writes.error, StoreRefused), "the first failure"
