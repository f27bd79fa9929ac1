"""Which producer snapshots of a log are kept on disk.

One at each segment's base offset, written at the roll unless there are very many producers: a
truncation finds one at most a segment before its end. Also the newest of those in between, which
keeps the replay after a crash short. Kafka keeps the same when it loads a log
(`ProducerStateManager.removeStraySnapshots`).
"""

from collections.abc import Collection, Iterable

SNAPSHOT_INTERVAL_BYTES = 64 * 1024 * 1024
"""Limit of the replay after a crash (plus what one flush covers): under a second even with small
batches."""


def superfluous_snapshots(
    offsets: Iterable[int], base_offsets: Collection[int], log_end_offset: int
) -> list[int]:
    """Snapshots to remove.

    These are those beyond the log end, and those not at a segment's base, except the newest.
    """
    ordered = sorted(offsets)
    beyond = [offset for offset in ordered if offset > log_end_offset]
    between = [o for o in ordered if o <= log_end_offset and o not in base_offsets]
    newest = max((o for o in ordered if o <= log_end_offset), default=-1)
    return beyond + [offset for offset in between if offset != newest]
