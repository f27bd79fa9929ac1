"""Refuses the batch that follows a refused one, even if it could be appended by now.

An idempotent producer has up to five requests in flight. Say the first is refused because this
broker does not lead the partition yet, has not seen a new partition, or too few replicas are in
sync, and that ends before the second is handled. Apache Kafka finds the second out of order, or, if
it has not seen the producer yet, lets it start with the second. librdkafka reacts to the former by
a new producer epoch, for all of its partitions, and may send again under that epoch what is written
already: records stand there twice (its issue 4953; rd_kafka_handle_idempotent_Produce_error). After
a temporary refusal librdkafka and the Java client send the batches again, in order.

A batch is refused for this reason once. If it comes again and the one before it has not, the log
decides: the gap is real.
"""

from collections.abc import Hashable, MutableMapping
from typing import Final

from logfleet.records.batch import HEADER_SIZE, increment_sequence, parse_header
from logfleet.wire.errors import ErrorCode
from logfleet.wire.primitives import Buffer

TEMPORARY: Final = frozenset(
    {
        ErrorCode.CONCURRENT_TRANSACTIONS,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.NOT_ENOUGH_REPLICAS,
        ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.UNKNOWN_TOPIC_ID,
    }
)
PARTITIONS_MAX: Final = 1_000
"""Partitions that are remembered per connection; clients choose their names.

Beyond it, all are dropped.
"""

NextBatch = tuple[int, int, int]
"""Producer id, producer epoch and first sequence of the batch that comes next."""
RefusedBatches = MutableMapping[Hashable, tuple[NextBatch, ErrorCode]]
"""For one connection: partition -> the batch after the last refused one, and its error."""


def record_refused(
    refused: RefusedBatches, partition: Hashable, records: Buffer, error: ErrorCode
) -> None:
    """Record that a batch was refused with `error`.

    Only temporary errors and idempotent producers matter.
    """
    if error not in TEMPORARY or len(records) < HEADER_SIZE:
        return
    header = parse_header(records)
    if header.has_producer_id:
        next_batch = (
            header.producer_id,
            header.producer_epoch,
            increment_sequence(header.last_sequence, 1),
        )
        if len(refused) >= PARTITIONS_MAX:
            refused.clear()
        refused[partition] = next_batch, error


def error_behind(refused: RefusedBatches, partition: Hashable, records: Buffer) -> ErrorCode | None:
    """The error of the batch right before this one, if it was refused on this connection.

    None if a batch was appended since.
    """
    refused_before = refused.get(partition)
    if refused_before is None or len(records) < HEADER_SIZE:
        return None
    header = parse_header(records)
    next_batch, error = refused_before
    own = (header.producer_id, header.producer_epoch, header.base_sequence)
    return error if own == next_batch else None
