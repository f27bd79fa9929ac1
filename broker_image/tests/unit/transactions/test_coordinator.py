"""What the scenarios do not reach: requests without an id, many ids at once, what a shell calls."""

import pytest
from logfleet.transactions.adding import Addition
from logfleet.transactions.config import TransactionConfig
from logfleet.transactions.coordinator import COMPLETED_PER_TICK, TransactionCoordinator
from logfleet.transactions.listing import Wanted, wanted_by
from logfleet.transactions.markers import MarkerKey
from logfleet.transactions.records import TransactionRecord
from logfleet.transactions.state import (
    NEVER_MS,
    TV2,
    State,
    TopicPartition,
    new_transaction,
)
from logfleet.types import ProducerEpoch
from logfleet.wire.errors import ErrorCode
from logfleet.wire.messages import (
    EndTxnRequest,
    EndTxnResponse,
    InitProducerIdRequest,
    InitProducerIdResponse,
    ListTransactionsRequest,
)

from broker_image.tests.scenario.transaction_host import WALL_MS, TransactionHost

PARTITION = TopicPartition("t", 0)
MANY = 5_000


def answers(host: TransactionHost) -> list[object]:
    return [response for _, response in host.replies]


def state_of(host: TransactionHost, transactional_id: str) -> State:
    return host.coordinator.table.by_id[transactional_id].state


def begun(host: TransactionHost, ids: int, *, timeout_ms: int = 60_000) -> None:
    """Ids with a transaction in progress."""
    for number in range(ids):
        transaction = new_transaction(number, timeout_ms, WALL_MS).with_partitions(
            {PARTITION}, client_version=TV2, wall_ms=WALL_MS
        )
        host.call(
            lambda turn, record: turn.write([record], lambda *_: None),
            TransactionRecord(f"tx-{number}", transaction),
        )


def test_a_request_without_an_id_is_invalid():
    host = TransactionHost()
    empty = Addition("", 1, ProducerEpoch(0), frozenset({PARTITION}))

    host.call(host.coordinator.init, InitProducerIdRequest(transactional_id=""), 5, "init")
    host.call(host.coordinator.add, empty, "add")
    host.call(host.coordinator.verify, empty, "verify")
    host.call(host.coordinator.end, EndTxnRequest(), 5, "end")
    host.call(host.coordinator.describe, [""], "describe")

    init, added, verified, ended, described = answers(host)
    assert isinstance(init, InitProducerIdResponse)
    assert (init.error_code, init.producer_id, init.producer_epoch) == (42, -1, -1)
    assert added is ErrorCode.INVALID_REQUEST
    assert verified == {PARTITION: ErrorCode.INVALID_REQUEST}
    assert isinstance(ended, EndTxnResponse)
    assert ended.error_code == ErrorCode.INVALID_REQUEST
    assert isinstance(described, list)
    assert [row.error_code for row in described] == [ErrorCode.INVALID_REQUEST]


def test_an_unknown_id_cannot_be_ended():
    host = TransactionHost()

    host.call(host.coordinator.end, EndTxnRequest(transactional_id="tx"), 5, "end")

    (ended,) = answers(host)
    assert isinstance(ended, EndTxnResponse)
    assert ended.error_code == ErrorCode.INVALID_PRODUCER_ID_MAPPING


def test_a_list_is_settled_once_all_before_it_is_committed():
    host = TransactionHost(holds_commits=True)
    begun(host, 1)

    assert [row.transaction_state for row in host.coordinator.listed(Wanted(), WALL_MS) if row] == [
        "Ongoing"
    ]
    host.call(host.coordinator.settle, "list")
    assert answers(host) == []
    host.commit()
    assert answers(host) == [ErrorCode.NONE]


def test_an_id_that_expires_during_a_list_is_left_out():
    host = TransactionHost()
    begun(host, 2)
    rows = host.coordinator.listed(Wanted(), WALL_MS)

    assert next(rows) is not None
    host.coordinator.apply(TransactionRecord("tx-1", None))
    assert list(rows) == [None]


def test_thousands_that_time_out_together_are_aborted_in_short_steps():
    host = TransactionHost()
    host.now_ms = -1
    begun(host, MANY)
    host.now_ms = 60_001
    host.load()
    steps = []
    while host.coordinator.table.ongoing:
        before = len(host.log)
        host.call(host.coordinator.tick)
        steps.append(len(host.log) - before)

    assert max(steps) <= 20
    assert len(host.markers) == MANY
    assert {each.key.epoch for each in host.markers} == {1}


def test_thousands_in_progress_are_checked_in_short_steps():
    host = TransactionHost(TransactionConfig(abort_interval_ms=10_000))
    begun(host, MANY, timeout_ms=NEVER_MS)
    host.load()
    ticks = 0
    while host.coordinator.next_deadline_ms() == host.now_ms:
        host.call(host.coordinator.tick)
        ticks += 1

    assert ticks == MANY // 2_000 + 1
    assert host.coordinator.next_deadline_ms() == host.now_ms + 10_000


def test_thousands_that_are_decided_are_taken_up_in_short_steps():
    host = TransactionHost(TransactionConfig(max_timeout_ms=NEVER_MS))
    begun(host, MANY)
    for number in range(MANY):
        request = EndTxnRequest(
            transactional_id=f"tx-{number}", producer_id=number, producer_epoch=0, committed=True
        )
        host.call(host.coordinator.end, request, 5, number)
    host.coordinator = host.new_coordinator()
    for record in host.records():
        host.coordinator.apply(record)
    most = 0
    for turn in host.coordinator.take_up(host.turn):
        host.markers.clear()
        host.run(turn)
        most = max(most, len(host.markers))

    assert most == 20


