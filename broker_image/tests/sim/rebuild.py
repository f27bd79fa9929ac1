"""What the indexes and the producer state of a log must be, from its batches alone."""

from logfleet.log.aborted import AbortedEntry
from logfleet.log.partition_log import PartitionLog
from logfleet.log.producers.states import ProducerEntry, ProducerStates
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


def replayed(log: PartitionLog) -> tuple[ProducerStates, dict[int, list[AbortedEntry]]]:
    """The producers by all batches of the log, and by segment the transactions that were aborted."""
    states, aborted = ProducerStates(), dict[int, list[AbortedEntry]]()
    for segment in log.segments:
        found = aborted.setdefault(segment.base_offset, [])
        for header, marker in segment.markers():
            if marker is not None:
                entry = states.end(marker, header, header.base_offset)
                found += [entry] if entry is not None else []
            elif header.has_producer_id and header.is_transactional and not header.is_control:
                states.update_transactional(header, header.base_offset)
            elif header.has_producer_id and not header.is_control:
                states.update(header, header.base_offset)
    return states, aborted


def producer_faults(log: PartitionLog) -> list[str]:
    """How the state of the producers differs from one that is read from all batches.

    Either may know more: a snapshot holds only the last batch of each producer, but also batches, producers and beginnings of
    transactions that are deleted from the log. Compaction takes batches out of the middle, so there only the last one counts.
    """
    expected, _ = replayed(log)
    faults = []
    for producer_id in expected.ids():
        right, found = expected.get(producer_id), log.producers.states.get(producer_id)
        assert right is not None
        if found is not None:
            compacts = log.config.compacts
            count = min(len(found.batches), 1 if compacts else len(right.batches))
            known = (found.epoch, compacts or found.last_timestamp, _last(found, count))
            is_open = _is_same_first(
                log, found.transaction_first_offset, right.transaction_first_offset
            )
            if (
                (count or not right.batches)
                and is_open
                and known == (right.epoch, compacts or right.last_timestamp, _last(right, count))
                and found.coordinator_epoch >= right.coordinator_epoch
            ):
                continue
        faults.append(f"producer {producer_id} is {found}, not {right}")
    return faults


def _last(entry: ProducerEntry, count: int) -> list[tuple[int, int, int]]:
    """Without their times, as a snapshot holds only one, which may be a marker's."""
    last = entry.batches[len(entry.batches) - count :]
    return [(each.first_sequence, each.last_sequence, each.last_offset) for each in last]


def _is_same_first(log: PartitionLog, found: int, right: int) -> bool:
    return found == right or -1 < found < log.segments[0].base_offset


def transaction_faults(log: PartitionLog) -> list[str]:
    """How the transaction indexes differ from a rebuild, which may not know how a transaction began that is partly deleted."""
    _, expected = replayed(log)
    faults = []
    for segment in log.segments:
        found = {each[3]: AbortedEntry(*each[1:]) for each in segment.transaction_index}
        right = {each.last_offset: each for each in expected[segment.base_offset]}
        for last_offset in found.keys() | right.keys():
            entry, wanted = found.get(last_offset), right.get(last_offset)
            if entry is None or (
                entry != wanted
                and min(entry.first_offset, entry.last_stable_offset) >= log.segments[0].base_offset
            ):
                faults.append(f"{entry} in the index of {segment.base_offset} is not {wanted}")
    return faults
