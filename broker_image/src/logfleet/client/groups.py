"""Consumer groups: listing, describing, deleting, and their committed offsets."""

from collections.abc import Mapping, Sequence

import msgspec

from logfleet.client.cluster import Client
from logfleet.client.errors import KafkaError, raise_for
from logfleet.client.offsets import TopicPartition
from logfleet.wire.consumer_protocol import PROTOCOL_TYPE, read_assignment
from logfleet.wire.errors import ErrorCode
from logfleet.wire.messages import (
    DeleteGroupsRequest,
    DeleteGroupsResponse,
    DescribeGroupsRequest,
    DescribeGroupsResponse,
    ListGroupsRequest,
    ListGroupsResponse,
    OffsetCommitRequest,
    OffsetCommitResponse,
    OffsetDeleteRequest,
    OffsetDeleteResponse,
    OffsetFetchRequest,
    OffsetFetchResponse,
)

# Later versions of OffsetFetch and OffsetCommit use topic ids, which deleted topics no longer have.
NAMES_UP_TO_VERSION = 9
# The coordinator has moved, does not exist yet, or is loading its log.
COORDINATOR_MOVED = {
    ErrorCode.NOT_COORDINATOR,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
}


class GroupListing(msgspec.Struct, frozen=True):
    """kind: "classic", "consumer" ...; state: "Stable", "Empty" ... in Kafka's spelling."""

    group: str
    state: str
    kind: str
    protocol_type: str


class GroupMember(msgspec.Struct, frozen=True):
    """assignment: partitions by topic."""

    member_id: str
    instance_id: str | None
    client_id: str
    host: str
    assignment: dict[str, list[int]]


class GroupDescription(msgspec.Struct, frozen=True):
    """assignor: the protocol that the members agreed on, "" if there are none."""

    group: str
    state: str
    assignor: str
    members: tuple[GroupMember, ...]


class Committed(msgspec.Struct, frozen=True):
    """A committed offset: the next one to be read."""

    offset: int
    leader_epoch: int
    metadata: str