def test_thousands_of_ids_expire_in_short_steps():
    host = TransactionHost(TransactionConfig(id_expiration_ms=1_000))
    for number in range(MANY):
        record = TransactionRecord(f"tx-{number}", new_transaction(number, 1, WALL_MS))
        host.coordinator.apply(record)
    host.now_ms = 1_000
    expiry = host.coordinator.expiry
    steps = 0
    while not steps or expiry.is_under_way:
        before = len(host.log)
        host.call(expiry.step)
        assert len(host.log) - before <= 100
        steps += 1

    assert host.coordinator.table.by_id == {}
    assert steps == MANY // 100 + 1


def test_ids_that_change_during_a_round_are_not_expired():
    host = TransactionHost(TransactionConfig(id_expiration_ms=1_000))
    for number in range(200):
        record = TransactionRecord(f"tx-{number}", new_transaction(number, 1, WALL_MS))
        host.coordinator.apply(record)
    host.now_ms = 1_000
    host.call(host.coordinator.expiry.step)
    host.coordinator.apply(TransactionRecord("tx-199", None))
    used = new_transaction(198, 1, WALL_MS + 1)
    host.coordinator.apply(TransactionRecord("tx-198", used))

    host.expire()

    assert host.coordinator.table.by_id == {"tx-198": used}


def test_what_could_not_be_completed_is_completed_in_steps():
    host = TransactionHost()
    ids = COMPLETED_PER_TICK + 1
    begun(host, ids)
    for number in range(ids):
        request = EndTxnRequest(transactional_id=f"tx-{number}", producer_id=number, committed=True)
        host.call(host.coordinator.end, request, 4, number)
    host.append_error = ErrorCode.NOT_ENOUGH_REPLICAS
    for each in host.markers:
        host.call(host.coordinator.marked, each.key, each.partitions)
        host.call(host.coordinator.marked, each.key, each.partitions)  # it was sent twice
    assert host.coordinator.uncompleted == ids
    host.append_error = ErrorCode.NONE

    host.wait(49)
    assert len(host.coordinator.table.decided) == ids
    host.now_ms += 1
    host.call(host.coordinator.tick)
    assert len(host.coordinator.table.decided) == 1
    host.call(host.coordinator.tick)
    assert host.coordinator.is_idle


def test_markers_of_an_earlier_transaction_complete_nothing():
    host = TransactionHost()
    begun(host, 1)
    host.call(host.coordinator.end, EndTxnRequest(transactional_id="tx-0", producer_id=0), 5, 1)

    for key in (
        MarkerKey("tx-0", 0, ProducerEpoch(0)),
        MarkerKey("tx-0", 7, ProducerEpoch(1)),
        MarkerKey("another", 0, ProducerEpoch(1)),
    ):
        host.call(host.coordinator.marked, key, {PARTITION})

    assert state_of(host, "tx-0") is State.PREPARE_ABORT
    host.call(host.coordinator.marked, host.markers[0].key, {PARTITION})
    assert state_of(host, "tx-0") is State.COMPLETE_ABORT


def test_a_coordinator_that_was_lost_keeps_nothing():
    host = TransactionHost()
    begun(host, 2)
    host.call(host.coordinator.end, EndTxnRequest(transactional_id="tx-0", producer_id=0), 5, 1)

    host.unload()

    assert host.coordinator.is_idle
    assert host.coordinator.table.by_id == {}
    assert host.coordinator.next_deadline_ms() is None
    assert [line.event for line in host.log_lines][-1] == "transactions_unloaded"


def test_an_empty_partition_needs_no_attention():
    coordinator = TransactionCoordinator(TransactionConfig(), lambda: None)
    host = TransactionHost()

    assert list(coordinator.take_up(host.turn)) == []
    host.unload()
    assert host.log_lines == []


EMPTY = new_transaction(1, 1, 0)
ONGOING = EMPTY.with_partitions({PARTITION}, client_version=0, wall_ms=0)


@pytest.mark.parametrize(
    "change",
    [
        lambda: EMPTY.completed(0),
        lambda: EMPTY.prepared(commit=True, client_version=0, next_producer_id=-1, wall_ms=0),
        lambda: ONGOING.completed(0),
        lambda: ONGOING.with_epoch(
            1, ProducerEpoch(1), last_epoch=ProducerEpoch(0), timeout_ms=1, wall_ms=0
        ),
    ],
    ids=["no transaction is complete", "none is committed", "no outcome", "an open one is dropped"],
)
def test_no_state_is_left_out(change):
    with pytest.raises(AssertionError, match="to"):
        change()


def test_states_have_the_names_of_kafka():
    assert [state.wire_name for state in State] == [
        "Empty",
        "Ongoing",
        "PrepareCommit",
        "PrepareAbort",
        "CompleteCommit",
        "CompleteAbort",
    ]


def test_filters_that_are_empty_let_everything_pass():
    assert wanted_by(ListTransactionsRequest(duration_filter=-1)) == Wanted()


def test_a_transaction_whose_marker_is_refused_counts_as_one_without_markers():
    """Nothing is sent any more, but readers of its partition still wait."""
    host = TransactionHost()
    begun(host, 1)
    request = EndTxnRequest(transactional_id="tx-0", producer_id=0, committed=True)
    host.call(host.coordinator.end, request, 5, "end")
    key = MarkerKey("tx-0", 0, ProducerEpoch(1))

    assert host.coordinator.unmarked == 1
    host.call(host.coordinator.given_up, key, PARTITION, ErrorCode.TRANSACTION_COORDINATOR_FENCED)
    assert host.coordinator.unmarked == 1
    host.call(host.coordinator.marked, key, [PARTITION])
    assert state_of(host, "tx-0") is State.COMPLETE_COMMIT
    assert host.coordinator.unmarked == 0
