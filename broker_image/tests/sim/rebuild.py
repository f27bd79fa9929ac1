"""What the indexes and the producer state of a log must be, from its batches alone."""

from logfleet.log.partition_log import PartitionLog
from logfleet.log.producers.states import ProducerStates
from logfleet.log.segments.segment import Segment


def rebuilt(
    segment: Segment, interval_bytes: int
) -> tuple[list[tuple[int, int]], set[tuple[int, int]], set[tuple[int, int]]]:
    """Offset index entries; all true time index entries; those that must be there."""
    offsets, facts, needed = list[tuple[int, int]](), set[tuple[int, int]](), set[tuple[int, int]]()
    since, best = 0, (-1, 0)
    for position, header in segment.headers():
        last = header.last_offset - segment.base_offset
        if header.max_timestamp > best[0]:
            best = (header.max_timestamp, last)
            facts.add(best)
        if since > interval_bytes:
            offsets.append((last, position))
            needed.add(best)
            since = 0
        since += header.size
    return offsets, facts, needed


def index_faults(segment: Segment, interval_bytes: int) -> list[str]:
    """How the indexes of a segment differ from a rebuild; closing and rolling add the largest time so far, so there may be more."""
    offsets, facts, needed = rebuilt(segment, interval_bytes)
    times = list(segment.time_index)
    faults = []
    if list(segment.offset_index) != offsets:
        faults.append(f"offset index of {segment.base_offset} is not a rebuild's")
    if times != sorted(set(times)):
        faults.append(f"time index of {segment.base_offset} is out of order")
    if not needed <= set(times) <= facts:
        faults.append(f"time index of {segment.base_offset} is not a rebuild's")
    return faults


def producer_faults(log: PartitionLog) -> list[str]:
    """How the state of the producers differs from one that is read from all batches.

    Either may know more: a snapshot holds only the last batch of each producer, but also batches and producers that are deleted from
    the log. Compaction takes batches out of the middle, so there only the last one counts.
    """
    expected = ProducerStates()
    for segment in log.segments:
        for _, header in segment.headers():
            if header.has_producer_id and not header.is_control:
                expected.update(header, header.base_offset)
    faults = []
    for producer_id in expected.ids():
        right, found = expected.get(producer_id), log.producers.states.get(producer_id)
        assert right is not None
        if found is not None:
            count = min(len(found.batches), 1 if log.config.compacts else len(right.batches))
            known = (found.epoch, found.batches[-count:])
            if count and known == (right.epoch, right.batches[-count:]):
                continue
        faults.append(f"producer {producer_id} is {found}, not {right}")
    return faults
