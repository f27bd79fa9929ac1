"""What a log answers to a batch that its producer sent before, or out of order."""

from collections.abc import Sequence

from logfleet.log.batch_rules import BatchRefusal
from logfleet.log.names import TopicPartition
from logfleet.log.producers.history import ProducerHistory
from logfleet.log.producers.states import SeenBatch
from logfleet.log.segments.segment import Segment
from logfleet.log.validation import Appended
from logfleet.records.batch import BatchHeader


def check_producer(
    producers: ProducerHistory,
    header: BatchHeader,
    segments: Sequence[Segment],
    partition: TopicPartition,
) -> Appended | BatchRefusal | None:
    """The result of a batch of an idempotent producer that must not be appended, else None.

    A repeated batch gets the offsets of the first one (KIP-98).
    """
    if (seen := producers.check(header, segments)) is None:
        return None
    if isinstance(seen, SeenBatch):
        return Appended(seen.first_offset, seen.last_offset, seen.timestamp, duplicate=True)
    state = producers.states.get(header.producer_id)
    assert state is not None
    return BatchRefusal(
        seen,
        f"Producer {header.producer_id} in {partition}: epoch {header.producer_epoch}, "
        f"sequence {header.base_sequence}; the log has epoch {state.epoch}, "
        f"last sequence {state.last_sequence}.",
    )
