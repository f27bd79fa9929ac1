import asyncio
from inspect import isawaitable

import pytest
from logfleet.node.handlers.groups import (
    HANDLERS,
    delete_groups,
    describe_groups,
    heartbeat,
    join_group,
    leave_group,
    list_groups,
    sync_group,
)
from logfleet.wire.apis import api_of
from logfleet.wire.codec import encode_bytes
from logfleet.wire.errors import ErrorCode
from logfleet.wire.messages import (
    DeleteGroupsRequest,
    DescribeGroupsRequest,
    HeartbeatRequest,
    JoinGroupRequest,
    LeaveGroupRequest,
    ListGroupsRequest,
    SyncGroupRequest,
)

from broker_image.tests.unit.node.handlers.groups_rig import GroupsRig

pytestmark = pytest.mark.asyncio


@pytest.fixture
def rig(host, tmp_path):
    return GroupsRig(host, str(tmp_path))


async def ask(rig, handler, request, version, **context):
    """The response, waited for if it must be; it can be encoded in that version."""
    response = handler(rig.host, request, rig.host.context(version, **context))
    if isawaitable(response):
        response = await response
    encode_bytes(response, version)
    return response


def join_request(group_id="g", member_id="", **fields):
    return JoinGroupRequest(
        group_id=group_id,
        session_timeout_ms=10_000,
        rebalance_timeout_ms=60_000,
        member_id=member_id,
        protocol_type="consumer",
        protocols=[JoinGroupRequest.JoinGroupRequestProtocol(name="range", metadata=b"sub")],
        **fields,
    )


def sync_request(joined, **fields):
    assigned = SyncGroupRequest.SyncGroupRequestAssignment(
        member_id=joined.member_id, assignment=b"p0"
    )
    return SyncGroupRequest(
        group_id="g",
        generation_id=joined.generation_id,
        member_id=joined.member_id,
        assignments=[assigned],
        **fields,
    )


async def stable(rig):
    """A member of a stable group."""
    joined = await ask(rig, join_group, join_request(), 3)
    await ask(rig, sync_group, sync_request(joined), 0)
    return joined


@pytest.mark.parametrize("version", range(10))
async def test_a_member_joins_syncs_beats_and_leaves_in_every_version(rig, version):
    async with rig.coordinating():
        member_id = ""
        if version >= 4:
            first = await ask(rig, join_group, join_request(), version)
            assert first.error_code == ErrorCode.MEMBER_ID_REQUIRED
            member_id = first.member_id
        joined = await ask(rig, join_group, join_request(member_id=member_id), version)
        assert (joined.error_code, joined.generation_id) == (ErrorCode.NONE, 1)
        assert joined.leader == joined.member_id
        assert joined.member_id.startswith("client-")
        assert [member.metadata for member in joined.members] == [b"sub"]

        protocol = {"protocol_type": "consumer", "protocol_name": "range"}
        request = sync_request(joined, **(protocol if version >= 5 else {}))
        synced = await ask(rig, sync_group, request, min(version, 5))
        assert (synced.error_code, synced.assignment) == (ErrorCode.NONE, b"p0")

        beat = HeartbeatRequest(group_id="g", generation_id=1, member_id=joined.member_id)
        assert (await ask(rig, heartbeat, beat, min(version, 4))).error_code == ErrorCode.NONE

        if version < 3:
            leaving = LeaveGroupRequest(group_id="g", member_id=joined.member_id)
        else:
            identity = LeaveGroupRequest.MemberIdentity(member_id=joined.member_id)
            leaving = LeaveGroupRequest(group_id="g", members=[identity])
        left = await ask(rig, leave_group, leaving, min(version, 5))
        assert left.error_code == ErrorCode.NONE
        assert [member.error_code for member in left.members] == ([] if version < 3 else [0])
        gone = await ask(rig, leave_group, leaving, min(version, 5))
        answer = gone.error_code if version < 3 else gone.members[0].error_code
        assert answer == ErrorCode.UNKNOWN_MEMBER_ID


@pytest.mark.parametrize("version", [6, 7])
async def test_a_refused_join_names_no_protocol_as_its_version_says(rig, version):
    async with rig.coordinating():
        request = join_request()
        request.session_timeout_ms = 1
        response = await ask(rig, join_group, request, version)
        assert response.error_code == ErrorCode.INVALID_SESSION_TIMEOUT
        assert response.protocol_name == (None if version >= 7 else "")


async def test_members_without_client_id_have_a_name_all_the_same(rig):
    async with rig.coordinating():
        response = await ask(rig, join_group, join_request(), 4, client_id=None)
        assert response.member_id.startswith("-")
        static = await ask(rig, join_group, join_request(group_instance_id="one"), 5)
        assert static.member_id.startswith("one-")


async def test_sync_must_name_its_protocol_since_version_5(rig):
    async with rig.coordinating():
        joined = await ask(rig, join_group, join_request(), 3)
        response = await ask(rig, sync_group, sync_request(joined), 5)
        assert response.error_code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL


async def test_who_is_parked_is_answered_when_it_leaves(rig):
    async with rig.coordinating():
        await stable(rig)
        context = rig.host.context(3)
        waiting = join_group(rig.host, join_request(), context)
        assert isawaitable(waiting)
        task = asyncio.ensure_future(waiting)
        await asyncio.sleep(0)
        assert context.peer.on_leave is not None
        context.peer.on_leave()
        assert (await task).error_code == ErrorCode.NOT_COORDINATOR


