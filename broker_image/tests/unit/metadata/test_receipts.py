"""Which transactions a controller takes for its own."""

import pytest
from logfleet.metadata.keyspace import Keyspace
from logfleet.metadata.kinds.cluster import receipts_of
from logfleet.metadata.receipts import SLOTS, Receipt, Receipts, check_with_receipt
from logfleet.metadata.store import TXN_BYTES_MAX, Put, Txn, TxnResult, absent, check_txn

WANTED = Txn((), (Put("part/U/0", b"as wanted"),))


def commit(store: Keyspace, txn: Txn) -> TxnResult:
    check_txn(txn)
    result, batch = store.evaluate(txn)
    if batch is not None:
        store.apply(batch)
    return result


def begun(store: Keyspace, epoch: int = 5) -> Receipt:
    return Receipts(epoch, 1, store.range(receipts_of(1)).items).take()


def test_a_transaction_that_was_answered_is_done_at_the_revision_of_its_answer() -> None:
    store = Keyspace()
    receipt = begun(store)
    result = commit(store, receipt.on(WANTED))
    assert receipt.settled(result, unanswered=False)
    assert receipt.revision == result.revision == store.revision


def test_an_attempt_without_an_answer_is_known_by_its_receipt() -> None:
    store = Keyspace()
    receipt = begun(store)
    first = commit(store, receipt.on(WANTED))
    commit(store, Txn((), (Put("part/U/0", b"what others made of it"),)))
    repeated = commit(store, receipt.on(WANTED))
    assert not repeated.succeeded
    assert receipt.settled(repeated, unanswered=True)
    assert receipt.revision == first.revision


def test_an_attempt_that_was_not_applied_is_not_done_though_others_wrote_the_same() -> None:
    store = Keyspace()
    receipt = begun(store)
    commit(store, Txn((), WANTED.success))
    failed = commit(store, receipt.on(Txn((absent("part/U/0"),), WANTED.success)))
    assert not receipt.settled(failed, unanswered=True)


def test_what_failed_with_an_answer_is_not_done_whatever_is_there() -> None:
    store = Keyspace()
    receipt = begun(store)
    commit(store, receipt.on(WANTED))
    repeated = commit(store, receipt.on(WANTED))
    assert not receipt.settled(repeated, unanswered=False)


def test_of_two_attempts_one_is_applied_at_most_though_nothing_else_is_compared() -> None:
    store = Keyspace()
    receipt = begun(store)
    attempt = receipt.on(WANTED)
    assert commit(store, attempt).succeeded
    assert not commit(store, attempt).succeeded


def test_a_slot_goes_on_where_its_last_transaction_left_it() -> None:
    store = Keyspace()
    receipts = Receipts(5, 1, ())
    for number in range(3 * SLOTS):
        receipt = receipts.take()
        result = commit(store, receipt.on(Txn((), (Put(f"k/{number}", b""),))))
        assert receipt.settled(result, unanswered=False)
        receipts.give_back(receipt)
    assert len(store.range(receipts_of(1)).items) == SLOTS
    again = begun(store, epoch=6)
    assert commit(store, again.on(WANTED)).succeeded


def test_a_slot_that_an_old_attempt_changed_is_usable_after_one_failure() -> None:
    store = Keyspace()
    receipts = Receipts(5, 1, ())
    receipt = receipts.take()
    commit(store, receipt.on(WANTED))  # the answer is lost, and the next attempt refused
    receipts.give_back(receipt)
    for _ in range(SLOTS):
        receipt = receipts.take()
        done = receipt.settled(commit(store, receipt.on(WANTED)), unanswered=False)
        receipts.give_back(receipt)
    assert not done
    for _ in range(SLOTS):
        receipt = receipts.take()
        done = receipt.settled(commit(store, receipt.on(WANTED)), unanswered=False)
        receipts.give_back(receipt)
    assert done


def test_transactions_side_by_side_and_of_other_brokers_have_keys_of_their_own() -> None:
    receipts, others = Receipts(5, 1, ()), Receipts(5, 11, ())
    taken = [each.take().key for each in (receipts, others) for _ in range(SLOTS)]
    assert len(set(taken)) == 2 * SLOTS
    with pytest.raises(AssertionError):
        receipts.take()


def test_a_transaction_without_room_for_a_receipt_is_refused() -> None:
    check_with_receipt(Txn((), (Put("k", bytes(TXN_BYTES_MAX - 200)),)))
    with pytest.raises(ValueError, match="bytes"):
        check_with_receipt(Txn((), (Put("k", bytes(TXN_BYTES_MAX - 50)),)))
