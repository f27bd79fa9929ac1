"""The APIs of members of classic groups, and those of administrators for groups of all kinds.

JoinGroup, SyncGroup, Heartbeat, LeaveGroup; DescribeGroups, ListGroups, DeleteGroups.
`logfleet.groups` has the rules; here are the differences between versions, and the lookup of the
coordinator.
"""

import uuid
from collections.abc import Awaitable
from typing import Any, Final

from logfleet.auth.operations import Resource, ResourceType
from logfleet.groups.classic.groups import CLASSIC
from logfleet.groups.classic.join import Caller, Join, protocols_of
from logfleet.node.coordinators.waiter import Waiter
from logfleet.node.dispatch import Handler, RequestContext
from logfleet.node.groups.group_shard import GroupShard
from logfleet.node.handlers.rooms import Rooms, shard_of
from logfleet.wire.errors import ErrorCode
from logfleet.wire.messages import (
    DeleteGroupsRequest,
    DeleteGroupsResponse,
    DescribeGroupsRequest,
    DescribeGroupsResponse,
    HeartbeatRequest,
    HeartbeatResponse,
    JoinGroupRequest,
    JoinGroupResponse,
    LeaveGroupRequest,
    LeaveGroupResponse,
    ListGroupsRequest,
    ListGroupsResponse,
    SyncGroupRequest,
    SyncGroupResponse,
)

NULL_PROTOCOL_SINCE: Final = 7
"""Before this version of JoinGroup a missing protocol name is empty, not null."""
PROTOCOL_REQUIRED_SINCE: Final = 5
"""Since this version SyncGroup names the protocol (KIP-559)."""
LEAVE_MEMBERS_SINCE: Final = 3
"""Before this version LeaveGroup and its answer are about one member."""

_Results = list[DeleteGroupsResponse.DeletableGroupResult]
_Deleting = list[tuple[list[str], Waiter[_Results]]]


def join_group(
    rooms: Rooms, request: JoinGroupRequest, context: RequestContext
) -> JoinGroupResponse | Awaitable[JoinGroupResponse]:
    """Answered when the group has its next generation."""
    shard = shard_of(rooms, request.group_id)
    if isinstance(shard, ErrorCode):
        error = shard if request.group_id else ErrorCode.INVALID_GROUP_ID
        return _for_version(
            JoinGroupResponse(member_id=request.member_id, error_code=error), context.api_version
        )
    waiter = Waiter[JoinGroupResponse]()
    client_id = context.client_id or ""
    caller = Caller(client_id, f"/{context.peer.host}", context.api_version)
    fresh_id = f"{request.group_instance_id or client_id}-{uuid.uuid4()}"
    turn = shard.turn()
    shard.coordinator.of(CLASSIC).join(
        turn, Join(request, protocols_of(request), caller, waiter, fresh_id)
    )
    shard.execute(turn)
    if waiter.response is not None:
        return _for_version(waiter.response, context.api_version)
    return _join_later(waiter, context)


async def _join_later(
    waiter: Waiter[JoinGroupResponse], context: RequestContext
) -> JoinGroupResponse:
    otherwise = JoinGroupResponse(error_code=ErrorCode.NOT_COORDINATOR)
    return _for_version(await waiter.wait(context.peer, otherwise), context.api_version)


def _for_version(response: JoinGroupResponse, api_version: int) -> JoinGroupResponse:
    """A missing protocol is null in versions that have null, else empty (JoinGroupResponse)."""
    if not response.protocol_name:
        response.protocol_name = None if api_version >= NULL_PROTOCOL_SINCE else ""
    return response


