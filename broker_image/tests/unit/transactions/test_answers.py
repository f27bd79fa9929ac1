from typing import Any

import pytest
from logfleet.coordinators.turn import Turn
from logfleet.transactions.answers import known_to_version, reply_code, reply_end, reply_rows
from logfleet.transactions.decision import Decision
from logfleet.transactions.records import TransactionRecord
from logfleet.transactions.state import TopicPartition
from logfleet.types import ProducerEpoch
from logfleet.wire.errors import ErrorCode


@pytest.fixture
def turn() -> Turn[TransactionRecord]:
    return Turn(0, 0)


@pytest.mark.parametrize("version, known", [(1, "INVALID_PRODUCER_EPOCH"), (2, "PRODUCER_FENCED")])
def test_a_fenced_producer_gets_the_error_that_its_version_has(version: int, known: str) -> None:
    assert known_to_version(ErrorCode.PRODUCER_FENCED, version, 2).name == known
    assert known_to_version(ErrorCode.NONE, version, 2) is ErrorCode.NONE


def test_a_write_that_failed_hides_what_was_decided(turn: Turn[TransactionRecord]) -> None:
    decided = Decision(ErrorCode.NONE, None, 7, ProducerEpoch(3))
    reply_end(5, "end", decided, turn, ErrorCode.REQUEST_TIMED_OUT)
    reply_code("code", ErrorCode.PRODUCER_FENCED, turn, ErrorCode.NOT_LEADER_OR_FOLLOWER)
    row = TopicPartition("t", 0)
    reply_rows("rows", {row: ErrorCode.NONE}, turn, ErrorCode.NOT_ENOUGH_REPLICAS)
    answered: dict[object, Any] = {reply.waiter: reply.response for reply in turn.replies}
    assert answered["end"].error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert answered["end"].producer_id == -1
    assert answered["code"] is ErrorCode.NOT_COORDINATOR
    assert answered["rows"] == {row: ErrorCode.COORDINATOR_NOT_AVAILABLE}


def test_a_decision_that_is_committed_is_answered_with_its_pair(
    turn: Turn[TransactionRecord],
) -> None:
    reply_end(5, "end", Decision(ErrorCode.NONE, None, 7, ProducerEpoch(3)), turn, ErrorCode.NONE)
    answered: list[Any] = [reply.response for reply in turn.replies]
    assert [(each.producer_id, each.producer_epoch) for each in answered] == [(7, 3)]
