"""A member of a classic consumer group (KIP-62, eager rebalances, range assignor).

There is no background task: joining, heartbeats and fetches all happen inside `poll`, so the group
drops a consumer that is not polled for its session timeout. What `poll` returned is committed by
`commit`, and before every rebalance.
"""

import asyncio
import math
from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import Self

from logfleet.client.assignors import RANGE, assign_ranges
from logfleet.client.cluster import Client, backoff_seconds
from logfleet.client.errors import ClientError, KafkaError
from logfleet.client.fetcher import Fetched, Fetcher
from logfleet.client.groups import COORDINATOR_MOVED, Groups
from logfleet.client.offsets import IsolationLevel, OffsetSpec, TopicPartition, list_offsets
from logfleet.wire.consumer_protocol import (
    PROTOCOL_TYPE,
    read_assignment,
    read_subscription,
    write_assignment,
    write_subscription,
)
from logfleet.wire.errors import ErrorCode
from logfleet.wire.messages import (
    HeartbeatRequest,
    HeartbeatResponse,
    JoinGroupRequest,
    JoinGroupResponse,
    LeaveGroupRequest,
    LeaveGroupResponse,
    SyncGroupRequest,
    SyncGroupResponse,
)

NO_GENERATION = -1
RECOUNT_SECONDS = 60.0
LEAVE_SECONDS = 5.0
# The group has dropped this member: join again, with the member id if it is still valid.
_MEMBERSHIP_LOST = {ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.ILLEGAL_GENERATION}
GROUP_MOVED_ON = _MEMBERSHIP_LOST | {ErrorCode.REBALANCE_IN_PROGRESS}


