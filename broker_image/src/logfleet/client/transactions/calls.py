"""The requests of a transactional producer (KIP-98, KIP-447, KIP-890). Each call is one attempt."""

from collections.abc import Collection, Mapping
from typing import Final, NamedTuple, TypeVar

import msgspec

from logfleet.client.cluster import Client, CoordinatorKind
from logfleet.client.connection import Connection
from logfleet.client.errors import ClientError, KafkaError, raise_for
from logfleet.client.groups import COORDINATOR_MOVED
from logfleet.client.offsets import TopicPartition
from logfleet.client.transactions.state import Identity
from logfleet.wire.errors import ErrorCode
from logfleet.wire.messages import (
    AddOffsetsToTxnRequest,
    AddOffsetsToTxnResponse,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    EndTxnRequest,
    EndTxnResponse,
    InitProducerIdRequest,
    InitProducerIdResponse,
    TxnOffsetCommitRequest,
    TxnOffsetCommitResponse,
)

PURPOSE: Final = "transaction"
INIT_VERSION_MAX: Final = 5  # later ones are for two-phase commit (KIP-939)
ADD_PARTITIONS_VERSION_MAX: Final = 3  # later ones are for brokers
END_VERSION_MAX_V1: Final = 4
OFFSETS_VERSION_MAX_V1: Final = 4
OFFSETS_VERSION_MAX: Final = 5  # later ones name topics by their id alone

A = TypeVar("A", bound=msgspec.Struct)


class Member(NamedTuple):
    """As whom offsets are committed. The default is nobody: only for groups without members."""

    member_id: str = ""
    generation: int = -1
    instance_id: str | None = None


class TransactionCalls:
    """Calls about one transactional id. Each raises ClientError."""

    def __init__(self, client: Client, transactional_id: str, timeout_ms: int) -> None:
        self._client = client
        self._id = transactional_id
        self._timeout_ms = timeout_ms
        self._subject = f"transactional id {transactional_id}"

    async def coordinator(self) -> Connection:
        """The connection to the coordinator of the id."""
        return await self._client.coordinator(self._id, PURPOSE, kind=CoordinatorKind.TRANSACTION)

    async def init(self, identity: Identity) -> Identity:
        """A new identity: the next epoch of this one (KIP-360), or, without one, of the id's."""
        producer_id, epoch = identity
        request = InitProducerIdRequest(
            transactional_id=self._id,
            transaction_timeout_ms=self._timeout_ms,
            producer_id=producer_id,
            producer_epoch=epoch,
        )
        connection = await self.coordinator()
        response = await self._ask(connection, request, InitProducerIdResponse, INIT_VERSION_MAX)
        self._check(response.error_code)
        return response.producer_id, response.producer_epoch

    async def add_partitions(
        self, identity: Identity, partitions: Collection[TopicPartition]
    ) -> None:
        """Make them part of the transaction, which begins with the first."""
        topics: dict[str, AddPartitionsToTxnRequest.AddPartitionsToTxnTopic] = {}
        for key in sorted(partitions):
            topic = topics.setdefault(
                key.topic, AddPartitionsToTxnRequest.AddPartitionsToTxnTopic(name=key.topic)
            )
            topic.partitions.append(key.partition)
        request = AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=self._id,
            v3_and_below_producer_id=identity[0],
            v3_and_below_producer_epoch=identity[1],
            v3_and_below_topics=list(topics.values()),
        )
        connection = await self.coordinator()
        response = await self._ask(
            connection, request, AddPartitionsToTxnResponse, ADD_PARTITIONS_VERSION_MAX
        )
        failed = [
            KafkaError(row.partition_error_code, subject=f"{topic.name}-{row.partition_index}")
            for topic in response.results_by_topic_v3_and_below
            for row in topic.results_by_partition
            if row.partition_error_code
        ]
        # if one partition is refused, so are all others, without an error of their own
        failed.sort(key=lambda error: error.code == ErrorCode.OPERATION_NOT_ATTEMPTED)
        if failed:
            if failed[0].code in COORDINATOR_MOVED:
                self._forget()
            raise failed[0]

    async def add_group(self, identity: Identity, group: str) -> None:
        """Make the group's offsets part of the transaction."""
        request = AddOffsetsToTxnRequest(
            transactional_id=self._id,
            producer_id=identity[0],
            producer_epoch=identity[1],
            group_id=group,
        )
        connection = await self.coordinator()
        response = await self._ask(connection, request, AddOffsetsToTxnResponse)
        self._check(response.error_code)

    async def stage_offsets(
        self,
        identity: Identity,
        group: str,
        offsets: Mapping[TopicPartition, int],
        member: Member,
        *,
        metadata: str,
        v2: bool,
    ) -> None:
        """Let the group's coordinator commit the offsets when the transaction is committed.

        metadata: kept with each offset. v2: this makes them part of the transaction, too.
        """
        topics: dict[str, TxnOffsetCommitRequest.TxnOffsetCommitRequestTopic] = {}
        for key, offset in offsets.items():
            topic = topics.setdefault(
                key.topic, TxnOffsetCommitRequest.TxnOffsetCommitRequestTopic(name=key.topic)
            )
            row = TxnOffsetCommitRequest.TxnOffsetCommitRequestPartition(
                partition_index=key.partition,
                committed_offset=offset,
                committed_metadata=metadata,
            )
            topic.partitions.append(row)
        request = TxnOffsetCommitRequest(
            transactional_id=self._id,
            group_id=group,
            producer_id=identity[0],
            producer_epoch=identity[1],
            generation_id_or_member_epoch=member.generation,
            member_id=member.member_id,
            group_instance_id=member.instance_id,
            topics=list(topics.values()),
        )
        try:
            connection = await self._client.coordinator(group)
            response = await connection.request(
                request,
                TxnOffsetCommitResponse,
                timeout_ms=self._client.request_timeout_ms,
                version_max=OFFSETS_VERSION_MAX if v2 else OFFSETS_VERSION_MAX_V1,
            )
            for found in response.topics:
                for answer in found.partitions:
                    subject = f"group {group}, {found.name}-{answer.partition_index}"
                    raise_for(answer.error_code, subject=subject)
        except ClientError as error:
            if not isinstance(error, KafkaError) or error.code in COORDINATOR_MOVED:
                self._client.forget_coordinator(group)
            raise

    async def end(
        self, connection: Connection, identity: Identity, *, commit: bool, v2: bool
    ) -> Identity | None:
        """Commit or abort. Returns the next transaction's identity; None: the same (without v2)."""
        request = EndTxnRequest(
            transactional_id=self._id,
            producer_id=identity[0],
            producer_epoch=identity[1],
            committed=commit,
        )
        version_max = None if v2 else END_VERSION_MAX_V1
        response = await self._ask(connection, request, EndTxnResponse, version_max)
        self._check(response.error_code)
        if not v2 or response.producer_id < 0:
            return None
        return response.producer_id, response.producer_epoch

    async def _ask(
        self,
        connection: Connection,
        request: msgspec.Struct,
        response: type[A],
        version_max: int | None = None,
    ) -> A:
        try:
            return await connection.request(
                request,
                response,
                timeout_ms=self._client.request_timeout_ms,
                version_max=version_max,
            )
        except ClientError:
            self._forget()
            raise

    def _check(self, code: int) -> None:
        if code in COORDINATOR_MOVED:
            self._forget()
        raise_for(code, subject=self._subject)

    def _forget(self) -> None:
        self._client.forget_coordinator(self._id, kind=CoordinatorKind.TRANSACTION)
