"""What follows a batch that was refused for now is refused with it, even if it could be taken by the time its turn comes.

An idempotent producer has up to five requests on their way. Say the first is refused because this broker does not lead the partition yet,
does not know a new one, or too few replicas are in sync, and that is over before the second is looked at. Apache Kafka finds the second
out of order, or, where it does not know the producer yet, lets it begin with the second. librdkafka answers the former by a new producer epoch,
for all of its partitions, and may send again under that what is written already: records stand there twice (its issue 4953;
rd_kafka_handle_idempotent_Produce_error). What is refused for now librdkafka and the Java client send again, in order.

A batch is refused for this reason once. If it comes again while the one before it has not, the log has the word: the gap is real.
"""

from collections.abc import Hashable, MutableMapping
from typing import Final

from logfleet.records.batch import HEADER_SIZE, increment_sequence, parse_header
from logfleet.wire.errors import ErrorCode
from logfleet.wire.primitives import Buffer

FOR_NOW: Final = frozenset(
    {
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.NOT_ENOUGH_REPLICAS,
        ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.UNKNOWN_TOPIC_ID,
    }
)
PARTITIONS_MAX: Final = 1_000
"""Remembered of a connection; their names are the client's. All are forgotten where there are more."""

Follower = tuple[int, int, int]
"""Producer id, producer epoch and first sequence of the batch that comes next."""
RefusedBatches = MutableMapping[Hashable, tuple[Follower, ErrorCode]]
"""Of one connection: by partition what follows the batch that was refused last, and how that was."""


def note_refused(
    refused: RefusedBatches, partition: Hashable, records: Buffer, error: ErrorCode
) -> None:
    """A batch of the partition was refused by `error`; only what is refused for now, of an idempotent producer, matters."""
    if error not in FOR_NOW or len(records) < HEADER_SIZE:
        return
    header = parse_header(records)
    if header.has_producer_id:
        follower = (
            header.producer_id,
            header.producer_epoch,
            increment_sequence(header.last_sequence, 1),
        )
        if len(refused) >= PARTITIONS_MAX:
            refused.clear()
        refused[partition] = follower, error


def error_behind(refused: RefusedBatches, partition: Hashable, records: Buffer) -> ErrorCode | None:
    """How the batch right before this one was refused on this connection, if it was and none was taken since."""
    known = refused.get(partition)
    if known is None or len(records) < HEADER_SIZE:
        return None
    header = parse_header(records)
    follower, error = known
    own = (header.producer_id, header.producer_epoch, header.base_sequence)
    return error if own == follower else None
