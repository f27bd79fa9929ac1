"""Find the positions at which the records of many batches begin. PURE.

A record starts with its length, so each record leads to the next one. Numpy walks all batches at
the same time: the first step reads the length of the first record of every batch, the next step
that of the second record, and so on. The length is a varint, nearly always of one or two bytes; a
table with an entry for all 65,536 pairs of bytes gives the distance to the next record.

Two kinds of records are walked one at a time instead: those of a batch with a longer varint (large
records, or corrupt data), and the last records of batches that are much longer than the others.
"""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
from logfleet.records.checksum import Buffer
from logfleet.records.errors import CorruptRecords
from logfleet.records.varint import read_varint

Ints = npt.NDArray[np.int64]

LANES_MIN = 8
"""Batches that a step must cover, as a step costs as much as a loop over this many records."""


def _advances() -> npt.NDArray[np.uint16]:
    """Build the table of distances, indexed by the first two bytes of a record (little endian).

    An entry is the number of bytes to the next record, or 0 if the length takes more than two
    bytes.
    """
    pairs = np.arange(1 << 16)
    first, second = pairs & 0xFF, pairs >> 8
    two = (first & 127 | second << 7) >> 1
    return np.where(first < 128, 1 + (first >> 1), np.where(second < 128, 2 + two, 0)).astype(
        np.uint16
    )


ADVANCES = _advances()


class NotRecords(ValueError):
    """The bytes of a batch do not split into its records. batch: index of the batch."""

    def __init__(self, batch: int) -> None:
        super().__init__(batch)
        self.batch = batch


def record_starts(
    body: Buffer, starts: Sequence[int], ends: Sequence[int], counts: Sequence[int]
) -> Ints:
    """Return the positions of all records in `body`, batch after batch.

    starts, ends: of each batch, positions in `body`. counts: records of each batch.

    A negative length is treated as positive here; the caller reads the lengths and finds it. Raises
    NotRecords for the first batch whose records do not end at the batch's end.
    """
    found = np.empty(sum(counts), np.int64)
    first: Ints = np.cumsum(counts, dtype=np.int64) - np.asarray(counts, np.int64)
    walked = _in_step(body, starts, counts, found, first)
    for batch, (count, end) in enumerate(zip(counts, ends, strict=True)):
        done, at = walked[batch]
        rows = found[first[batch] : first[batch] + count]
        stuck = done and at == rows[done - 1]  # at a length that the table does not hold
        if not stuck and done == count and at == end:
            continue
        if not stuck and done < count and _one_by_one(body, at, end, rows[done:]):
            continue
        if not _one_by_one(body, starts[batch], end, rows):
            raise NotRecords(batch)
    return found


def _in_step(
    body: Buffer, starts: Sequence[int], counts: Sequence[int], found: Ints, first: Ints
) -> list[tuple[int, int]]:
    """Walk all batches at the same time.

    Returns for each (records found, position of the next record).
    """
    order = np.argsort(-np.asarray(counts), kind="stable")
    sizes = np.asarray(counts)[order]
    at = np.asarray(starts, np.int64)[order]
    into = first[order]
    done = np.zeros(len(order), np.int64)
    steps = int(sizes[LANES_MIN - 1]) if len(sizes) >= LANES_MIN else 0
    if steps:
        pairs = np.ndarray((len(body) - 1,), "<u2", body, strides=(1,))
        # for each step, the number of batches that have so many records
        lanes = np.searchsorted(-sizes, -np.arange(steps), side="left").tolist()
        try:
            for step, lane_count in enumerate(lanes):
                here = at[:lane_count]
                found[into[:lane_count] + step] = here
                here += ADVANCES[pairs[here]]
        except IndexError:  # the lengths of a corrupt batch led beyond the end of `body`
            return [(0, start) for start in starts]
        done = np.minimum(sizes, steps)
    result: list[tuple[int, int]] = [(0, 0)] * len(order)
    for lane, batch in enumerate(order.tolist()):
        result[batch] = int(done[lane]), int(at[lane])
    return result


def _one_by_one(body: Buffer, at: int, end: int, found: Ints) -> bool:
    """Fill `found` with the positions of the records that begin at `at`, one record at a time.

    Returns whether the last record ends at `end`.
    """
    positions = []
    try:
        for _ in range(len(found)):
            positions.append(at)
            first = body[at]
            if first < 128:  # both usual cases inline: calling read_varint would double the time
                at += 1 + (first >> 1)
            elif (second := body[at + 1]) < 128:
                at += 2 + ((first & 127 | second << 7) >> 1)
            else:
                size, at = read_varint(body, at)
                at += max(size, 0)
    except (IndexError, CorruptRecords):
        return False
    found[:] = positions
    return at == end
