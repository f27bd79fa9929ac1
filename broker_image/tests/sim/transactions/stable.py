"""What of a simulated log is stable, aborted and visible, by its batches alone, counted in the plainest way."""

from collections.abc import Iterable, Sequence

from logfleet.log.aborted import AbortedEntry
from logfleet.log.producers.states import ProducerStates

from broker_image.tests.sim.replica_log import NO_PRODUCER, Batch, ReplicaLog


def stable_end(log: ReplicaLog, high_watermark: int) -> int:
    """The last stable offset (I31)."""
    opened: dict[int, int] = {}
    end = high_watermark
    for batch in log.read(log.base, log.end_offset):
        if batch.part is None:
            continue
        if batch.part.marker is None:
            opened.setdefault(batch.producer, batch.offset)
        else:
            first = opened.pop(batch.producer, None)
            if first is not None and batch.offset >= high_watermark:
                end = min(end, max(first, log.start_offset))
    for first in opened.values():
        end = min(end, max(first, log.start_offset))
    return end


def visible(batches: Iterable[Batch], start: int, end: int) -> list[str]:
    """What a reader of committed transactions has to get of these offsets, in their order. All there has an end."""
    shown: dict[int, str] = {}
    opened: dict[int, list[Batch]] = {}
    for batch in batches:
        if batch.part is None:
            shown[batch.offset] = batch.value
        elif batch.part.marker is None:
            opened.setdefault(batch.producer, []).append(batch)
        else:
            ended = opened.pop(batch.producer, [])
            if batch.part.marker.is_commit:
                shown.update((each.offset, each.value) for each in ended)
    return [shown[offset] for offset in sorted(shown) if start <= offset < end]


def kept_by_reader(batches: Sequence[Batch], aborted: Iterable[AbortedEntry]) -> list[str]:
    """What a consumer keeps of an answer (Kafka's CompletedFetch)."""
    begun = sorted(aborted, key=lambda entry: entry.first_offset)
    leaves_out: set[int] = set()
    kept = []
    for batch in batches:
        while begun and begun[0].first_offset <= batch.offset:
            leaves_out.add(begun.pop(0).producer_id)
        part = batch.part
        if part is not None and part.marker is not None:
            if not part.marker.is_commit:
                leaves_out.discard(batch.producer)
        elif part is None or batch.producer not in leaves_out:
            kept.append(batch.value)
    return kept


def differs_from_replay(log: ReplicaLog) -> str | None:
    """How its producers and aborted transactions differ from what its batches say (I33)."""
    states, aborted = ProducerStates(), type(log.aborted)()
    for batch in log.read(log.base, log.end_offset):
        if batch.producer == NO_PRODUCER:
            continue
        if batch.part is None:
            states.update(batch.header, batch.offset)
        elif batch.part.marker is None:
            states.update_transactional(batch.header, batch.offset)
        elif (entry := states.end(batch.part.marker, batch.header, batch.offset)) is not None:
            aborted.add(entry)
    if log.aborted != aborted:
        return "aborted transactions are others"
    if set(states.ids()) != set(log.producers.ids()):
        return "producers are others"
    for producer_id in states.ids():
        mine, theirs = log.producers.get(producer_id), states.get(producer_id)
        assert mine is not None
        assert theirs is not None
        for field in ("epoch", "batches", "coordinator_epoch", "transaction_first_offset"):
            if getattr(mine, field) != getattr(theirs, field):
                return f"producer {producer_id}: {field} is {getattr(mine, field)}, not {getattr(theirs, field)}"
    return None
