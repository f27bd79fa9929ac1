"""ListGroups, DescribeGroups and DeleteGroups, for groups of all kinds."""

from collections.abc import Sequence
from functools import partial

from logfleet.coordinators.turn import Waiter, answer_to_append_error
from logfleet.groups.offsets import OffsetCommits
from logfleet.groups.records import GroupRecord
from logfleet.groups.table import GroupTable
from logfleet.groups.turn import GroupTurn
from logfleet.wire.errors import ErrorCode
from logfleet.wire.messages import (
    DeleteGroupsResponse,
    DescribeGroupsResponse,
    ListGroupsResponse,
)

NOT_FOUND_VERSION = 6
"""Since this version of DescribeGroups a missing group is an error (KIP-1043), before it is "Dead".
"""
DEAD = "Dead"


class Administration:
    """Handles the requests of administrators about the groups of a table."""

    def __init__(self, table: GroupTable, offsets: OffsetCommits) -> None:
        self._table = table
        self._offsets = offsets

    def list_groups(
        self, states: Sequence[str], types: Sequence[str]
    ) -> list[ListGroupsResponse.ListedGroup]:
        """The groups with one of these states and types, in any case; an empty list means all."""
        wanted_states = {state.strip().lower() for state in states}
        wanted_types = {kind.strip().lower() for kind in types}
        return [
            ListGroupsResponse.ListedGroup(
                group_id=group.group_id,
                protocol_type=group.protocol_type or "",
                group_state=group.state_name,
                group_type=group.type,
            )
            for group in self._table.groups.values()
            if not wanted_types or group.type.lower() in wanted_types
            if not wanted_states or group.state_name.lower() in wanted_states
        ]

    def describe(self, group_id: str, api_version: int) -> DescribeGroupsResponse.DescribedGroup:
        group = self._table.groups.get(group_id)
        if group is not None:
            return group.described()
        answer = DescribeGroupsResponse.DescribedGroup(group_id=group_id, group_state=DEAD)
        if api_version >= NOT_FOUND_VERSION:
            answer.error_code = ErrorCode.GROUP_ID_NOT_FOUND
            answer.error_message = f"Group {group_id} not found."
        return answer

    def delete(self, turn: GroupTurn, group_ids: Sequence[str], waiter: Waiter) -> None:
        """Delete groups that permit it, with their offsets.

        Replies a list of DeletableGroupResult.
        """
        results = []
        records: list[GroupRecord] = []
        for group_id in group_ids:
            group = self._table.groups.get(group_id)
            error = ErrorCode.GROUP_ID_NOT_FOUND if group is None else group.check_delete()
            if group is not None and error is ErrorCode.NONE:
                records += self._offsets.tombstones(group_id)
                records += group.tombstones()
                turn.log("group_deleted", group=group_id)
            results.append(
                DeleteGroupsResponse.DeletableGroupResult(group_id=group_id, error_code=error)
            )
        if records:
            turn.write(records, partial(_answer_delete, results, waiter))
        else:
            turn.reply(waiter, results)


def _answer_delete(
    results: list[DeleteGroupsResponse.DeletableGroupResult],
    waiter: Waiter,
    turn: GroupTurn,
    error: ErrorCode,
) -> None:
    if error is not ErrorCode.NONE:
        for result in results:
            if result.error_code == ErrorCode.NONE:
                result.error_code = answer_to_append_error(error)
    turn.reply(waiter, results)
