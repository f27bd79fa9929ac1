import pytest
from logfleet.client.errors import (
    AbortRequired,
    ClientError,
    ConnectionLost,
    KafkaError,
    NotSupported,
    OutcomeUnknown,
    ProducerFailed,
)
from logfleet.client.transactions.state import (
    NO_IDENTITY,
    Phase,
    TransactionState,
    Verdict,
    verdict_of_call,
    verdict_of_record,
)

RETRY, ABORT, FAIL = Verdict.RETRY, Verdict.ABORT, Verdict.FAIL


@pytest.mark.parametrize(
    "code, verdict",
    [
        (3, RETRY), (14, RETRY), (15, RETRY), (16, RETRY), (19, RETRY), (51, RETRY),
        (22, ABORT), (25, ABORT), (29, ABORT), (30, ABORT), (82, ABORT), (120, ABORT),
        (35, FAIL), (42, FAIL), (47, FAIL), (48, FAIL), (49, FAIL), (53, FAIL), (90, FAIL),
    ],
)  # fmt: skip
def test_what_a_coordinators_code_means(code: int, verdict: Verdict) -> None:
    assert verdict_of_call(KafkaError(code)) is verdict


@pytest.mark.parametrize(
    "code, verdict",
    [
        (10, ABORT), (29, ABORT), (45, ABORT), (47, ABORT), (48, ABORT), (59, ABORT), (120, ABORT),
        (31, FAIL), (35, FAIL), (49, FAIL), (53, FAIL), (90, FAIL),
    ],
)  # fmt: skip
def test_what_the_code_of_a_record_means_that_was_given_up(code: int, verdict: Verdict) -> None:
    assert verdict_of_record(KafkaError(code)) is verdict


def test_what_the_absence_of_an_answer_means() -> None:
    assert verdict_of_call(ConnectionLost("gone")) is RETRY
    assert verdict_of_record(ConnectionLost("gone")) is ABORT
    assert verdict_of_call(NotSupported("too old")) is FAIL
    assert verdict_of_call(AbortRequired("earlier")) is ABORT


def opened(*, begun: bool = True) -> TransactionState:
    state = TransactionState()
    state.initialised((7, 0), v2=True)
    state.begun(v2=True)
    state.is_begun = begun
    return state


def test_a_transaction_begins_ends_and_gives_the_next_identity() -> None:
    state = TransactionState()
    assert (state.phase, state.identity) == (Phase.NEW, NO_IDENTITY)
    state.initialised((7, 0), v2=True)
    state.begun(v2=True)
    state.check_open()
    state.ending(commit=True)
    state.ended((7, 1))
    assert (state.phase, state.identity) == (Phase.READY, (7, 1))
    state.begun(v2=True)
    state.ending(commit=False)
    state.ended(None)
    assert (state.phase, state.identity) == (Phase.READY, (7, 1))


@pytest.mark.parametrize(
    "misuse",
    [
        lambda state: state.begun(v2=True),
        lambda state: state.check_open(),
        lambda state: state.ending(commit=True),
        lambda state: state.ending(commit=False),
        lambda state: state.ended(None),
    ],
)
def test_calls_out_of_order_are_mistakes_of_the_program(misuse) -> None:
    with pytest.raises(AssertionError):
        misuse(TransactionState())


def test_a_second_init_in_a_transaction_is_a_mistake_of_the_program() -> None:
    with pytest.raises(AssertionError):
        opened().initialised((7, 1), v2=True)


def test_an_epoch_is_due_after_an_uncertain_sequence_and_for_the_first_time_of_version_two() -> (
    None
):
    state = TransactionState()
    assert not state.needs_epoch(v2=True), "init gives one anyway"
    state.initialised((7, 0), v2=False)
    assert not state.needs_epoch(v2=False)
    assert state.needs_epoch(v2=True)
    state.bump_due = True
    assert state.needs_epoch(v2=False)
    state.initialised((7, 1), v2=True)
    assert not state.needs_epoch(v2=True)
    assert not state.needs_epoch(v2=False), "a cluster that goes back needs none"