class GroupConsumer:
    """Use as `async with`; leaving it leaves the group, without a last commit.

    reset: where to begin without a committed offset. session_timeout_ms: after this long without a
    heartbeat the group drops the member. rebalance_timeout_ms: how long the group waits for this
    member to join again, so poll at least that often. isolation: as of `Fetcher`.
    """

    def __init__(
        self,
        client: Client,
        group: str,
        topics: Sequence[str],
        *,
        reset: OffsetSpec = OffsetSpec.LATEST,
        session_timeout_ms: int = 45_000,
        rebalance_timeout_ms: int = 60_000,
        heartbeat_ms: int = 3_000,
        instance_id: str | None = None,
        isolation: IsolationLevel = IsolationLevel.READ_UNCOMMITTED,
    ) -> None:
        self.client, self.group, self.topics = client, group, list(topics)
        self.reset = reset
        self.session_timeout_ms = session_timeout_ms
        self.rebalance_timeout_ms = rebalance_timeout_ms
        self.heartbeat_seconds = heartbeat_ms / 1000
        self.instance_id = instance_id
        self.fetcher = Fetcher(client, reset=reset, isolation=isolation)
        self.groups = Groups(client)
        self.member_id = ""
        self.generation = NO_GENERATION
        # as the group's leader, what this member divided: topic -> number of partitions
        self._divided: dict[str, int] | None = None
        self._recount_at = 0.0
        self._committed: dict[TopicPartition, int] = {}
        self._committing = asyncio.Lock()
        self._heartbeat: asyncio.Future[HeartbeatResponse] | None = None
        self._heartbeat_at = 0.0

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.leave()

    def assignment(self) -> list[TopicPartition]:
        """The partitions that this member reads now."""
        return sorted(self.fetcher.positions())

    async def poll(self, timeout_ms: int = 1_000) -> list[Fetched]:
        """As `Fetcher.poll`, after joining the group if needed.

        Raises KafkaError if the group refuses us.
        """
        loop = asyncio.get_running_loop()
        deadline = loop.time() + timeout_ms / 1000
        while True:
            await self._check_heartbeat()
            await self._check_partitions()
            if self.generation == NO_GENERATION:
                await self._join_until_stable()
            remaining_ms = max(0, (min(deadline, self._heartbeat_at) - loop.time()) * 1000)
            fetched = await self.fetcher.poll(math.ceil(remaining_ms))
            if fetched or loop.time() >= deadline:
                return fetched

    async def commit(self, offsets: Mapping[TopicPartition, int] | None = None) -> None:
        """Commit all that `poll` has returned, or just these offsets of assigned partitions.

        Commits take effect in the order of the calls, also when one is retried. Raises KafkaError;
        one of GROUP_MOVED_ON if the group has dropped this member: `poll` joins again.
        """
        positions = self.fetcher.positions()
        wanted = positions if offsets is None else offsets
        assert wanted.keys() <= positions.keys(), "only a partition's reader commits"
        generation, member_id = self.generation, self.member_id  # as of the positions
        async with self._committing:
            changed = {key: at for key, at in wanted.items() if self._committed.get(key) != at}
            if changed and generation != NO_GENERATION:
                await self.groups.commit(
                    self.group,
                    changed,
                    generation=generation,
                    member_id=member_id,
                    instance_id=self.instance_id,
                )
                self._committed.update(changed)

    async def leave(self) -> None:
        """Leave the group, so that it need not wait for the session timeout.

        A static member stays (KIP-345).

        Gives up after LEAVE_SECONDS if the coordinator does not respond.
        """
        # also while joining, as the group would otherwise wait for this member
        if self.member_id and self.instance_id is None:
            member = LeaveGroupRequest.MemberIdentity(member_id=self.member_id)
            try:
                async with asyncio.timeout(LEAVE_SECONDS):
                    connection = await self.client.coordinator(self.group)
                    await connection.request(
                        LeaveGroupRequest(group_id=self.group, members=[member]),
                        LeaveGroupResponse,
                        timeout_ms=self.client.request_timeout_ms,
                    )
            except (ClientError, TimeoutError):
                pass  # the session timeout removes the member
        self._lose_membership(keep_id=False)

    # --- joining

    async def _join_until_stable(self) -> None:
        """Join; repeat while the group rebalances: it waits for members, no broker has failed.

        Other errors that may pass are retried for the client's `timeout_ms`, which starts again
        after each rebalance.
        """
        while self.generation == NO_GENERATION:
            try:
                await self.client.retrying(self._join)
            except KafkaError as error:
                if error.code not in GROUP_MOVED_ON:
                    raise
                await asyncio.sleep(backoff_seconds(0))

    async def _join(self) -> None:
        """Join, get the partitions, begin at the committed offsets."""
        joined = await self._join_group()
        self._divided = None
        assignments = await self._divide(joined) if joined.leader == joined.member_id else []
        connection = await self.client.coordinator(self.group, "group")
        response = await connection.request(
            SyncGroupRequest(
                group_id=self.group,
                generation_id=joined.generation_id,
                member_id=joined.member_id,
                group_instance_id=self.instance_id,
                protocol_type=PROTOCOL_TYPE,
                protocol_name=joined.protocol_name,
                assignments=assignments,
            ),
            SyncGroupResponse,
            timeout_ms=self.rebalance_timeout_ms + self.client.request_timeout_ms,
        )
        self._check(response.error_code)
        await self._begin(
            [
                TopicPartition(topic, index)
                for topic, indexes in read_assignment(response.assignment).items()
                for index in indexes
            ]
        )
        self.generation = joined.generation_id
        self._heartbeat = None
        self._heartbeat_at = asyncio.get_running_loop().time() + self.heartbeat_seconds

    async def _join_group(self) -> JoinGroupResponse:
        protocol = JoinGroupRequest.JoinGroupRequestProtocol(
            name=RANGE, metadata=write_subscription(self.topics)
        )
        while True:
            connection = await self.client.coordinator(self.group, "group")
            response = await connection.request(
                JoinGroupRequest(
                    group_id=self.group,
                    session_timeout_ms=self.session_timeout_ms,
                    rebalance_timeout_ms=self.rebalance_timeout_ms,
                    member_id=self.member_id,
                    group_instance_id=self.instance_id,
                    protocol_type=PROTOCOL_TYPE,
                    protocols=[protocol],
                ),
                JoinGroupResponse,
                timeout_ms=self.rebalance_timeout_ms + self.client.request_timeout_ms,
            )
            if response.error_code != ErrorCode.MEMBER_ID_REQUIRED:
                self._check(response.error_code)
                self.member_id = response.member_id
                return response
            self.member_id = response.member_id  # KIP-394: join again with the id that was assigned

    async def _divide(
        self, joined: JoinGroupResponse
    ) -> list[SyncGroupRequest.SyncGroupRequestAssignment]:
        """Assign partitions to members, as the leader."""
        members = sorted(
            joined.members, key=lambda row: (row.group_instance_id or "", row.member_id)
        )
        subscriptions = {row.member_id: read_subscription(row.metadata) for row in members}
        topics = {topic for names in subscriptions.values() for topic in names}
        self._divided = await self._count(topics)
        self._recount_at = asyncio.get_running_loop().time() + RECOUNT_SECONDS
        assigned = assign_ranges(subscriptions, self._divided)
        return [
            SyncGroupRequest.SyncGroupRequestAssignment(
                member_id=member, assignment=write_assignment(partitions)
            )
            for member, partitions in assigned.items()
        ]

    async def _count(self, topics: set[str]) -> dict[str, int]:
        """Topic -> number of partitions; 0 for topics that do not exist (yet)."""
        found = await self.client.fetch_topics(None)
        counts = dict.fromkeys(sorted(topics), 0)
        counts |= {topic.name: len(topic.partitions) for topic in found if topic.name in topics}
        return counts

    async def _begin(self, partitions: list[TopicPartition]) -> None:
        committed = await self.groups.committed(self.group, partitions) if partitions else {}
        offsets = {key: committed[key].offset for key in partitions if key in committed}
        self._committed = dict(offsets)
        fresh = {key: self.reset for key in partitions if key not in committed}
        if fresh:
            found = await list_offsets(self.client, fresh, isolation=self.fetcher.isolation)
            offsets |= {key: at.offset for key, at in found.items()}
        self.fetcher.assign(offsets)

    # --- staying

    async def _check_heartbeat(self) -> None:
        """Handle the response to the last heartbeat, and send the next one at `_heartbeat_at`."""
        if self.generation == NO_GENERATION:
            return
        if self._heartbeat is not None and self._heartbeat.done():
            heartbeat, self._heartbeat = self._heartbeat, None
            try:
                await self._handle_heartbeat(heartbeat.result().error_code)
            except ClientError as error:
                if not error.retriable:
                    raise
                self.client.forget_coordinator(self.group)
        now = asyncio.get_running_loop().time()
        if now >= self._heartbeat_at:
            # due even while the last heartbeat has no response: `poll` waits only until this time
            self._heartbeat_at = now + self.heartbeat_seconds
            if self._heartbeat is None:
                await self._send_heartbeat()

    async def _check_partitions(self) -> None:
        """As the leader, start a rebalance if partitions or topics were added."""
        now = asyncio.get_running_loop().time()
        if self.generation == NO_GENERATION or self._divided is None or now < self._recount_at:
            return
        self._recount_at = now + RECOUNT_SECONDS
        if (
            await self.client.retrying(lambda: self._count(set(self._divided or ())))
            != self._divided
        ):
            await self._rejoin()

    async def _rejoin(self) -> None:
        """Commit and give up all partitions, as before any eager rebalance."""
        try:
            await self.commit()
        except KafkaError as error:
            if error.code not in GROUP_MOVED_ON:
                raise
            # the partition's next reader reads again what was not committed
        self._lose_membership(keep_id=True)

    async def _send_heartbeat(self) -> None:
        try:
            connection = await self.client.coordinator(self.group, "group")
            self._heartbeat = connection.submit(
                HeartbeatRequest(
                    group_id=self.group,
                    generation_id=self.generation,
                    member_id=self.member_id,
                    group_instance_id=self.instance_id,
                ),
                HeartbeatResponse,
                timeout_ms=self.client.request_timeout_ms,
            )
        except ClientError as error:
            if not error.retriable:
                raise
            self.client.forget_coordinator(self.group)

    async def _handle_heartbeat(self, code: int) -> None:
        if code == ErrorCode.REBALANCE_IN_PROGRESS:
            await self._rejoin()
        elif code in _MEMBERSHIP_LOST:
            self._lose_membership(keep_id=False)
        else:
            self._check(code)

    def _check(self, code: int) -> None:
        """Raise for an error of the group; as retriable if joining again may succeed."""
        if code in COORDINATOR_MOVED:
            self.client.forget_coordinator(self.group)
        error = KafkaError(code, subject=f"group {self.group}")
        if code in _MEMBERSHIP_LOST:
            self._lose_membership(keep_id=False)
            error.retriable = True
        elif code == ErrorCode.REBALANCE_IN_PROGRESS:
            error.retriable = True
        if code:
            raise error

    def _lose_membership(self, *, keep_id: bool) -> None:
        self.generation = NO_GENERATION
        if not keep_id:
            self.member_id = ""
        self._heartbeat = None
        self.fetcher.assign({})
