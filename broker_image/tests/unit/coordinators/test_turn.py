import pytest
from logfleet.coordinators.turn import Turn, answer_to_append_error
from logfleet.wire.errors import ErrorCode


@pytest.mark.parametrize(
    "error,answer",
    [
        (ErrorCode.NONE, ErrorCode.NONE),
        (ErrorCode.REQUEST_TIMED_OUT, ErrorCode.COORDINATOR_NOT_AVAILABLE),
        (ErrorCode.NOT_ENOUGH_REPLICAS, ErrorCode.COORDINATOR_NOT_AVAILABLE),
        (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.COORDINATOR_NOT_AVAILABLE),
        (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.NOT_COORDINATOR),
        (ErrorCode.KAFKA_STORAGE_ERROR, ErrorCode.NOT_COORDINATOR),
        (ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.UNKNOWN_SERVER_ERROR),
        (ErrorCode.INVALID_REQUEST, ErrorCode.INVALID_REQUEST),
    ],
)
def test_clients_are_told_what_makes_them_look_for_the_coordinator_again(error, answer):
    assert answer_to_append_error(error) is answer


def test_a_turn_keeps_the_order_of_what_was_decided():
    turn = Turn[object](1, 2)
    turn.reply("a", 1)
    turn.reply("b", 2)
    turn.log("event", why="because")
    assert [(reply.waiter, reply.response) for reply in turn.replies] == [("a", 1), ("b", 2)]
    assert turn.log_lines[0].fields == {"why": "because"}