class Groups:
    """Group calls through `client`, which the caller closes.

    A missing group is an error only where noted.
    """

    def __init__(self, client: Client) -> None:
        self.client = client

    async def list(self) -> list[GroupListing]:
        """All groups of all brokers, sorted."""

        async def call() -> list[GroupListing]:
            await self.client.fetch_topics([])
            found = []
            for broker_id in self.client.metadata.nodes:
                connection = await self.client.broker(broker_id)
                response = await connection.request(
                    ListGroupsRequest(),
                    ListGroupsResponse,
                    timeout_ms=self.client.request_timeout_ms,
                )
                raise_for(response.error_code, subject=f"broker {broker_id}")
                found += [
                    GroupListing(row.group_id, row.group_state, row.group_type, row.protocol_type)
                    for row in response.groups
                ]
            return sorted(found, key=lambda listing: listing.group)

        return await self.client.retrying(call)

    async def describe(self, group: str) -> GroupDescription:
        """State and members of a classic group.

        Raises KafkaError with GROUP_ID_NOT_FOUND if there is none.
        """

        async def call() -> GroupDescription:
            connection = await self.client.coordinator(group)
            response = await connection.request(
                DescribeGroupsRequest(groups=[group]),
                DescribeGroupsResponse,
                timeout_ms=self.client.request_timeout_ms,
            )
            row = response.groups[0]
            self._check(group, row.error_code, row.error_message)
            if row.group_state == "Dead":  # versions before 6: there is no such group
                raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND, subject=f"group {group}")
            consumer = row.protocol_type == PROTOCOL_TYPE
            members = [
                GroupMember(
                    member.member_id,
                    member.group_instance_id,
                    member.client_id,
                    member.client_host,
                    read_assignment(member.member_assignment) if consumer else {},
                )
                for member in row.members
            ]
            return GroupDescription(group, row.group_state, row.protocol_data, tuple(members))

        return await self.client.retrying(call)

    async def delete(self, group: str) -> None:
        """Delete a group without members, with its offsets.

        Raises KafkaError (NON_EMPTY_GROUP, GROUP_ID_NOT_FOUND).
        """

        async def call() -> None:
            connection = await self.client.coordinator(group)
            response = await connection.request(
                DeleteGroupsRequest(groups_names=[group]),
                DeleteGroupsResponse,
                timeout_ms=self.client.request_timeout_ms,
            )
            self._check(group, response.results[0].error_code, response.results[0].error_message)

        await self.client.retrying(call)

    async def committed(
        self,
        group: str,
        partitions: Sequence[TopicPartition] | None = None,
        *,
        require_stable: bool = True,
    ) -> dict[TopicPartition, Committed]:
        """Committed offsets of these partitions (None: of all); those without one are left out.

        require_stable: wait for transactions that may yet commit other offsets (KIP-447), for the
        client's `timeout_ms`; then raises KafkaError with UNSTABLE_OFFSET_COMMIT. False is for
        callers that only show the offsets.
        """
        topics: dict[str, list[int]] = {}
        for key in partitions or ():
            topics.setdefault(key.topic, []).append(key.partition)
        rows = [
            OffsetFetchRequest.OffsetFetchRequestTopics(name=name, partition_indexes=indexes)
            for name, indexes in topics.items()
        ]
        wanted = OffsetFetchRequest.OffsetFetchRequestGroup(
            group_id=group, topics=None if partitions is None else rows
        )

        async def call() -> dict[TopicPartition, Committed]:
            connection = await self.client.coordinator(group)
            response = await connection.request(
                OffsetFetchRequest(groups=[wanted], require_stable=require_stable),
                OffsetFetchResponse,
                timeout_ms=self.client.request_timeout_ms,
                version_max=NAMES_UP_TO_VERSION,
            )
            self._check(group, response.groups[0].error_code)
            found = {}
            for topic in response.groups[0].topics:
                for row in topic.partitions:
                    self._check(group, row.error_code)
                    if row.committed_offset >= 0:
                        found[TopicPartition(topic.name, row.partition_index)] = Committed(
                            row.committed_offset, row.committed_leader_epoch, row.metadata or ""
                        )
            return found

        return await self.client.retrying(call)

    async def delete_offsets(self, group: str, partitions: Sequence[TopicPartition]) -> None:
        """Delete the group's committed offsets of these partitions, if there are any.

        Raises KafkaError for the first that is kept. GROUP_SUBSCRIBED_TO_TOPIC: members read the
        topic. NON_EMPTY_GROUP: its members are not consumers (KIP-496).
        """
        topics: dict[str, OffsetDeleteRequest.OffsetDeleteRequestTopic] = {}
        for key in partitions:
            topic = topics.setdefault(
                key.topic, OffsetDeleteRequest.OffsetDeleteRequestTopic(name=key.topic)
            )
            topic.partitions.append(
                OffsetDeleteRequest.OffsetDeleteRequestPartition(partition_index=key.partition)
            )
        request = OffsetDeleteRequest(group_id=group, topics=list(topics.values()))

        async def call() -> None:
            connection = await self.client.coordinator(group)
            response = await connection.request(
                request, OffsetDeleteResponse, timeout_ms=self.client.request_timeout_ms
            )
            self._check(group, response.error_code)
            for result in response.topics:
                for row in result.partitions:
                    subject = f"group {group}, {result.name}-{row.partition_index}"
                    raise_for(row.error_code, subject=subject)

        await self.client.retrying(call)

    async def commit(
        self,
        group: str,
        offsets: Mapping[TopicPartition, int],
        *,
        generation: int = -1,
        member_id: str = "",
        instance_id: str | None = None,
    ) -> None:
        """Commit; without a generation only for a group without members. Raises KafkaError."""
        topics: dict[str, OffsetCommitRequest.OffsetCommitRequestTopic] = {}
        for key, offset in offsets.items():
            topic = topics.setdefault(
                key.topic, OffsetCommitRequest.OffsetCommitRequestTopic(name=key.topic)
            )
            topic.partitions.append(
                OffsetCommitRequest.OffsetCommitRequestPartition(
                    partition_index=key.partition, committed_offset=offset
                )
            )
        request = OffsetCommitRequest(
            group_id=group,
            generation_id_or_member_epoch=generation,
            member_id=member_id,
            group_instance_id=instance_id,
            topics=list(topics.values()),
        )

        async def call() -> None:
            connection = await self.client.coordinator(group)
            response = await connection.request(
                request,
                OffsetCommitResponse,
                timeout_ms=self.client.request_timeout_ms,
                version_max=NAMES_UP_TO_VERSION,
            )
            for topic in response.topics:
                for row in topic.partitions:
                    self._check(group, row.error_code)

        await self.client.retrying(call)

    def _check(self, group: str, code: int, message: str | None = None) -> None:
        if code in COORDINATOR_MOVED:
            self.client.forget_coordinator(group)
        raise_for(code, message, subject=f"group {group}")
