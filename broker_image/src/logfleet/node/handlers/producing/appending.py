"""Checks and appends each batch of a Produce request, for `call` and `repeats` alike.

Source: Kafka's ProduceRequest.validateRecords, ReplicaManager.appendRecords,
AddPartitionsToTxnManager.
"""

from collections.abc import Callable
from typing import Final, NamedTuple

from logfleet.controller.brokers.feature_level import transactions_allowed
from logfleet.log.batch_rules import BatchRefusal, malformed
from logfleet.log.validation import AppendResult, Prepared
from logfleet.metadata.image import ClusterImage
from logfleet.node.handlers.rooms import Rooms
from logfleet.node.partitions.ack_queue import ALL
from logfleet.node.partitions.leader_partition import LeaderPartition
from logfleet.records.batch import CODEC_MASK, HEADER_SIZE, TRANSACTIONAL_BIT, parse_header
from logfleet.records.compression import Codec
from logfleet.telemetry.decisions import Decision, Kind
from logfleet.wire.errors import ErrorCode

TRANSACTION_ABORTABLE_SINCE: Final = 11  # KIP-890
ZSTD_SINCE: Final = 7  # KIP-110
ACKS: Final = frozenset({-1, 0, 1})
# Kafka's own tools may write to internal topics (AdminUtils.ADMIN_CLIENT_ID).
ADMIN_CLIENT_ID: Final = "__admin_client"
_ATTRIBUTES_LOW_BYTE: Final = 22


class Sender:
    """The parts of a produce request that hold for all its batches.

    is_plain: none of that can be a reason to refuse a batch. takes_transactions:
    whether its batches may be transactional; what that demands of them is checked elsewhere then.
    """

    __slots__ = ("acks", "api_version", "client_id", "is_plain")

    takes_transactions = False

    def __init__(self, api_version: int, client_id: str | None, acks: int) -> None:
        self.api_version = api_version
        self.client_id = client_id
        self.acks = acks
        self.is_plain = api_version >= ZSTD_SINCE and acks in ACKS


class TransactionalSender(Sender):
    """The request has a transactional id, and transactions are served."""

    __slots__ = ()

    takes_transactions = True


def append(
    rooms: Rooms,
    partition: LeaderPartition,
    sender: Sender,
    records: bytearray | memoryview,
    prepared: Prepared | BatchRefusal | None = None,
) -> AppendResult:
    """Append one batch to a partition that this broker leads.

    records: as they were sent. prepared: the result of preparing them, if that was done.
    """
    # Every batch of every producer comes through here: one fast test whether any of RULES can be
    # broken.
    if (
        not sender.is_plain
        or partition.is_internal
        or len(records) < HEADER_SIZE
        or records[_ATTRIBUTES_LOW_BYTE] & TRANSACTIONAL_BIT
    ):
        refusal = explain(Attempt(partition, sender, records, rooms.metadata.image))
        if refusal is not None:
            return refusal
    if partition.has_followers and sender.acks == ALL and not partition.is_at_min_isr:
        _record_refusal(rooms, partition)
        return BatchRefusal(ErrorCode.NOT_ENOUGH_REPLICAS)
    disk_space = rooms.disks.disk_space
    if disk_space.full and disk_space.refuses(partition.log):
        return BatchRefusal(ErrorCode.KAFKA_STORAGE_ERROR)
    if isinstance(prepared, BatchRefusal):
        return prepared
    partition.last_writer = sender.client_id
    try:
        return partition.append(records if prepared is None else prepared, rooms.clock.now_ms())
    except OSError as error:
        rooms.disks.storage_failed(partition, error)
        return BatchRefusal(ErrorCode.KAFKA_STORAGE_ERROR)


def _record_refusal(rooms: Rooms, partition: LeaderPartition) -> None:
    """Record it once for each state of the partition: producers retry for as long as it lasts."""
    state = partition.replicas_state.state
    if partition.refused_in == state.partition_epoch:
        return
    partition.refused_in = state.partition_epoch
    cause = f"acks=all is refused: {len(state.isr)} in sync, min.insync.replicas is {state.min_isr}"
    facts = {"isr": [broker_id for broker_id, _ in state.isr], "min_isr": state.min_isr}
    rooms.decisions.record(
        Decision(Kind.REFUSAL, cause, partition.topic, partition.index, facts=facts)
    )


class Attempt(NamedTuple):
    """An attempt to append a batch. records: as they were sent. image: the newest."""

    partition: LeaderPartition
    sender: Sender
    records: bytearray | memoryview
    image: ClusterImage

    @property
    def is_stray(self) -> bool:
        """Whether the batch is transactional, and its request may not have such batches."""
        return not self.sender.takes_transactions and bool(
            self.records[_ATTRIBUTES_LOW_BYTE] & TRANSACTIONAL_BIT
        )

    @property
    def lacks_producer(self) -> bool:
        """Whether the batch is transactional and names no producer, so that nothing ends it."""
        header = parse_header(self.records)
        return header.is_transactional and not header.has_producer_id

    @property
    def codec_bits(self) -> int:
        return self.records[_ATTRIBUTES_LOW_BYTE] & CODEC_MASK


RULES: Final[tuple[tuple[Callable[[Attempt], bool], ErrorCode], ...]] = (
    (lambda attempt: len(attempt.records) < HEADER_SIZE, ErrorCode.INVALID_RECORD),
    (
        lambda attempt: (
            attempt.sender.api_version < ZSTD_SINCE and attempt.codec_bits == Codec.ZSTD
        ),
        ErrorCode.UNSUPPORTED_COMPRESSION_TYPE,
    ),
    (lambda attempt: attempt.sender.acks not in ACKS, ErrorCode.INVALID_REQUIRED_ACKS),
    (
        lambda attempt: (
            attempt.partition.is_internal and attempt.sender.client_id != ADMIN_CLIENT_ID
        ),
        ErrorCode.INVALID_TOPIC_EXCEPTION,
    ),
    (
        lambda attempt: attempt.is_stray and transactions_allowed(attempt.image),
        ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
    ),
    # Below the level no transaction can be open.
    (
        lambda attempt: (
            attempt.is_stray and attempt.sender.api_version >= TRANSACTION_ABORTABLE_SINCE
        ),
        ErrorCode.TRANSACTION_ABORTABLE,
    ),
    (lambda attempt: attempt.is_stray, ErrorCode.INVALID_TXN_STATE),
    (lambda attempt: attempt.lacks_producer, ErrorCode.INVALID_RECORD),
)
"""When to refuse a batch that the log itself might take: tests and their errors, in the order in
which they count. `append` tests whether any can be broken; a new rule goes there as well."""


def explain(attempt: Attempt) -> BatchRefusal | None:
    """The refusal by the first rule that is broken, None if there is none.

    A malformed batch gets that error instead (`ProduceRequest.validateRecords`).
    """
    for is_broken, error in RULES:
        if is_broken(attempt):
            return malformed(attempt.records) or _refused(error)
    return None


def _refused(error: ErrorCode) -> BatchRefusal:
    return BatchRefusal(error, is_before_log=True)
