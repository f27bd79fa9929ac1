"""`logfleet dump`: print the contents of partition files on this disk.

Files are only read, so those of a running broker may be dumped.
"""

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import click

from logfleet.cli.machine.dump_files import (
    TEXTS,
    is_known,
    mapped,
    offset_index_rows,
    snapshot_rows,
    text_rows,
    time_index_rows,
    transaction_index_rows,
)
from logfleet.cli.output.formats import Output, output_option
from logfleet.cli.output.tables import echo_table
from logfleet.cli.record_text import text_of
from logfleet.log.checkpoints.files import CorruptCheckpoint
from logfleet.log.names import (
    INDEX,
    LOG,
    SNAPSHOT,
    TIME_INDEX,
    TRANSACTION_INDEX,
    parse_offset_file,
)
from logfleet.log.producers.states import CorruptSnapshot
from logfleet.records.batch import BatchHeader, crc_matches, iterate_headers
from logfleet.records.compression import Codec
from logfleet.records.errors import RecordsError
from logfleet.records.record import read_records

Rows = Iterator[dict[str, Any]]
WIDE: Final = frozenset(
    {"epoch", "timestampType", "producerEpoch", "sequence", "transactional", "control"}
)
"""Fields that a segment's table has with -o wide only."""
TABLE_ROWS_MAX: Final = 100_000
"""Rows of one table at most: column widths are known only when all rows are."""


@click.command()
@click.argument(
    "files",
    nargs=-1,
    required=True,
    metavar="FILE...",
    type=click.Path(exists=True, path_type=Path),
)
@click.option(
    "-r", "--records", is_flag=True, help="The records of each batch instead of the batch."
)
@click.option(
    "-n", "--count", type=click.IntRange(1), metavar="N", help="At most so many rows of each file."
)
@output_option
def dump(files: tuple[Path, ...], *, records: bool, count: int | None, output: Output) -> None:
    """Print segments (.log), indexes (.index, .timeindex, .txnindex), snapshots and checkpoints.

    A table for each file, or an object per line as JSON. A directory stands for the files in it.
    A segment's table has the columns that most people want, with -o wide all of them.
    Checksums are checked, and indexes against the segment beside them. The files may be in use.

    \b
    logfleet dump data/orders-0
    logfleet dump data/recovery-point-offset-checkpoint data/meta.properties
    logfleet dump 00000000000000000000.log --records -n 20
    logfleet dump 00000000000000000000.log -o json | jq 'select(.valid | not)'

    Exit codes: 0 all is sound, 1 something is not (one line on stderr for each file), 2 the command
    line is wrong.
    """
    sound = True
    for number, path in enumerate(_expanded(files)):
        if output.is_name:
            click.echo(path)
        elif not output.is_json:
            click.echo("\n" * bool(number) + f"{path}")
        problem = _dump(path, output, records=records, count=count)
        if problem is not None:
            sound = False
            click.echo(f"Error: {path}: {problem}", err=True)
    if not sound:
        sys.exit(1)


def _expanded(files: tuple[Path, ...]) -> list[Path]:
    found = []
    for path in files:
        inside = sorted(path.iterdir()) if path.is_dir() else [path]
        known = [each for each in inside if is_known(each.name)]
        if not known:
            raise click.UsageError(
                f"{path}: no segment or index (their names are 20 digits and .log, .index, "
                f".timeindex, .txnindex or .snapshot), "
                f"nor one of {', '.join(sorted(TEXTS))}"
            )
        found += known
    return found


def _dump(path: Path, output: Output, *, records: bool, count: int | None) -> str | None:
    """Print the file; return what is wrong with it, or None."""
    rows: list[dict[str, Any]] = []
    problems: list[str] = []
    for number, row in enumerate(_readable_rows(path, problems, records=records)):
        if number == (count if count is not None else -1):
            break
        if not row.get("valid", True):
            problems.append(_mismatch_text(path, row))
        if output.is_json:
            click.echo(json.dumps({"file": path.name, **row}, ensure_ascii=False))
        elif output.is_name:
            continue
        elif number < TABLE_ROWS_MAX:
            rows.append(row)
        else:
            problems.append(f"only the first {TABLE_ROWS_MAX} rows are shown; -o json shows all")
            break
    if rows:
        titles = [name for name in rows[0] if output.is_wide or name not in WIDE]
        echo_table(
            [name.upper() for name in titles],
            [[_cell(row[name]) for name in titles] for row in rows],
        )
    return problems[-1] if problems else None


