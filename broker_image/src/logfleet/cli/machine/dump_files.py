"""The rows of files beside a segment: indexes, producer snapshots, checkpoints, properties.

Indexes are checked against the segment.
"""

import contextlib
import mmap
from collections.abc import Iterable, Iterator
from itertools import repeat, tee
from pathlib import Path
from typing import Any, Final

from logfleet.log.aborted import ABORTED_ENTRY
from logfleet.log.checkpoints.files import parse_epochs, parse_offsets, parse_properties
from logfleet.log.names import (
    FIRST_DIRTY_OFFSETS,
    HIGH_WATERMARKS,
    INDEX,
    LEADER_EPOCHS,
    LOG,
    LOG_STARTS,
    META_PROPERTIES,
    PARTITION_METADATA,
    RECOVERY_POINTS,
    SNAPSHOT,
    TIME_INDEX,
    TRANSACTION_INDEX,
    parse_offset_file,
)
from logfleet.log.producers.states import ProducerStates
from logfleet.log.segments.index_check import (
    Batches,
    aborted_entries_match,
    offset_entries_match,
    time_entries_match,
)
from logfleet.log.segments.index_entries import OFFSET_ENTRY, TIME_ENTRY, unpack_entries
from logfleet.records.batch import iterate_headers

Rows = Iterator[dict[str, Any]]
CHECKPOINTS: Final = {RECOVERY_POINTS, HIGH_WATERMARKS, LOG_STARTS, FIRST_DIRTY_OFFSETS}
PROPERTIES: Final = {PARTITION_METADATA, META_PROPERTIES}
KINDS: Final = {LOG, INDEX, TIME_INDEX, TRANSACTION_INDEX, SNAPSHOT}
TEXTS: Final = {LEADER_EPOCHS} | CHECKPOINTS | PROPERTIES


def is_known(name: str) -> bool:
    """Whether a file of this name can be dumped."""
    parsed = parse_offset_file(name)
    return name in TEXTS or (parsed is not None and parsed[1] in KINDS)


@contextlib.contextmanager
def mapped(path: Path) -> Iterator[memoryview]:
    """Map a non-empty file without reading it whole."""
    with (
        path.open("rb") as file,
        mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data,
        memoryview(data) as view,
    ):
        yield view


def offset_index_rows(path: Path, base_offset: int) -> Rows:
    """Offset and position of each entry; valid: as in the segment, left out if there is none."""
    entries = unpack_entries(OFFSET_ENTRY, _entries(path, OFFSET_ENTRY.size))
    shown, checked = tee((base_offset + relative, position) for relative, position in entries)
    with _batches(path) as batches:
        holds = repeat(None) if batches is None else offset_entries_match(checked, batches)
        for (offset, position), valid in zip(shown, holds, strict=False):
            yield _with_validity({"offset": offset, "position": position}, valid=valid)


def time_index_rows(path: Path, base_offset: int) -> Rows:
    """Timestamp and offset of each entry; valid as for `offset_index_rows`."""
    entries = unpack_entries(TIME_ENTRY, _entries(path, TIME_ENTRY.size))
    shown, checked = tee((time, base_offset + relative) for time, relative in entries)
    with _batches(path) as batches:
        holds = repeat(None) if batches is None else time_entries_match(checked, batches)
        for (timestamp, offset), valid in zip(shown, holds, strict=False):
            yield _with_validity({"timestamp": timestamp, "offset": offset}, valid=valid)


def transaction_index_rows(path: Path) -> Rows:
    """The aborted transactions; valid: the last offset is that of a marker in the segment."""
    data = path.read_bytes()
    whole = data[: len(data) - len(data) % ABORTED_ENTRY.size]
    entries = [fields[1:] for fields in ABORTED_ENTRY.iter_unpack(whole)]
    with _batches(path) as batches:
        markers = ((producer_id, last) for producer_id, _, last, _ in entries)
        holds = repeat(None) if batches is None else aborted_entries_match(markers, batches)
        for (producer_id, first, last, stable), valid in zip(entries, holds, strict=False):
            row = {
                "producerId": producer_id,
                "firstOffset": first,
                "offset": last,
                "lastStableOffset": stable,
            }
            yield _with_validity(row, valid=valid)


def _with_validity(row: dict[str, Any], *, valid: bool | None) -> dict[str, Any]:
    return row if valid is None else {**row, "valid": valid}


@contextlib.contextmanager
def _batches(index: Path) -> Iterator[Batches | None]:
    """The batch headers of the index's segment; None if it does not exist."""
    log = index.with_suffix(LOG)
    empty: Iterable[Any] = ()
    if not log.exists():
        yield None
    elif not log.stat().st_size:
        yield empty
    else:
        with mapped(log) as view:
            headers = iterate_headers(view)
            try:
                yield headers
            finally:
                headers.close()  # type: ignore[attr-defined]  # a generator, which holds the view


def _entries(path: Path, size: int) -> bytes:
    """The index without the zeros that Kafka preallocates at the end of an index in use."""
    data = path.read_bytes()
    used = len(data.rstrip(b"\0"))
    return data[: -(-used // size) * size]


def snapshot_rows(path: Path) -> Rows:
    """A row for each producer, with its last batch. Raises CorruptSnapshot."""
    states = ProducerStates.from_snapshot(path.read_bytes())
    for producer_id in states.ids():
        entry = states.get(producer_id)
        assert entry is not None, "its id was just named"
        last = entry.batches[-1] if entry.batches else None
        yield {
            "producerId": producer_id,
            "producerEpoch": entry.epoch,
            "firstSequence": last.first_sequence if last else None,
            "lastSequence": last.last_sequence if last else None,
            "lastOffset": last.last_offset if last else None,
            "timestamp": entry.last_timestamp,
            "coordinatorEpoch": entry.coordinator_epoch,
            "transactionFirstOffset": entry.transaction_first_offset,
        }


def text_rows(path: Path) -> Rows:
    """Rows of one of TEXTS. Raises CorruptCheckpoint."""
    data = path.read_bytes()
    if path.name == LEADER_EPOCHS:
        for start in parse_epochs(data):
            yield {"epoch": start.epoch, "startOffset": start.start_offset}
    elif path.name in CHECKPOINTS:
        for key, offset in parse_offsets(data).items():
            yield {"topic": key.topic, "partition": key.partition, "offset": offset}
    else:
        for name, value in parse_properties(data).items():
            yield {"key": name, "value": value}
