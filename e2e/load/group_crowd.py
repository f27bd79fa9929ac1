"""Thousands of group members that are nothing but requests: each keeps its place in its group, a hundred share a connection.

A broker answers the requests of one connection in their order, and the join of a member waits for all others of its group. So the
members of a group have a connection each, and the members of one connection join one after the other.

crowd = Crowd("127.0.0.1", port, groups=1_000, size=10)
await crowd.connect()
await crowd.join()                # every group is stable, of `size` members
assert await crowd.beat() == 0    # how many members were not told that all is well
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from typing import TypeVar

import msgspec
from logfleet.client.connection import Connection
from logfleet.wire import messages as m
from logfleet.wire.errors import ErrorCode

M = TypeVar("M", bound=msgspec.Struct)

MEMBERS_PER_CONNECTION = 100
TOPIC = "numbers"
SESSION_MS = 300_000
PATIENCE_MS = 120_000
HEARTBEAT_S = 0.05
"""How soon a member that waits for others asks again."""
ASSIGNOR = "range"
SUBSCRIPTION = b"\0\0\0\0\0\1\0\7numbers\0\0\0\0"
"""Version 0: the topic numbers, no user data."""
LATER = {
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.NOT_COORDINATOR,
}
"""What a coordinator answers that is not ready."""
REJOIN = {ErrorCode.REBALANCE_IN_PROGRESS, ErrorCode.ILLEGAL_GENERATION}


class Member:
    """lane: which of the crowd's connections is its own."""

    def __init__(self, group: "Group", lane: int) -> None:
        self.group = group
        self.lane = lane
        self.member_id, self.generation = "", -1


class Group:
    """whole: the generation in which all members are, -1 while there is none."""

    def __init__(self, name: str, lanes: Iterable[int]) -> None:
        self.name = name
        self.members = [Member(self, lane) for lane in lanes]
        self.whole = -1