def every_request():
    member = LeaveGroupRequest.MemberIdentity(member_id="m")
    return [
        (join_group, join_request()),
        (sync_group, SyncGroupRequest(group_id="g")),
        (heartbeat, HeartbeatRequest(group_id="g")),
        (leave_group, LeaveGroupRequest(group_id="g", members=[member])),
    ]


@pytest.mark.parametrize("handler,request_", every_request())
async def test_another_broker_sends_members_away(rig, handler, request_):
    response = await ask(rig, handler, request_, 3)
    assert response.error_code == ErrorCode.NOT_COORDINATOR


@pytest.mark.parametrize("handler,request_", every_request())
async def test_while_groups_are_loaded_members_have_patience(rig, handler, request_):
    rig.lead_offsets()
    expected = {
        join_group: ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        sync_group: ErrorCode.REBALANCE_IN_PROGRESS,
        heartbeat: ErrorCode.NONE,
        leave_group: ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    }
    response = await ask(rig, handler, request_, 3)
    assert response.error_code == expected[handler]


@pytest.mark.parametrize("handler,request_", every_request())
async def test_a_group_has_a_name(rig, handler, request_):
    request_.group_id = ""
    response = await ask(rig, handler, request_, 3)
    assert response.error_code == ErrorCode.INVALID_GROUP_ID


@pytest.mark.parametrize("include,operations", [(False, -(2**31)), (True, 0b1101_0100_1000)])
async def test_groups_are_described(rig, include, operations):
    async with rig.coordinating():
        await stable(rig)
        request = DescribeGroupsRequest(
            groups=["g", "other"], include_authorized_operations=include
        )
        response = await ask(rig, describe_groups, request, 6)
        known, unknown = response.groups
        assert (known.group_state, known.authorized_operations) == ("Stable", operations)
        assert known.members[0].client_host == "/"
        assert unknown.error_code == ErrorCode.GROUP_ID_NOT_FOUND
        assert unknown.authorized_operations == -(2**31)


async def test_administrators_are_sent_to_the_coordinator(rig):
    described = await ask(rig, describe_groups, DescribeGroupsRequest(groups=["g"]), 6)
    assert described.groups[0].error_code == ErrorCode.NOT_COORDINATOR
    deleted = await ask(rig, delete_groups, DeleteGroupsRequest(groups_names=["g"]), 2)
    assert deleted.results[0].error_code == ErrorCode.NOT_COORDINATOR
    listed = await ask(rig, list_groups, ListGroupsRequest(), 5)
    assert (listed.error_code, listed.groups) == (ErrorCode.NONE, [])


async def test_groups_are_listed_when_all_are_known(rig):
    rig.lead_offsets()
    response = await ask(rig, list_groups, ListGroupsRequest(), 5)
    assert response.error_code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    rig.shard().close()
    response = await ask(rig, list_groups, ListGroupsRequest(), 5)
    assert response.error_code == ErrorCode.NONE


async def test_groups_are_listed_by_state(rig):
    async with rig.coordinating():
        await stable(rig)
        everything = await ask(rig, list_groups, ListGroupsRequest(), 0)
        empty = await ask(rig, list_groups, ListGroupsRequest(states_filter=["Empty"]), 5)
        assert [group.group_id for group in everything.groups] == ["g"]
        assert empty.groups == []


async def test_groups_are_deleted_once(rig):
    async with rig.coordinating():
        request = DeleteGroupsRequest(groups_names=["g", "g", "other"])
        await ask(rig, join_group, join_request(), 4)  # makes the group, joins it not yet
        response = await ask(rig, delete_groups, request, 3)
        assert [(result.group_id, result.error_code) for result in response.results] == [
            ("g", ErrorCode.NONE),
            ("other", ErrorCode.GROUP_ID_NOT_FOUND),
        ]


async def test_a_deletion_waits_for_its_records(rig):
    async with rig.coordinating() as partition:
        await ask(rig, join_group, join_request(), 4)
        partition.lags = True
        request = DeleteGroupsRequest(groups_names=["g"])
        waiting = delete_groups(rig.host, request, rig.host.context(2))
        assert isawaitable(waiting)
        task = asyncio.ensure_future(waiting)
        await asyncio.sleep(0)
        rig.lose(partition)
        response = await task
        assert response.results[0].error_code == ErrorCode.NOT_COORDINATOR


async def test_leaving_waits_for_its_records(rig):
    async with rig.coordinating() as partition:
        joined = await stable(rig)
        partition.lags = True
        request = LeaveGroupRequest(group_id="g", member_id=joined.member_id)
        waiting = leave_group(rig.host, request, rig.host.context(0))
        assert isawaitable(waiting)
        task = asyncio.ensure_future(waiting)
        await asyncio.sleep(0)
        rig.lose(partition)
        assert (await task).error_code == ErrorCode.NOT_COORDINATOR


async def test_it_serves_seven_apis():
    assert sorted(api_of(request).name for request in HANDLERS) == [
        "DeleteGroups",
        "DescribeGroups",
        "Heartbeat",
        "JoinGroup",
        "LeaveGroup",
        "ListGroups",
        "SyncGroup",
    ]
