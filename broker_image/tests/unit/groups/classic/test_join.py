import pytest
from logfleet.groups.classic.join import Caller, Join, protocols_of
from logfleet.groups.turn import GroupTurn
from logfleet.wire.errors import ErrorCode
from logfleet.wire.messages import JoinGroupRequest, JoinGroupResponse


def join(version: int, **fields: object) -> Join:
    request = JoinGroupRequest(session_timeout_ms=10, rebalance_timeout_ms=20, **fields)  # type: ignore[arg-type]
    return Join(request, (), Caller("c", "/h", version), "waiter", "fresh")


@pytest.mark.parametrize("version,timeout_ms", [(0, 10), (1, 20), (9, 20)])
def test_version_0_means_the_session_timeout(version, timeout_ms):
    assert join(version).rebalance_timeout_ms == timeout_ms


def test_of_two_protocols_with_one_name_the_first_counts():
    names = [("x", b"1"), ("y", b"2"), ("x", b"3")]
    request = JoinGroupRequest(
        protocols=[
            JoinGroupRequest.JoinGroupRequestProtocol(name=name, metadata=metadata)
            for name, metadata in names
        ]
    )
    assert protocols_of(request) == (("x", b"1"), ("y", b"2"))


def test_a_refusal_names_the_error_and_the_member():
    turn = GroupTurn(0, 0)
    join(9).refuse(turn, ErrorCode.UNKNOWN_MEMBER_ID, "m")
    (reply,) = turn.replies
    assert reply.waiter == "waiter"
    assert reply.response == JoinGroupResponse(
        member_id="m", error_code=ErrorCode.UNKNOWN_MEMBER_ID
    )


def test_a_reason_that_is_not_given_is_said_to_be_so():
    assert join(9).reason == "not provided"
    assert join(9, reason="scaling").reason == "scaling"