def sync_group(
    rooms: Rooms, request: SyncGroupRequest, context: RequestContext
) -> SyncGroupResponse | Awaitable[SyncGroupResponse]:
    """Answered when the leader's assignment is stored."""
    if context.api_version >= PROTOCOL_REQUIRED_SINCE and None in {
        request.protocol_type,
        request.protocol_name,
    }:
        return SyncGroupResponse(error_code=ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
    shard = shard_of(rooms, request.group_id)
    if isinstance(shard, ErrorCode):
        error = shard if request.group_id else ErrorCode.INVALID_GROUP_ID
        if error is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS:
            # The generation is not loaded yet: let the member join again
            # (GroupCoordinator.handleSyncGroup of Kafka 3; Java clients take Kafka 4's answer for
            # fatal).
            error = ErrorCode.REBALANCE_IN_PROGRESS
        return SyncGroupResponse(error_code=error)
    waiter = Waiter[SyncGroupResponse]()
    turn = shard.turn()
    shard.coordinator.of(CLASSIC).sync(turn, request, waiter)
    shard.execute(turn)
    return waiter.result(context.peer, SyncGroupResponse(error_code=ErrorCode.NOT_COORDINATOR))


def heartbeat(
    rooms: Rooms, request: HeartbeatRequest, _context: RequestContext
) -> HeartbeatResponse:
    """While a group is being loaded, its members get no error."""
    shard = shard_of(rooms, request.group_id)
    if isinstance(shard, ErrorCode):
        if not request.group_id:
            shard = ErrorCode.INVALID_GROUP_ID
        elif shard is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS:
            shard = ErrorCode.NONE
        return HeartbeatResponse(error_code=shard)
    turn = shard.turn()
    response = shard.coordinator.of(CLASSIC).heartbeat(turn, request)
    shard.execute(turn)
    return response


def leave_group(
    rooms: Rooms, request: LeaveGroupRequest, context: RequestContext
) -> LeaveGroupResponse | Awaitable[LeaveGroupResponse]:
    shard = shard_of(rooms, request.group_id)
    if isinstance(shard, ErrorCode):
        error = shard if request.group_id else ErrorCode.INVALID_GROUP_ID
        return LeaveGroupResponse(error_code=error)
    if context.api_version < LEAVE_MEMBERS_SINCE:
        request.members = [LeaveGroupRequest.MemberIdentity(member_id=request.member_id)]
    waiter = Waiter[LeaveGroupResponse]()
    turn = shard.turn()
    shard.coordinator.of(CLASSIC).leave(turn, request, waiter)
    shard.execute(turn)
    if waiter.response is not None:
        return _left(waiter.response, context.api_version)
    return _leave_later(waiter, context)


async def _leave_later(
    waiter: Waiter[LeaveGroupResponse], context: RequestContext
) -> LeaveGroupResponse:
    otherwise = LeaveGroupResponse(error_code=ErrorCode.NOT_COORDINATOR)
    return _left(await waiter.wait(context.peer, otherwise), context.api_version)


def _left(response: LeaveGroupResponse, api_version: int) -> LeaveGroupResponse:
    """Before LEAVE_MEMBERS_SINCE, the answer about one member is its error."""
    if api_version < LEAVE_MEMBERS_SINCE and response.members:
        return LeaveGroupResponse(error_code=response.members[0].error_code)
    return response


def describe_groups(
    rooms: Rooms, request: DescribeGroupsRequest, context: RequestContext
) -> DescribeGroupsResponse:
    groups = []
    for group_id in request.groups:
        shard = shard_of(rooms, group_id)
        if isinstance(shard, ErrorCode):
            groups.append(
                DescribeGroupsResponse.DescribedGroup(group_id=group_id, error_code=shard)
            )
            continue
        group = shard.coordinator.describe(group_id, context.api_version)
        if request.include_authorized_operations and group.error_code == ErrorCode.NONE:
            resource = Resource(ResourceType.GROUP, group_id)
            group.authorized_operations = context.allowed(resource)
        groups.append(group)
    return DescribeGroupsResponse(groups=groups)


def list_groups(
    rooms: Rooms, request: ListGroupsRequest, _context: RequestContext
) -> ListGroupsResponse:
    """The groups that this broker coordinates.

    An error while any are being loaded: a list without these would look as if they were deleted.
    """
    groups = []
    for shard in rooms.coordinators.shards():
        if shard.is_closed:
            continue
        if not shard.is_loaded:
            return ListGroupsResponse(error_code=ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
        groups += shard.coordinator.list_groups(request.states_filter, request.types_filter)
    return ListGroupsResponse(groups=groups)


def delete_groups(
    rooms: Rooms, request: DeleteGroupsRequest, context: RequestContext
) -> DeleteGroupsResponse | Awaitable[DeleteGroupsResponse]:
    """Each coordinator deletes its groups at once; answered when all have."""
    failed: _Results = []
    by_shard: dict[GroupShard, list[str]] = {}
    for group_id in dict.fromkeys(request.groups_names):
        shard = shard_of(rooms, group_id)
        if isinstance(shard, ErrorCode):
            failed.append(_failed(group_id, shard))
        else:
            by_shard.setdefault(shard, []).append(group_id)
    deleting: _Deleting = []
    for shard, group_ids in by_shard.items():
        waiter = Waiter[_Results]()
        turn = shard.turn()
        shard.coordinator.delete(turn, group_ids, waiter)
        shard.execute(turn)
        deleting.append((group_ids, waiter))
    if all(waiter.response is not None for _, waiter in deleting):
        return _deleted(failed, deleting)
    return _delete_later(failed, deleting, context)


async def _delete_later(
    failed: _Results, deleting: _Deleting, context: RequestContext
) -> DeleteGroupsResponse:
    for group_ids, waiter in deleting:
        await waiter.wait(
            context.peer, [_failed(group_id, ErrorCode.NOT_COORDINATOR) for group_id in group_ids]
        )
    return _deleted(failed, deleting)


def _deleted(failed: _Results, deleting: _Deleting) -> DeleteGroupsResponse:
    results = failed + [result for _, waiter in deleting for result in waiter.response or []]
    return DeleteGroupsResponse(results=results)


def _failed(group_id: str, error: ErrorCode) -> DeleteGroupsResponse.DeletableGroupResult:
    return DeleteGroupsResponse.DeletableGroupResult(group_id=group_id, error_code=error)


HANDLERS: dict[type, Handler[Any]] = {
    JoinGroupRequest: join_group,
    SyncGroupRequest: sync_group,
    HeartbeatRequest: heartbeat,
    LeaveGroupRequest: leave_group,
    DescribeGroupsRequest: describe_groups,
    ListGroupsRequest: list_groups,
    DeleteGroupsRequest: delete_groups,
}
