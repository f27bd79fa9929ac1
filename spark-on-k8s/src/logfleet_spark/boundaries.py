"""Where the records of many batches begin.

Each length leads to the next one, in all batches at the same time. PURE.

A step of numpy takes the first record of every batch, the next step the second one, and so on. A
record's length is a varint of one or two bytes nearly always; a table of all 65,536 pairs of bytes
says how far the next record is. A batch in which that fails, as it holds larger records or is
corrupt, is walked one record at a time, and so are the last records of batches much longer than the
others.
"""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
from logfleet.records.checksum import Buffer
from logfleet.records.errors import CorruptRecords
from logfleet.records.varint import read_varint

Ints = npt.NDArray[np.int64]

LANES_MIN = 8
"""Batches that a step must take: a step costs as much as a loop over so many records."""


def _advances() -> npt.NDArray[np.uint16]:
    """By the two bytes at which a record begins, little endian.

    Bytes to the next record, 0 if the length takes more than two bytes.
    """
    pairs = np.arange(1 << 16)
    first, second = pairs & 0xFF, pairs >> 8
    two = (first & 127 | second << 7) >> 1
    return np.where(first < 128, 1 + (first >> 1), np.where(second < 128, 2 + two, 0)).astype(
        np.uint16
    )


ADVANCES = _advances()


class NotRecords(ValueError):
    """A batch's bytes are not those of its records. batch: its place."""

    def __init__(self, batch: int) -> None:
        super().__init__(batch)
        self.batch = batch


def record_starts(
    body: Buffer, starts: Sequence[int], ends: Sequence[int], counts: Sequence[int]
) -> Ints:
    """Positions of all records in `body`, batch after batch.

    starts, ends, counts: of each batch, in bytes and records.

    Negative lengths are taken as positive ones: whoever reads the lengths finds them. Raises
    NotRecords for the first batch whose records do not end where it does.
    """
    found = np.empty(sum(counts), np.int64)
    first: Ints = np.cumsum(counts, dtype=np.int64) - np.asarray(counts, np.int64)
    walked = _in_step(body, starts, counts, found, first)
    for batch, (count, end) in enumerate(zip(counts, ends, strict=True)):
        done, at = walked[batch]
        rows = found[first[batch] : first[batch] + count]
        stuck = done and at == rows[done - 1]  # at a length that the table has not
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
    """Of each batch: how many of its records were found, and where the next one is."""
    order = np.argsort(-np.asarray(counts), kind="stable")
    sizes = np.asarray(counts)[order]
    at = np.asarray(starts, np.int64)[order]
    into = first[order]
    done = np.zeros(len(order), np.int64)
    steps = int(sizes[LANES_MIN - 1]) if len(sizes) >= LANES_MIN else 0
    if steps:
        pairs = np.ndarray((len(body) - 1,), "<u2", body, strides=(1,))
        # how many batches have a record of this number
        lanes = np.searchsorted(-sizes, -np.arange(steps), side="left").tolist()
        try:
            for step, lane_count in enumerate(lanes):
                here = at[:lane_count]
                found[into[:lane_count] + step] = here
                here += ADVANCES[pairs[here]]
        except IndexError:  # a batch that is corrupt led beyond all bytes
            return [(0, start) for start in starts]
        done = np.minimum(sizes, steps)
    result: list[tuple[int, int]] = [(0, 0)] * len(order)
    for lane, batch in enumerate(order.tolist()):
        result[batch] = int(done[lane]), int(at[lane])
    return result


def _one_by_one(body: Buffer, at: int, end: int, found: Ints) -> bool:
    """Fill `found` with the positions of records from `at` on.

    Whether the last one ends at `end`.
    """
    positions = []
    try:
        for _ in range(len(found)):
            positions.append(at)
            first = body[at]
            if first < 128:  # both usual cases in place: a call for each would double the time
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