def _readable_rows(path: Path, problems: list[str], *, records: bool) -> Rows:
    """The rows up to where the file is unreadable; the reason is then added to `problems`.

    Errors are caught here and not around the output: a closed stdout is no problem of the file.
    """
    try:
        yield from _rows(path, records=records)
    except (RecordsError, CorruptSnapshot, CorruptCheckpoint, OSError) as error:
        problems.append(str(error))


def _cell(value: object) -> str:
    if value is None:
        return "-"
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _mismatch_text(path: Path, row: dict[str, Any]) -> str:
    if path.suffix == LOG:
        return f"the batch at position {row['position']} has another checksum"
    # a segment without its .txnindex counts as one without aborted transactions
    remedy = f"{path.stem}{INDEX}" if path.suffix == TRANSACTION_INDEX else "the index"
    return (
        f"the entry for offset {row['offset']} is not so in {path.stem}{LOG}: stop the broker and "
        f"remove {remedy}, it is created again"
    )


def _rows(path: Path, *, records: bool) -> Rows:
    parsed = parse_offset_file(path.name)
    if parsed is None:
        yield from text_rows(path)
        return
    base_offset, suffix = parsed
    if suffix == INDEX:
        yield from offset_index_rows(path, base_offset)
    elif suffix == TIME_INDEX:
        yield from time_index_rows(path, base_offset)
    elif suffix == TRANSACTION_INDEX:
        yield from transaction_index_rows(path)
    elif suffix == SNAPSHOT:
        yield from snapshot_rows(path)
    elif path.stat().st_size:
        with mapped(path) as data:
            yield from _segment_rows(data, records=records)


def _segment_rows(view: memoryview, *, records: bool) -> Rows:
    end = 0
    for position, header in iterate_headers(view):
        end = position + header.size
        valid = crc_matches(view, header, position)
        if not records:
            yield _batch_row(position, header, valid=valid)
        elif valid:
            # a copy: an error keeps a reference to its data, and a mapped file with references
            # cannot be closed
            yield from _record_rows(bytes(view[position:end]), header, position)
        else:
            raise RecordsError(f"the batch at position {position} has another checksum")
    if end < len(view):
        raise RecordsError(f"{len(view) - end} bytes at position {end} are no whole batch")


def _batch_row(position: int, header: BatchHeader, *, valid: bool) -> dict[str, Any]:
    bits = header.codec_bits
    return {
        "position": position,
        "base": header.base_offset,
        "last": header.last_offset,
        "records": header.record_count,
        "size": header.size,
        "epoch": header.leader_epoch,
        "codec": Codec(bits).name.lower() if bits in Codec._value2member_map_ else bits,
        "timestamp": header.max_timestamp,
        "timestampType": header.timestamp_type.name,
        "producerId": header.producer_id,
        "producerEpoch": header.producer_epoch,
        "sequence": header.base_sequence,
        "transactional": header.is_transactional,
        "control": header.is_control,
        "valid": valid,
    }


def _record_rows(batch: bytes, header: BatchHeader, position: int) -> Rows:
    try:
        for record in read_records(batch):
            yield {
                "offset": record.offset,
                "timestamp": record.timestamp,
                "key": text_of(record.key),
                "value": text_of(record.value),
                "headers": [[name, text_of(value)] for name, value in record.headers],
            }
    except RecordsError as error:
        raise RecordsError(
            f"the batch at offset {header.base_offset} (position {position}) has the right "
            f"checksum and unreadable records: {error}"
        ) from error
