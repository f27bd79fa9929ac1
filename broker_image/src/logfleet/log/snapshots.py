"""Which producer snapshots of a log stay on disk.

One at each segment's base offset, written when it was rolled unless there are very many producers: truncation to any place finds one at most a segment before. And the
newest of those written in between, which keep the replay after a crash short. Kafka keeps the same when it loads a log
(`ProducerStateManager.removeStraySnapshots`).
"""

from collections.abc import Collection, Iterable

SNAPSHOT_INTERVAL_BYTES = 64 * 1024 * 1024
"""At most so much log is replayed after a crash (plus what one flush covers): under a second even in small batches."""


def superfluous_snapshots(
    offsets: Iterable[int], base_offsets: Collection[int], log_end_offset: int
) -> list[int]:
    """Snapshots to remove: those beyond the end of the log, and all but the newest that are at no segment's base."""
    ordered = sorted(offsets)
    beyond = [offset for offset in ordered if offset > log_end_offset]
    between = [o for o in ordered if o <= log_end_offset and o not in base_offsets]
    newest = max((o for o in ordered if o <= log_end_offset), default=-1)
    return beyond + [offset for offset in between if offset != newest]
