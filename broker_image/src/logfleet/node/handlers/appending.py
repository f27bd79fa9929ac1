"""Checks and appends each batch of a Produce request, for `produce` and `produce_repeats` alike.

Source: Kafka's ProduceRequest.validateRecords, ReplicaManager.appendRecords,
AddPartitionsToTxnManager.
"""

from typing import Final

from logfleet.log.validation import AppendResult, BatchRefusal, NeedsThread, Prepared, malformed
from logfleet.node.handlers.host import PartitionHost
from logfleet.node.partitions.ack_queue import ALL
from logfleet.node.partitions.leader_partition import LeaderPartition
from logfleet.records.batch import CODEC_MASK, HEADER_SIZE, TRANSACTIONAL_BIT
from logfleet.records.compression import Codec
from logfleet.telemetry.decisions import Kind
from logfleet.wire.errors import ErrorCode

TRANSACTION_ABORTABLE_SINCE: Final = 11  # KIP-890
ZSTD_SINCE: Final = 7  # KIP-110
ACKS: Final = frozenset({-1, 0, 1})
# Kafka's own tools may write to internal topics (AdminUtils.ADMIN_CLIENT_ID).
ADMIN_CLIENT_ID: Final = "__admin_client"
_ATTRIBUTES_LOW_BYTE: Final = 22


class Sender:
    """The parts of a produce request that hold for all its batches.

    is_plain: none of that can be a reason to refuse a batch.
    """

    __slots__ = ("acks", "api_version", "client_id", "is_plain")

    def __init__(self, api_version: int, client_id: str | None, acks: int) -> None:
        self.api_version = api_version
        self.client_id = client_id
        self.acks = acks
        self.is_plain = api_version >= ZSTD_SINCE and acks in ACKS


def append(
    broker: PartitionHost,
    partition: LeaderPartition | None,
    sender: Sender,
    records: bytearray | memoryview,
    prepared: Prepared | BatchRefusal | None = None,
) -> AppendResult | NeedsThread | BatchRefusal | ErrorCode | None:
    """Append one partition's batch; return where it lies, or why it is not appended.

    NeedsThread: prepare it in a thread first. None: this broker does not lead the partition.
    records: as they were sent. prepared: the result of preparing them, if that was done.
    """
    if partition is None or not partition.is_current:
        return None
    # Every batch of every producer comes through here: first a fast test whether anything can be
    # wrong, then what it is.
    if (
        not sender.is_plain
        or partition.is_internal
        or len(records) < HEADER_SIZE
        or records[_ATTRIBUTES_LOW_BYTE] & TRANSACTIONAL_BIT
    ):
        refusal = _refusal(partition, sender, records)
        if refusal is not None:
            return refusal
    if partition.has_followers and sender.acks == ALL and not partition.is_at_min_isr:
        _record_refusal(broker, partition)
        return ErrorCode.NOT_ENOUGH_REPLICAS
    disk_space = broker.disk_space
    if disk_space.full and disk_space.refuses(partition.log):
        return ErrorCode.KAFKA_STORAGE_ERROR
    if isinstance(prepared, BatchRefusal):
        return prepared
    partition.last_writer = sender.client_id
    try:
        return partition.append(records if prepared is None else prepared, broker.now_ms())
    except OSError as error:
        broker.storage_failed(partition, error)
        return ErrorCode.KAFKA_STORAGE_ERROR


def _record_refusal(broker: PartitionHost, partition: LeaderPartition) -> None:
    """Record it once for each state of the partition: producers retry for as long as it lasts."""
    state = partition.replicas_state.state
    if partition.refused_in == state.partition_epoch:
        return
    partition.refused_in = state.partition_epoch
    broker.decisions.record(
        Kind.REFUSAL,
        f"acks=all is refused: {len(state.isr)} in sync, min.insync.replicas is {state.min_isr}",
        topic=partition.topic,
        partition=partition.index,
        isr=[broker_id for broker_id, _ in state.isr],
        min_isr=state.min_isr,
    )


def _refusal(
    partition: LeaderPartition, sender: Sender, records: bytearray | memoryview
) -> ErrorCode | BatchRefusal | None:
    """Why to refuse a batch that the log itself might take.

    A malformed batch gets that error first.
    """
    if len(records) < HEADER_SIZE:
        return malformed(records) or ErrorCode.INVALID_RECORD
    attributes = records[_ATTRIBUTES_LOW_BYTE]
    if sender.api_version < ZSTD_SINCE and attributes & CODEC_MASK == Codec.ZSTD:
        return malformed(records) or ErrorCode.UNSUPPORTED_COMPRESSION_TYPE
    if sender.acks not in ACKS:
        return malformed(records) or ErrorCode.INVALID_REQUIRED_ACKS
    if partition.is_internal and sender.client_id != ADMIN_CLIENT_ID:
        return malformed(records) or ErrorCode.INVALID_TOPIC_EXCEPTION
    if attributes & TRANSACTIONAL_BIT:
        # No transaction can be open here, as none are served.
        if sender.api_version >= TRANSACTION_ABORTABLE_SINCE:
            return ErrorCode.TRANSACTION_ABORTABLE
        return ErrorCode.INVALID_TXN_STATE
    return None
