"""Hanging transactions: open in a partition, while no coordinator will end them (KIP-664)."""

from collections.abc import Collection, Mapping, Sequence

import msgspec

from logfleet.client.cluster import Client
from logfleet.client.errors import KafkaError, raise_for
from logfleet.client.offsets import TopicPartition
from logfleet.client.transactions.admin import TransactionDescription, Transactions
from logfleet.wire.errors import ErrorCode
from logfleet.wire.messages import (
    DescribeProducersRequest,
    DescribeProducersResponse,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)


class OpenTransaction(msgspec.Struct, frozen=True):
    """What the leader of a partition has open.

    start_offset: of its first record. last_ms: when its producer wrote last, since 1970.
    coordinator_epoch: of the producer's last marker, -1 if there was none.
    """

    partition: TopicPartition
    producer_id: int
    producer_epoch: int
    coordinator_epoch: int
    start_offset: int
    last_ms: int


async def open_transactions(
    client: Client, partitions: Collection[TopicPartition]
) -> list[OpenTransaction]:
    """The transactions that are open in these partitions, sorted by partition and offset.

    Raises KafkaError for the first partition that fails.
    """
    found: dict[TopicPartition, list[OpenTransaction]] = {}

    async def call() -> None:
        by_leader: dict[int, list[TopicPartition]] = {}
        for key in partitions:
            if key not in found:
                leader = await client.leader_of(key.topic, key.partition)
                by_leader.setdefault(leader, []).append(key)
        for leader, keys in by_leader.items():
            found.update(await _open_at(client, leader, keys))

    await client.retrying(call, topics={key.topic for key in partitions})
    rows = [row for rows in found.values() for row in rows]
    return sorted(rows, key=lambda row: (row.partition, row.start_offset))


async def _open_at(
    client: Client, leader: int, partitions: Sequence[TopicPartition]
) -> dict[TopicPartition, list[OpenTransaction]]:
    topics: dict[str, DescribeProducersRequest.TopicRequest] = {}
    for key in partitions:
        topic = topics.setdefault(key.topic, DescribeProducersRequest.TopicRequest(name=key.topic))
        topic.partition_indexes.append(key.partition)
    connection = await client.broker(leader)
    response = await connection.request(
        DescribeProducersRequest(topics=list(topics.values())),
        DescribeProducersResponse,
        timeout_ms=client.request_timeout_ms,
    )
    found: dict[TopicPartition, list[OpenTransaction]] = {}
    for result in response.topics:
        for row in result.partitions:
            key = TopicPartition(result.name, row.partition_index)
            raise_for(row.error_code, row.error_message, subject=str(key))
            found[key] = [
                OpenTransaction(
                    key,
                    each.producer_id,
                    each.producer_epoch,
                    each.coordinator_epoch,
                    each.current_txn_start_offset,
                    each.last_timestamp,
                )
                for each in row.active_producers
                if each.current_txn_start_offset >= 0
            ]
    return found


async def owners(
    client: Client, transactions: Collection[OpenTransaction]
) -> Mapping[OpenTransaction, str]:
    """The transactional id whose coordinator will end it, of each that has one.

    The others hang: a coordinator knows nothing of them (Kafka:
    `TransactionsCommand.FindHangingTransactionsCommand`).
    """
    producer_ids = {each.producer_id for each in transactions}
    ids: dict[int, list[TransactionDescription]] = {}
    coordinators = Transactions(client)
    listed = await coordinators.list(producer_ids=producer_ids) if producer_ids else ()
    for listing in listed:
        try:
            description = await coordinators.describe(listing.transactional_id)
        except KafkaError as error:
            if error.code != ErrorCode.TRANSACTIONAL_ID_NOT_FOUND:
                raise
            continue  # it has expired meanwhile
        ids.setdefault(description.producer_id, []).append(description)
    return {
        each: owner.transactional_id
        for each in transactions
        for owner in ids.get(each.producer_id, ())
        if each.partition in owner.partitions
    }


async def write_abort(client: Client, transaction: OpenTransaction) -> None:
    """Write the marker that aborts it in its partition, although no coordinator asks for it.

    Only for hanging transactions: a coordinator that commits it elsewhere would tear it. Raises
    KafkaError: INVALID_PRODUCER_EPOCH, TRANSACTION_COORDINATOR_FENCED if its producer went on.
    """
    key = transaction.partition
    marker = WriteTxnMarkersRequest.WritableTxnMarker(
        producer_id=transaction.producer_id,
        producer_epoch=transaction.producer_epoch,
        transaction_result=False,
        topics=[
            WriteTxnMarkersRequest.WritableTxnMarkerTopic(
                name=key.topic, partition_indexes=[key.partition]
            )
        ],
        coordinator_epoch=max(transaction.coordinator_epoch, 0),
    )

    async def call() -> None:
        leader = await client.leader_of(key.topic, key.partition)
        connection = await client.broker(leader)
        response = await connection.request(
            WriteTxnMarkersRequest(markers=[marker]),
            WriteTxnMarkersResponse,
            timeout_ms=client.request_timeout_ms,
        )
        raise_for(
            response.markers[0].topics[0].partitions[0].error_code,
            subject=f"{key}, transaction from offset {transaction.start_offset}",
        )

    await client.retrying(call, topics=[key.topic])


async def find_hanging(
    client: Client, partitions: Collection[TopicPartition], *, idle_since_ms: int
) -> list[OpenTransaction]:
    """The transactions that hang, and whose producers have written nothing since then.

    Raises ClientError.
    """
    opened = await open_transactions(client, partitions)
    idle = [each for each in opened if each.last_ms <= idle_since_ms]
    owned = await owners(client, idle)
    hanging = [each for each in idle if each not in owned]
    # those that have ended meanwhile had no owner any more when the coordinators were asked
    still = await open_transactions(client, {each.partition for each in hanging})
    begun = {(each.partition, each.producer_id, each.start_offset) for each in still}
    return [
        each for each in hanging if (each.partition, each.producer_id, each.start_offset) in begun
    ]
