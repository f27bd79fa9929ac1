"""Requests that are refused before they reach a group's state; the rest is in tests/scenario/groups."""

import pytest
from logfleet.groups.classic.groups import CLASSIC
from logfleet.groups.classic.join import Caller, Join, protocols_of
from logfleet.wire.errors import ErrorCode
from logfleet.wire.messages import (
    HeartbeatRequest,
    JoinGroupRequest,
    LeaveGroupRequest,
    SyncGroupRequest,
)

from broker_image.tests.scenario.group_host import GroupHost
from broker_image.tests.scenario.group_script import Script


def join(host: GroupHost, version: int = 9, **fields: object):
    values: dict[str, object] = {
        "group_id": "g",
        "session_timeout_ms": 10_000,
        "rebalance_timeout_ms": 60_000,
        "protocol_type": "consumer",
        "protocols": [JoinGroupRequest.JoinGroupRequestProtocol(name="range")],
    }
    request = JoinGroupRequest(**(values | fields))  # type: ignore[arg-type]
    turn = host.turn()
    caller = Caller("c", "/h", version)
    waiter = len(host.answered)
    fresh_id = f"fresh-{waiter}"
    host.coordinator.of(CLASSIC).join(
        turn, Join(request, protocols_of(request), caller, waiter, fresh_id)
    )
    host.run(turn)
    return host.replies[-1][1] if waiter in host.answered else None


@pytest.mark.parametrize(
    "fields,error",
    [
        ({"group_id": ""}, ErrorCode.INVALID_GROUP_ID),
        ({"session_timeout_ms": 5_999}, ErrorCode.INVALID_SESSION_TIMEOUT),
        ({"session_timeout_ms": 1_800_001}, ErrorCode.INVALID_SESSION_TIMEOUT),
        ({"member_id": "m"}, ErrorCode.UNKNOWN_MEMBER_ID),
        ({"protocol_type": ""}, ErrorCode.INCONSISTENT_GROUP_PROTOCOL),
        ({"protocols": []}, ErrorCode.INCONSISTENT_GROUP_PROTOCOL),
    ],
)
def test_a_join_that_makes_no_sense_is_refused(fields, error):
    response = join(GroupHost(), **fields)
    assert response.error_code == error
    assert response.member_id == fields.get("member_id", "")


def test_a_session_may_be_as_short_and_as_long_as_configured():
    for session_timeout_ms in (6_000, 1_800_000):
        response = join(GroupHost(), session_timeout_ms=session_timeout_ms)
        assert response.error_code == ErrorCode.MEMBER_ID_REQUIRED


def test_an_id_that_was_given_out_is_for_a_dynamic_member():
    host = GroupHost()
    member_id = join(host).member_id
    response = join(host, member_id=member_id, group_instance_id="one")
    assert response.error_code == ErrorCode.UNKNOWN_SERVER_ERROR


def test_a_join_without_id_is_answered_after_five_minutes():
    """Its client may be gone: it could not tell, having no id to send heartbeats with."""
    script = Script()
    script.run("join a version=3 rebalance=1800000; wait 3000")
    script.run("sync a a=p0; join b version=3")
    for _ in range(60):
        assert script.run("wait 4999; beat a") == ["a REBALANCE_IN_PROGRESS"]
    assert script.run("wait 60") == ["b UNKNOWN_MEMBER_ID"]


def test_members_join_again_when_a_rebalance_is_asked_for():
    script = Script()
    script.run("join a version=3; wait 3000; sync a a=p0")
    groups = script.host.coordinator.of(CLASSIC)
    (group,) = groups.groups()
    for _ in range(2):
        turn = script.host.turn()
        groups.rebalance(turn, group, "a test wants it")
        script.host.run(turn)
        assert script.run("beat a") == ["a REBALANCE_IN_PROGRESS"]


