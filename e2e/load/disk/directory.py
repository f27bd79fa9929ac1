"""Looks at the log directory of a broker that does not run, in a copy: what a start would make of it, and whether that is right."""

import shutil
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import msgspec
from logfleet.groups.records import OFFSETS_TOPIC
from logfleet.io.files import PosixFiles
from logfleet.log.checkpoints.files import parse_offsets, parse_properties
from logfleet.log.config import LogConfig
from logfleet.log.directories.log_dir import LogDir
from logfleet.log.names import (
    CLEANED,
    FIRST_DIRTY_OFFSETS,
    META_PROPERTIES,
    SWAP,
    TopicPartition,
)
from logfleet.log.partition_log import PartitionLog
from logfleet.log.segments.file_slice import FileSlice
from logfleet.log.segments.open_files import OpenFiles
from logfleet.records.batch import iterate_headers
from logfleet.records.record import read_records

from broker_image.tests.sim.rebuild import index_faults, producer_faults
from e2e.load.disk.history import (
    Found,
    History,
    Value,
    check_acknowledged,
    check_in_order,
    check_latest,
)
from e2e.load.disk.workers import COMPACTED, KEPT, NUMBER, PRUNED

READ_BYTES = 1 << 20


def check_directory(
    data: Path, history: History, *, interval_bytes: int, retention_bytes: int
) -> list[str]:
    """Everything that is wrong with the logs in `data`, which stays as it is.

    interval_bytes: the broker's log.index.interval.bytes; retention_bytes: of the topic PRUNED.
    """
    with tempfile.TemporaryDirectory(prefix="logfleet-soak-") as scratch:
        copy = Path(scratch) / "data"
        shutil.copytree(data, copy)
        faults = []
        for log in _logs(copy, interval_bytes):
            wrong = [
                *(fault for s in log.segments for fault in index_faults(s, interval_bytes)),
                *producer_faults(log),
                *_content_faults(log, history),
            ]
            if log.partition.topic == PRUNED:
                wrong += _start_faults(log, history, retention_bytes)
            faults += [f"{log.partition}: {fault}" for fault in wrong]
        return faults


def first_dirty_offsets(data: Path) -> dict[TopicPartition, int]:
    """How far each log has been compacted, by the broker's checkpoint."""
    file = data / FIRST_DIRTY_OFFSETS
    return parse_offsets(file.read_bytes()) if file.exists() else {}


def is_amid_compaction(data: Path) -> bool:
    """Whether a compaction has left files that the next start has to end or undo."""
    folders = [*data.glob(f"{COMPACTED}-*"), *data.glob(f"{OFFSETS_TOPIC}-*")]
    return any(file.suffix in (CLEANED, SWAP) for folder in folders for file in folder.iterdir())


def _logs(data: Path, interval_bytes: int) -> Iterator[PartitionLog]:
    kept = LogConfig(index_interval_bytes=interval_bytes)
    compacted = msgspec.structs.replace(kept, cleanup_policy=frozenset({"compact"}))

    def config_of(topic: str) -> LogConfig:
        return compacted if topic in (COMPACTED, OFFSETS_TOPIC) else kept

    identity = parse_properties((data / META_PROPERTIES).read_bytes())
    log_dir = LogDir(
        OpenFiles(PosixFiles()), str(data), identity["cluster.id"], int(identity["node.id"])
    )
    try:
        yield from log_dir.load(config_of, time.time_ns() // 1_000_000)
    finally:
        log_dir.abandon()


def _content_faults(log: PartitionLog, history: History) -> list[str]:
    topic, start = log.partition.topic, log.log_start_offset
    if topic == COMPACTED:
        return check_latest(found_in(log), dict(history.keys), dict(history.attempted))
    if topic not in (KEPT, PRUNED):
        return []
    found = list(found_in(log))
    acknowledged = dict(history.acknowledged[topic, log.partition.partition])
    return check_in_order(found, start) + check_acknowledged(found, acknowledged, start)


def _start_faults(log: PartitionLog, history: History, retention_bytes: int) -> list[str]:
    """The start never went back, and only DeleteRecords and the limit on size have moved it."""
    name = (log.partition.topic, log.partition.partition)
    told, asked = history.starts.get(name, 0), history.deleted.get(name, 0)
    faults = []
    if log.log_start_offset < told:
        faults.append(f"begins at {log.log_start_offset}, {told} was told")
    if log.log_start_offset > asked and log.size < retention_bytes:
        faults.append(
            f"begins at {log.log_start_offset} with {log.size} bytes left, {asked} was asked for"
        )
    return faults


def found_in(log: PartitionLog) -> Iterator[Found]:
    """The records from the log's start to its end."""
    offset = log.log_start_offset
    while isinstance(piece := log.read(offset, READ_BYTES), FileSlice):
        content = piece.read()
        for position, header in iterate_headers(content):
            offset = header.next_offset
            for record in read_records(content, position):
                if record.offset < log.log_start_offset:
                    continue
                if record.key is None:
                    assert record.value is not None
                    writer, number, *_ = record.value.decode().split()
                    yield Found(record.offset, Value(writer, int(number)))
                else:
                    writer, key = record.key.decode().split()
                    number = dict(record.headers)[NUMBER].decode()  # type: ignore[union-attr]
                    yield Found(record.offset, Value(writer, int(number)), key)
