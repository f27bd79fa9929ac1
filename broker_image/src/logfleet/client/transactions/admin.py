"""Transactional ids at their coordinators: listing, describing, aborting (KIP-664)."""

from collections.abc import Collection
from typing import Final

import msgspec

from logfleet.client.cluster import Client, CoordinatorKind
from logfleet.client.errors import raise_for
from logfleet.client.groups import COORDINATOR_MOVED
from logfleet.client.offsets import TopicPartition
from logfleet.client.transactions.calls import PURPOSE, TransactionCalls
from logfleet.client.transactions.state import NO_IDENTITY
from logfleet.wire.messages import (
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
    ListTransactionsRequest,
    ListTransactionsResponse,
)

ANY_DURATION: Final = -1
FENCE_TIMEOUT_MS: Final = 1_000
"""Timeout of the transactions that the fencing producer never begins; any that brokers accept."""


class TransactionListing(msgspec.Struct, frozen=True):
    """coordinator: the broker. state: by Kafka's name, such as Ongoing."""

    transactional_id: str
    coordinator: int
    producer_id: int
    state: str


class TransactionDescription(msgspec.Struct, frozen=True):
    """started_ms: since 1970, -1 if none is open. partitions: those that still lack the marker."""

    transactional_id: str
    coordinator: int
    state: str
    producer_id: int
    producer_epoch: int
    timeout_ms: int
    started_ms: int
    partitions: tuple[TopicPartition, ...]


class Transactions:
    """Calls about transactions through `client`, which the caller closes."""

    def __init__(self, client: Client) -> None:
        self.client = client

    async def list(
        self,
        *,
        states: Collection[str] = (),
        producer_ids: Collection[int] = (),
        longer_than_ms: int = ANY_DURATION,
        pattern: str | None = None,
    ) -> list[TransactionListing]:
        """Transactional ids of all brokers, sorted; with a filter only those that meet it.

        longer_than_ms: since the transaction began (KIP-994). pattern: for the whole id, in the
        syntax of RE2/J (KIP-1152). Raises KafkaError with INVALID_REGULAR_EXPRESSION, NotSupported
        if a broker lacks a filter.
        """
        request = ListTransactionsRequest(
            state_filters=list(states),
            producer_id_filters=list(producer_ids),
            duration_filter=longer_than_ms,
            transactional_id_pattern=pattern,
        )

        async def call() -> list[TransactionListing]:
            await self.client.fetch_topics([])
            found = []
            for broker_id in self.client.metadata.nodes:
                connection = await self.client.broker(broker_id)
                response = await connection.request(
                    request,
                    ListTransactionsResponse,
                    timeout_ms=self.client.request_timeout_ms,
                )
                raise_for(response.error_code, subject=f"broker {broker_id}")
                found += [
                    TransactionListing(
                        row.transactional_id, broker_id, row.producer_id, row.transaction_state
                    )
                    for row in response.transaction_states
                ]
            return sorted(found, key=lambda row: row.transactional_id)

        return await self.client.retrying(call)

    async def describe(self, transactional_id: str) -> TransactionDescription:
        """One transactional id. Raises KafkaError with TRANSACTIONAL_ID_NOT_FOUND."""

        async def call() -> TransactionDescription:
            kind = CoordinatorKind.TRANSACTION
            connection = await self.client.coordinator(transactional_id, PURPOSE, kind=kind)
            coordinator = await self.client.coordinator_id(transactional_id, kind=kind)
            response = await connection.request(
                DescribeTransactionsRequest(transactional_ids=[transactional_id]),
                DescribeTransactionsResponse,
                timeout_ms=self.client.request_timeout_ms,
            )
            row = response.transaction_states[0]
            if row.error_code in COORDINATOR_MOVED:
                self.client.forget_coordinator(transactional_id, kind=kind)
            raise_for(row.error_code, subject=f"transactional id {transactional_id}")
            return TransactionDescription(
                transactional_id,
                coordinator,
                row.transaction_state,
                row.producer_id,
                row.producer_epoch,
                row.transaction_timeout_ms,
                row.transaction_start_time_ms,
                tuple(
                    TopicPartition(topic.topic, index)
                    for topic in row.topics
                    for index in topic.partitions
                ),
            )

        return await self.client.retrying(call)

    async def abort(self, transactional_id: str) -> None:
        """Abort what is open under the id, and fence its producer.

        Like a new producer does; an id that does not exist would be created. Raises KafkaError.
        """
        calls = TransactionCalls(self.client, transactional_id, FENCE_TIMEOUT_MS)
        await self.client.retrying(lambda: calls.init(NO_IDENTITY))