def test_the_first_failure_of_a_transaction_is_reported_until_it_is_aborted() -> None:
    state = opened()
    state.failed(KafkaError(45), ABORT)
    state.failed(KafkaError(10), ABORT)
    for check in (state.check_open, lambda: state.check_end(commit=True)):
        with pytest.raises(AbortRequired, match="OUT_OF_ORDER_SEQUENCE_NUMBER") as raised:
            check()
        assert isinstance(raised.value.__cause__, KafkaError)
    state.ending(commit=False)
    state.ended((7, 1))
    state.begun(v2=True)
    state.check_open()


def test_a_failed_producer_stays_so() -> None:
    state = opened()
    state.failed(KafkaError(10), ABORT)
    state.failed(KafkaError(90), FAIL)
    state.failed(KafkaError(49), FAIL)
    state.failed(KafkaError(10), ABORT)
    for check in (
        state.check_open,
        lambda: state.check_end(commit=True),
        lambda: state.check_end(commit=False),
        lambda: state.begun(v2=True),
    ):
        with pytest.raises(ProducerFailed, match="PRODUCER_FENCED"):
            check()


def answered(state: TransactionState, error: ClientError) -> None:
    state.end_sent()
    state.end_answered(error)


@pytest.mark.parametrize("error", [ConnectionLost("gone"), KafkaError(15), KafkaError(16)])
def test_a_commit_that_may_be_decided_is_neither_aborted_nor_called_refused(
    error: ClientError,
) -> None:
    state = opened()
    state.ending(commit=True)
    answered(state, error)
    assert state.is_unknown
    with pytest.raises(OutcomeUnknown):
        state.check_end(commit=False)
    state.ending(commit=True)
    answered(state, KafkaError(51))  # which takes nothing back
    refusal = KafkaError(90)
    answered(state, refusal)
    with pytest.raises(OutcomeUnknown, match="PRODUCER_FENCED"):
        state.end_refused(refusal)
    with pytest.raises(OutcomeUnknown):
        state.begun(v2=True)


def test_a_commit_that_is_on_its_way_counts_as_one_that_may_be_decided() -> None:
    state = opened()
    state.ending(commit=True)
    assert not state.is_unknown
    state.end_sent()
    assert state.is_unknown


def test_a_commit_that_was_certainly_not_decided_may_be_aborted() -> None:
    state = opened()
    state.ending(commit=True)
    for code in (51, 14):
        answered(state, KafkaError(code))
    assert not state.is_unknown
    state.ending(commit=False)
    state.ended(None)


@pytest.mark.parametrize(
    "code, kind, phase",
    [
        (120, AbortRequired, Phase.ABORT_DUE),
        (48, ProducerFailed, Phase.FAILED),
        (90, ProducerFailed, Phase.FAILED),
    ],
)
def test_a_refused_commit_is_not_committed(code: int, kind: type, phase: Phase) -> None:
    state = opened()
    state.ending(commit=True)
    refusal = KafkaError(code)
    answered(state, refusal)
    with pytest.raises(kind):
        state.end_refused(refusal)
    assert state.phase is phase


def test_a_lost_answer_to_an_abort_is_no_reason_to_call_it_unknown() -> None:
    state = opened()
    state.ending(commit=False)
    answered(state, ConnectionLost("gone"))
    state.ending(commit=False)
    refusal = KafkaError(90)
    answered(state, refusal)
    with pytest.raises(ProducerFailed):
        state.end_refused(refusal)


def test_an_abort_that_the_coordinator_calls_abortable_is_repeated() -> None:
    state = opened()
    state.ending(commit=False)
    refusal = KafkaError(120)
    answered(state, refusal)
    with pytest.raises(KafkaError, match="TRANSACTION_ABORTABLE"):
        state.end_refused(refusal)
    state.ending(commit=False)


def test_an_unknown_end_of_one_transaction_is_none_of_the_next() -> None:
    state = opened()
    state.ending(commit=True)
    answered(state, ConnectionLost("gone"))
    state.ended((7, 1))
    state.begun(v2=True)
    state.ending(commit=True)
    assert not state.is_unknown