@pytest.mark.parametrize(
    "group_id,error",
    [("", ErrorCode.INVALID_GROUP_ID), ("other", ErrorCode.UNKNOWN_MEMBER_ID)],
)
def test_requests_to_no_group_are_refused(group_id, error):
    host = GroupHost()
    turn = host.turn()
    assert (
        host.coordinator.of(CLASSIC).heartbeat(turn, HeartbeatRequest(group_id=group_id)).error_code
        == error
    )
    host.coordinator.of(CLASSIC).sync(turn, SyncGroupRequest(group_id=group_id), "sync")
    leaving = [LeaveGroupRequest.MemberIdentity(member_id="m")]
    host.coordinator.of(CLASSIC).leave(
        turn, LeaveGroupRequest(group_id=group_id, members=leaving), "leave"
    )
    sync, leave = (reply.response for reply in turn.replies)
    assert sync.error_code == error  # type: ignore[attr-defined]
    if group_id:
        assert leave.members[0].error_code == error  # type: ignore[attr-defined]
    else:
        assert leave.error_code == error  # type: ignore[attr-defined]


def test_a_heartbeat_of_another_generation_is_refused():
    host = GroupHost()
    join(host, version=3)
    host.wait(10_000)
    request = HeartbeatRequest(group_id="g", generation_id=2, member_id="fresh-0")
    response = host.coordinator.of(CLASSIC).heartbeat(host.turn(), request)
    assert response.error_code == ErrorCode.ILLEGAL_GENERATION


def test_a_member_that_was_given_an_id_may_leave_before_it_joins():
    host = GroupHost()
    member_id = join(host).member_id
    turn = host.turn()
    leaving = [LeaveGroupRequest.MemberIdentity(member_id=member_id)]
    host.coordinator.of(CLASSIC).leave(
        turn, LeaveGroupRequest(group_id="g", members=leaving), "leave"
    )
    assert turn.replies[0].response.members[0].error_code == ErrorCode.NONE  # type: ignore[attr-defined]
    assert host.coordinator.next_deadline_ms() is None


def test_whoever_is_unknown_cannot_leave():
    host = GroupHost()
    join(host, version=3)
    turn = host.turn()
    leaving = [
        LeaveGroupRequest.MemberIdentity(member_id=""),
        LeaveGroupRequest.MemberIdentity(member_id="", group_instance_id="one"),
        LeaveGroupRequest.MemberIdentity(member_id="other"),
    ]
    host.coordinator.of(CLASSIC).leave(
        turn, LeaveGroupRequest(group_id="g", members=leaving), "leave"
    )
    answers = turn.replies[0].response.members  # type: ignore[attr-defined]
    assert {answer.error_code for answer in answers} == {ErrorCode.UNKNOWN_MEMBER_ID}


def test_leaving_is_answered_when_the_empty_group_is_stored():
    host = GroupHost()
    join(host, version=3)
    host.wait(10_000)
    host.holds_commits = True
    turn = host.turn()
    leaving = [LeaveGroupRequest.MemberIdentity(member_id="fresh-0")]
    host.coordinator.of(CLASSIC).leave(
        turn, LeaveGroupRequest(group_id="g", members=leaving), "leave"
    )
    host.run(turn)
    assert "leave" not in host.answered
    host.commit(ErrorCode.NOT_LEADER_OR_FOLLOWER)
    assert host.replies[-1][1].error_code == ErrorCode.NOT_COORDINATOR  # type: ignore[attr-defined]


def test_a_rebalance_tells_its_group_generation_member_and_the_clients_reason():
    """KIP-800: the reasons of JoinGroup since version 8 and of LeaveGroup since 5."""
    script = Script()
    script.run("config initial-delay=0")
    script.run("join a version=3 reason=scaled-out; wait 0; sync a a=p0")
    script.run("join b version=3; join a; sync a a=p0 b=p1; sync b; leave b reason=scaled-in")
    script.run("join a; sync a a=p0; wait 10000")
    told = [
        (note.event, note.fields.get("generation"), note.fields.get("member"), note.fields["why"])
        for note in script.host.log_lines
        if "why" in note.fields and note.fields["group"] == "g"
    ]
    a, b = script.clients["a"].member_id, script.clients["b"].member_id
    assert told == [
        ("rebalance_started", 0, a, f"new member {a}; client: scaled-out"),
        ("rebalance_started", 1, b, f"new member {b}; client: not provided"),
        ("member_left", 2, b, "scaled-in"),
        ("rebalance_started", 2, b, f"left: {b}"),
        ("members_dropped", 3, None, "no heartbeat within 10000 ms"),
        ("rebalance_started", 3, a, f"member {a} sent no heartbeat"),
    ]
