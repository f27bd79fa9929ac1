"""EndTxn, row by row: the stored state, the request, the answer."""

import pytest
from logfleet.transactions.ending import TV2_SINCE, end
from logfleet.transactions.state import State, TopicPartition, Transaction
from logfleet.types import ProducerEpoch
from logfleet.wire.errors import ErrorCode
from logfleet.wire.messages import EndTxnRequest

PRODUCER_ID, PREVIOUS, FRESH = 7, 6, 8
EPOCH = 5
WALL_MS = 1_000

COMMIT, ABORT = State.PREPARE_COMMIT, State.PREPARE_ABORT
FENCED = ErrorCode.PRODUCER_FENCED
INVALID = ErrorCode.INVALID_TXN_STATE
CONCURRENT = ErrorCode.CONCURRENT_TRANSACTIONS
NONE = ErrorCode.NONE

# state, then what a commit and an abort get with the stored epoch, then with the one before.
TV2_ROWS = [
    (State.EMPTY, INVALID, ABORT, FENCED, FENCED),
    (State.ONGOING, COMMIT, ABORT, FENCED, FENCED),
    (State.PREPARE_COMMIT, CONCURRENT, CONCURRENT, CONCURRENT, CONCURRENT),
    (State.PREPARE_ABORT, CONCURRENT, CONCURRENT, CONCURRENT, CONCURRENT),
    (State.COMPLETE_COMMIT, INVALID, ABORT, NONE, INVALID),
    (State.COMPLETE_ABORT, INVALID, ABORT, INVALID, NONE),
]
TV1_ROWS = [
    (State.EMPTY, INVALID, INVALID, FENCED, FENCED),
    (State.ONGOING, COMMIT, ABORT, FENCED, FENCED),
    (State.PREPARE_COMMIT, CONCURRENT, CONCURRENT, FENCED, FENCED),
    (State.PREPARE_ABORT, CONCURRENT, CONCURRENT, FENCED, FENCED),
    (State.COMPLETE_COMMIT, NONE, INVALID, FENCED, FENCED),
    (State.COMPLETE_ABORT, INVALID, NONE, FENCED, FENCED),
]


def stored(state: State, *, epoch: int = EPOCH, client_version: int = 2) -> Transaction:
    return Transaction(
        PRODUCER_ID,
        ProducerEpoch(epoch),
        60_000,
        state,
        0,
        partitions=frozenset({TopicPartition("t", 0)}) if state is State.ONGOING else frozenset(),
        previous_producer_id=PREVIOUS,
        client_version=client_version,
    )


def ask(
    transaction: Transaction,
    *,
    commit: bool,
    version: int = TV2_SINCE,
    epoch: int = EPOCH,
    producer_id: int = PRODUCER_ID,
):
    request = EndTxnRequest(producer_id=producer_id, producer_epoch=epoch, committed=commit)
    return end(transaction, request, version, lambda: FRESH, WALL_MS)


@pytest.mark.parametrize("is_commit", [True, False], ids=["commit", "abort"])
@pytest.mark.parametrize("is_repeated", [True, False], ids=["epoch before", "epoch of now"])
@pytest.mark.parametrize(
    "version,row",
    [(version, row) for version, rows in ((5, TV2_ROWS), (4, TV1_ROWS)) for row in rows],
    ids=lambda each: each[0].name if isinstance(each, tuple) else f"version {each}",
)
def test_each_state_answers_as_in_kafka(version, row, is_repeated, is_commit):
    state, *answers = row
    expected = answers[2 * is_repeated + (not is_commit)]

    decision = ask(
        stored(state), commit=is_commit, version=version, epoch=EPOCH - 1 if is_repeated else EPOCH
    )

    if isinstance(expected, State):
        assert decision.error is NONE
        assert decision.following is not None
        assert decision.following.state is expected
        assert decision.following.epoch == (EPOCH + 1 if version == 5 else EPOCH)
    else:
        assert (decision.error, decision.following) == (expected, None)
    is_answered = version == 5 and decision.error is NONE
    next_epoch = EPOCH if is_repeated else EPOCH + 1
    assert (decision.producer_id, decision.epoch) == (
        (PRODUCER_ID, next_epoch) if is_answered else (-1, -1)
    )


@pytest.mark.parametrize("state", [State.COMPLETE_COMMIT, State.COMPLETE_ABORT])
@pytest.mark.parametrize("is_commit", [True, False], ids=["commit", "abort"])
def test_a_producer_that_an_old_client_fenced_does_not_get_its_pair(state, is_commit):
    """The epoch after it is that of a successor whose transaction TV1 ended."""
    decision = ask(stored(state, client_version=0), commit=is_commit, epoch=EPOCH - 1)

    assert (decision.error, decision.producer_id, decision.epoch) == (FENCED, -1, -1)


@pytest.mark.parametrize("state", [State.EMPTY, State.ONGOING])
def test_the_last_epoch_of_the_producer_id_before_is_fenced_by_a_new_state(state):
    decision = ask(stored(state, epoch=0), commit=True, epoch=32_766, producer_id=PREVIOUS)

    assert decision.error is FENCED


def test_a_repetition_over_the_change_of_producer_ids_gets_the_new_pair():
    decision = ask(
        stored(State.COMPLETE_COMMIT, epoch=0), commit=True, epoch=32_766, producer_id=PREVIOUS
    )

    assert (decision.error, decision.producer_id, decision.epoch) == (NONE, PRODUCER_ID, 0)


@pytest.mark.parametrize("version", [4, 5])
def test_another_producer_id_is_not_mapped(version):
    decision = ask(stored(State.ONGOING), commit=True, version=version, producer_id=99)

    assert decision.error is ErrorCode.INVALID_PRODUCER_ID_MAPPING


@pytest.mark.parametrize("epoch", [32_766, 32_767])
def test_after_the_last_epoch_comes_another_producer_id(epoch):
    """32767 is never given to a client; if it is stored by a fault, an abort still goes through."""
    decision = ask(stored(State.ONGOING, epoch=epoch), commit=False, epoch=epoch)

    assert decision.following is not None
    assert (decision.following.epoch, decision.following.next_producer_id) == (32_767, FRESH)
    assert (decision.producer_id, decision.epoch) == (FRESH, 0)