class Crowd:
    """requests: sent so far."""

    def __init__(self, host: str, port: int, *, groups: int, size: int) -> None:
        self._address = (host, port)
        self.groups = [
            Group(f"group-{number}", self._lanes(number, size)) for number in range(groups)
        ]
        self.connections: list[Connection] = []
        self.requests = 0

    @staticmethod
    def _lanes(number: int, size: int) -> range:
        first = number // MEMBERS_PER_CONNECTION * size
        return range(first, first + size)

    @property
    def members(self) -> list[Member]:
        return [member for group in self.groups for member in group.members]

    async def connect(self) -> None:
        """Connections for all members; those of before are closed."""
        self.close()
        count = 1 + max(member.lane for member in self.members)
        self.connections = [
            await Connection.connect(*self._address, f"crowd-{lane}") for lane in range(count)
        ]

    def close(self) -> None:
        for connection in self.connections:
            connection.close()

    # -- what all of them do

    async def join(self) -> None:
        """All members join; returns when each group is stable with all of its members."""
        request = m.FindCoordinatorRequest(coordinator_keys=[self.groups[0].name])
        await self.connections[0].request(request, m.FindCoordinatorResponse)  # makes the topic
        await self._by_lanes(self._join_group)

    async def rebalance(self) -> None:
        """In each group the leader joins again, so that all others have to; returns when all groups are stable."""
        await self._by_lanes(self._join_group)

    async def beat(self, over_s: float = 0.0) -> int:
        """A heartbeat of each member, spread over a time; how many were not told that all is well."""
        answers = await self._ask_all(
            lambda member: self._submit(
                member,
                m.HeartbeatRequest(
                    group_id=member.group.name,
                    generation_id=member.generation,
                    member_id=member.member_id,
                ),
                m.HeartbeatResponse,
            ),
            over_s,
        )
        return sum(answer.error_code != ErrorCode.NONE for answer in answers)

    async def commit(self, offset: int, over_s: float = 0.0) -> int:
        """Each member commits an offset of a partition of its own, spread over a time; how many commits failed."""
        kind = m.OffsetCommitRequest

        def ask(member: Member) -> asyncio.Future[m.OffsetCommitResponse]:
            index = member.group.members.index(member)
            partition = kind.OffsetCommitRequestPartition(
                partition_index=index, committed_offset=offset, committed_metadata=""
            )
            request = m.OffsetCommitRequest(
                group_id=member.group.name,
                generation_id_or_member_epoch=member.generation,
                member_id=member.member_id,
                topics=[kind.OffsetCommitRequestTopic(name=TOPIC, partitions=[partition])],
            )
            return self._submit(member, request, m.OffsetCommitResponse, version_max=9)

        answers = await self._ask_all(ask, over_s)
        return sum(
            row.error_code != ErrorCode.NONE
            for answer in answers
            for topic in answer.topics
            for row in topic.partitions
        )

    async def listed(self) -> dict[str, str]:
        """State by group, once the broker has loaded them all."""
        while True:
            answer = await self.connections[0].request(m.ListGroupsRequest(), m.ListGroupsResponse)
            if answer.error_code == ErrorCode.NONE:
                return {row.group_id: row.group_state for row in answer.groups}
            assert ErrorCode(answer.error_code) in LATER, answer
            await asyncio.sleep(HEARTBEAT_S)

    # -- one group

    async def _by_lanes(self, work: Callable[[Group], Awaitable[None]]) -> None:
        """Groups on the same connections one after the other, the others at the same time."""
        lanes: dict[int, list[Group]] = {}
        for group in self.groups:
            lanes.setdefault(group.members[0].lane, []).append(group)

        async def one_by_one(groups: list[Group]) -> None:
            for group in groups:
                await work(group)

        await asyncio.gather(*map(one_by_one, lanes.values()))

    async def _join_group(self, group: Group) -> None:
        group.whole = -1
        await asyncio.gather(*(self._take_part(member) for member in group.members))

    async def _take_part(self, member: Member) -> None:
        """Join until the group is whole."""
        while True:
            joined = await self._join(member)
            if len(joined.members) == len(member.group.members):
                member.group.whole = joined.generation_id
            if await self._sync(member, joined) and await self._is_whole(member):
                return

    async def _join(self, member: Member) -> m.JoinGroupResponse:
        protocol = m.JoinGroupRequest.JoinGroupRequestProtocol(name=ASSIGNOR, metadata=SUBSCRIPTION)
        while True:
            request = m.JoinGroupRequest(
                group_id=member.group.name,
                session_timeout_ms=SESSION_MS,
                rebalance_timeout_ms=PATIENCE_MS,
                member_id=member.member_id,
                protocol_type="consumer",
                protocols=[protocol],
            )
            answer = await self._submit(member, request, m.JoinGroupResponse)
            error = ErrorCode(answer.error_code)
            if error is ErrorCode.NONE or error is ErrorCode.MEMBER_ID_REQUIRED:
                member.member_id, member.generation = answer.member_id, answer.generation_id
            elif error in LATER:
                await asyncio.sleep(HEARTBEAT_S)
            elif error not in REJOIN:
                raise AssertionError(f"{member.group.name}: {error.name}")
            if error is ErrorCode.NONE:
                return answer

    async def _sync(self, member: Member, joined: m.JoinGroupResponse) -> bool:
        """Whether the member has its assignment; else it has to join again."""
        kind = m.SyncGroupRequest.SyncGroupRequestAssignment
        request = m.SyncGroupRequest(
            group_id=member.group.name,
            generation_id=joined.generation_id,
            member_id=member.member_id,
            protocol_type="consumer",
            protocol_name=ASSIGNOR,
            assignments=[
                kind(member_id=each.member_id, assignment=b"a") for each in joined.members
            ],
        )
        error = ErrorCode((await self._submit(member, request, m.SyncGroupResponse)).error_code)
        assert error is ErrorCode.NONE or error in REJOIN, f"{member.group.name}: {error.name}"
        return error is ErrorCode.NONE

    async def _is_whole(self, member: Member) -> bool:
        """Once all have come: whether the member is in that generation. As any member it learns by heartbeats that it is not."""
        while member.group.whole != member.generation:
            request = m.HeartbeatRequest(
                group_id=member.group.name,
                generation_id=member.generation,
                member_id=member.member_id,
            )
            answer = await self._submit(member, request, m.HeartbeatResponse)
            if answer.error_code != ErrorCode.NONE:
                return False
            await asyncio.sleep(HEARTBEAT_S)
        return True

    # -- sending

    def _submit(
        self,
        member: Member,
        request: msgspec.Struct,
        answer: type[M],
        version_max: int | None = None,
    ) -> asyncio.Future[M]:
        self.requests += 1
        connection = self.connections[member.lane]
        return connection.submit(request, answer, timeout_ms=PATIENCE_MS, version_max=version_max)

    async def _ask_all(self, ask: Callable[[Member], asyncio.Future[M]], over_s: float) -> list[M]:
        loop = asyncio.get_running_loop()
        members, began_s = self.members, loop.time()
        asked = []
        for number, member in enumerate(members):
            due_s = began_s + over_s * number / len(members)
            if due_s > loop.time():
                await asyncio.sleep(due_s - loop.time())
            asked.append(ask(member))
        return await asyncio.gather(*asked)
