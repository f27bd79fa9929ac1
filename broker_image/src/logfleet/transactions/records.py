"""The records of `__transaction_state`: Kafka's keys and values, byte for byte.

`logfleet.coordinators.records` has their layout. Source: Kafka's TransactionLog.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from logfleet.coordinators.records import UnknownRecord, prefix, prefixed, value_version
from logfleet.transactions.state import State, TopicPartition, Transaction
from logfleet.types import ProducerEpoch
from logfleet.wire.codec import decode as decode_message
from logfleet.wire.codec import encode_bytes
from logfleet.wire.errors import MalformedMessage
from logfleet.wire.messages import TransactionLogKey, TransactionLogValue

TRANSACTION_STATE_TOPIC: Final = "__transaction_state"
"""Kafka's Topic.TRANSACTION_STATE_TOPIC_NAME."""

KEY: Final = 0
VALUE_VERSION: Final = 1
"""What brokers write from transaction.version 1 on; version 0 lacks all tagged fields."""


@dataclass(frozen=True, slots=True)
class TransactionRecord:
    """A record. transaction: None if the id has expired."""

    transactional_id: str
    transaction: Transaction | None


def encode(record: TransactionRecord) -> tuple[bytes, bytes | None]:
    """The key and value for the log; a value of None is a tombstone."""
    key = prefixed(
        KEY, encode_bytes(TransactionLogKey(transactional_id=record.transactional_id), 0)
    )
    if record.transaction is None:
        return key, None
    return key, prefixed(VALUE_VERSION, encode_bytes(_message(record.transaction), VALUE_VERSION))


def decode(key: memoryview, value: memoryview | None) -> TransactionRecord:
    """The record of a key and a value in the log.

    Raises UnknownRecord for a kind or value version of a newer broker, MalformedMessage for invalid
    bytes and states.
    """
    if prefix(key) != KEY:
        raise UnknownRecord(f"kind {prefix(key)}")
    transactional_id = decode_message(TransactionLogKey, 0, key, 2)[0].transactional_id
    if value is None:
        return TransactionRecord(transactional_id, None)
    version = value_version(value, newest=VALUE_VERSION)
    message, _ = decode_message(TransactionLogValue, version, value, 2)
    return TransactionRecord(transactional_id, _transaction(message))


def _message(transaction: Transaction) -> TransactionLogValue:
    is_empty = transaction.state is State.EMPTY
    return TransactionLogValue(
        producer_id=transaction.producer_id,
        previous_producer_id=transaction.previous_producer_id,
        next_producer_id=transaction.next_producer_id,
        producer_epoch=transaction.epoch,
        transaction_timeout_ms=transaction.timeout_ms,
        transaction_status=transaction.state,
        transaction_partitions=None if is_empty else _by_topic(transaction.partitions),
        transaction_last_update_timestamp_ms=transaction.last_update_ms,
        transaction_start_timestamp_ms=transaction.start_ms,
        client_transaction_version=transaction.client_version,
    )


def _by_topic(partitions: Iterable[TopicPartition]) -> list[TransactionLogValue.PartitionsSchema]:
    topics: dict[str, list[int]] = {}
    for topic, partition in sorted(partitions):
        topics.setdefault(topic, []).append(partition)
    return [
        TransactionLogValue.PartitionsSchema(topic=topic, partition_ids=indexes)
        for topic, indexes in topics.items()
    ]


def _transaction(message: TransactionLogValue) -> Transaction:
    try:
        state = State(message.transaction_status)
    except ValueError:
        raise MalformedMessage(f"transaction state {message.transaction_status}") from None
    return Transaction(
        producer_id=message.producer_id,
        epoch=ProducerEpoch(message.producer_epoch),
        timeout_ms=message.transaction_timeout_ms,
        state=state,
        last_update_ms=message.transaction_last_update_timestamp_ms,
        partitions=frozenset(
            TopicPartition(topic.topic, index)
            for topic in (state is not State.EMPTY and message.transaction_partitions) or ()
            for index in topic.partition_ids
        ),
        start_ms=message.transaction_start_timestamp_ms,
        previous_producer_id=message.previous_producer_id,
        next_producer_id=message.next_producer_id,
        client_version=message.client_transaction_version,
    )
