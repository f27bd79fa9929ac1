"""A plain model of Spark's rule for late rows in a windowed count.

Micro-batch n drops rows whose window ended at or before the watermark of batch n-1, and (in append
mode) emits the windows that ended at or before its own watermark. The watermark of a batch is the
greatest event time of all earlier batches less the delay. Source: Structured Streaming Programming
Guide, "Handling Late Data and Watermarking"; SPARK-42376 (the previous batch's watermark decides
which rows are late, the current one which windows are emitted).
"""

from collections.abc import Iterable
from dataclasses import dataclass

import pandas as pd


@dataclass(frozen=True)
class Appended:
    """The rows that append mode has written, and the numbers of the others.

    counts: window_start, origin, count; sorted. dropped: rows that came too late. still_open: rows
    of windows that no watermark has passed yet.
    """

    counts: pd.DataFrame
    dropped: int
    still_open: int


def appended_counts(
    batches: Iterable[pd.DataFrame], window: pd.Timedelta, delay: pd.Timedelta
) -> Appended:
    """Return the result after all batches and the batch without data that Spark runs at the end.

    batches: frames with event_time and origin, in the order in which Spark read them.
    """
    epoch = pd.Timestamp(0)
    greatest, late_before, current = epoch, epoch, epoch
    open_counts: dict[tuple[pd.Timestamp, str], int] = {}
    done: list[tuple[pd.Timestamp, str, int]] = []
    dropped = 0

    def emit(until: pd.Timestamp) -> None:
        for start, origin in sorted(k for k in open_counts if k[0] + window <= until):
            done.append((start, origin, open_counts.pop((start, origin))))

    for batch in batches:
        late_before, current = current, max(current, greatest - delay)
        starts = batch["event_time"].dt.floor(window)
        kept = batch[starts + window > late_before]
        dropped += len(batch) - len(kept)
        sizes = kept.groupby([kept["event_time"].dt.floor(window), "origin"]).size()
        for key, size in sizes.items():
            open_counts[key] = open_counts.get(key, 0) + int(size)
        emit(current)
        if len(batch):
            greatest = max(greatest, batch["event_time"].max())
    emit(max(current, greatest - delay))
    counts = pd.DataFrame(sorted(done), columns=["window_start", "origin", "count"])
    counts["window_start"] = pd.to_datetime(counts["window_start"])  # also where there is none
    return Appended(counts, dropped, sum(open_counts.values()))
