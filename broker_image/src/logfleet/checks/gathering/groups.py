"""Groups with their members and committed offsets, from the brokers that coordinate them.

A broker lists the groups that it coordinates, so no coordinator has to be found: three requests
per broker and hundred groups.
"""

from collections.abc import Sequence
from typing import Final

from logfleet.checks.gathering.offsets import in_parts
from logfleet.checks.snapshot import Group, Member
from logfleet.client.cluster import Client
from logfleet.client.connection import Connection
from logfleet.client.errors import raise_for
from logfleet.client.groups import NAMES_UP_TO_VERSION
from logfleet.wire.consumer_protocol import PROTOCOL_TYPE, read_assignment
from logfleet.wire.errors import MalformedMessage
from logfleet.wire.messages import (
    DescribeGroupsRequest,
    DescribeGroupsResponse,
    ListGroupsRequest,
    ListGroupsResponse,
    OffsetFetchRequest,
    OffsetFetchResponse,
)

GROUPS_MAX: Final = 100
"""In one request."""
CLASSIC: Final = frozenset({"classic", ""})
"""The kinds that DescribeGroups describes; brokers without KIP-848 name none."""


async def groups_at(client: Client, broker_id: int) -> list[Group]:
    """The groups that this broker coordinates. Raises ClientError."""
    connection = await client.broker(broker_id)
    response = await connection.request(
        ListGroupsRequest(), ListGroupsResponse, timeout_ms=client.request_timeout_ms
    )
    raise_for(response.error_code, subject=f"broker {broker_id}")
    found: list[Group] = []
    for rows in in_parts(response.groups, GROUPS_MAX):
        names = [row.group_id for row in rows]
        classic = [row.group_id for row in rows if row.group_type.lower() in CLASSIC]
        members = await _members(client, connection, classic)
        committed = await _committed(client, connection, names)
        found += [
            Group(
                row.group_id,
                row.group_state,
                members.get(row.group_id),
                committed.get(row.group_id),
            )
            for row in rows
        ]
    return found


async def _members(
    client: Client, connection: Connection, names: Sequence[str]
) -> dict[str, tuple[Member, ...]]:
    """Members by group, without groups that have moved or are gone."""
    if not names:
        return {}
    response = await connection.request(
        DescribeGroupsRequest(groups=list(names)),
        DescribeGroupsResponse,
        timeout_ms=client.request_timeout_ms,
    )
    return {
        row.group_id: tuple(
            Member(each.client_id, each.client_host, _assigned(each.member_assignment))
            for each in row.members
        )
        for row in response.groups
        if not row.error_code and row.protocol_type in ("", PROTOCOL_TYPE)
    }


def _assigned(assignment: bytes) -> dict[str, tuple[int, ...]]:
    """Partitions by topic; none while the group rebalances."""
    try:
        found = read_assignment(assignment)
    except MalformedMessage:
        return {}
    return {topic: tuple(indexes) for topic, indexes in found.items()}


async def _committed(
    client: Client, connection: Connection, names: Sequence[str]
) -> dict[str, dict[tuple[str, int], int]]:
    """Committed offsets by group, without groups that have moved or are gone."""
    wanted = [
        OffsetFetchRequest.OffsetFetchRequestGroup(group_id=name, topics=None) for name in names
    ]
    response = await connection.request(
        OffsetFetchRequest(groups=wanted),
        OffsetFetchResponse,
        timeout_ms=client.request_timeout_ms,
        version_max=NAMES_UP_TO_VERSION,
    )
    return {
        group.group_id: {
            (topic.name, row.partition_index): row.committed_offset
            for topic in group.topics
            for row in topic.partitions
            if not row.error_code and row.committed_offset >= 0
        }
        for group in response.groups
        if not group.error_code
    }
