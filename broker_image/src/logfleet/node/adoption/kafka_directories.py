"""Reads the log directories of an Apache Kafka node.

Nothing is changed; the locks keep Kafka from starting meanwhile. Errors: AdoptionRefused (one line
for a person: what is wrong and what to do) and OSError (the disk).
"""

import contextlib
import re
from collections.abc import Iterator, Sequence
from typing import Final

from logfleet.io.files import FileLocked, Files, read_file
from logfleet.log.checkpoints.files import (
    CorruptCheckpoint,
    parse_epochs,
    parse_partition_metadata,
    parse_properties,
)
from logfleet.log.directories.log_dir import LogDirRefused
from logfleet.log.directories.log_dirs import refuse_listed_twice
from logfleet.log.names import (
    CLEAN_SHUTDOWN,
    LEADER_EPOCHS,
    LOCK,
    LOG,
    META_PROPERTIES,
    PARTITION_METADATA,
    SNAPSHOT,
    SWAP,
    TRANSACTION_INDEX,
    TopicPartition,
    offset_file,
    parse_offset_file,
    parse_partition_directory,
)
from logfleet.log.producers.states import NO_OFFSET, CorruptSnapshot, ProducerStates
from logfleet.log.segments.valid_batches import holds_old_messages
from logfleet.node.adoption.kraft import KraftMetadata, UnreadableKraft
from logfleet.node.adoption.writes import NO_EPOCH, FoundDirectory, FoundLog
from logfleet.records.batch import BatchHeader, crc_matches, iterate_headers
from logfleet.records.errors import RecordsError
from logfleet.records.record import read_records
from logfleet.wire.internal_topics import METADATA_TOPIC

METADATA_DIRECTORY: Final = f"{METADATA_TOPIC}-0"
HOLDER: Final = "logfleet adopt"
_CHECKPOINT: Final = re.compile(r"(\d{20})-(\d{10})\.checkpoint")


class AdoptionRefused(Exception):
    """The directories cannot be adopted. The text is one line that says which and what to do."""


@contextlib.contextmanager
def locked(files: Files, paths: Sequence[str]) -> Iterator[None]:
    """No other process uses the directories in this block. Raises AdoptionRefused, OSError."""
    try:
        refuse_listed_twice(paths)
    except LogDirRefused as error:
        raise AdoptionRefused(str(error)) from error
    with contextlib.ExitStack() as stack:
        for path in paths:
            if read_file(files, f"{path}/{META_PROPERTIES}") is None:
                raise AdoptionRefused(
                    f"{path} has no {META_PROPERTIES}: it is no log directory of a Kafka that has "
                    "run"
                )
            try:
                stack.callback(files.lock(f"{path}/{LOCK}", HOLDER).release)
            except FileLocked as error:
                raise AdoptionRefused(
                    f"{path} is in use by {error.holder or 'a running broker'}: stop it first"
                ) from error
        yield


def read_directory(files: Files, path: str) -> FoundDirectory:
    """The contents of an entry of log.dirs. Raises AdoptionRefused, OSError."""
    try:
        properties = parse_properties(read_file(files, f"{path}/{META_PROPERTIES}") or b"")
        cluster_id, node_id, directory_id = (
            properties[key] for key in ("cluster.id", "node.id", "directory.id")
        )
        number = int(node_id)
    except (CorruptCheckpoint, KeyError, ValueError) as error:
        raise AdoptionRefused(
            f"{path}/{META_PROPERTIES} is not as Kafka 3.7 or newer writes it in KRaft mode: "
            f"{error}"
        ) from error
    logs, others = [], []
    for entry in sorted(files.list_directory(path), key=lambda entry: entry.name):
        if not entry.is_directory or entry.name == METADATA_DIRECTORY:
            continue
        partition = parse_partition_directory(entry.name)
        if partition is None:
            others.append(entry.name)
        else:
            logs.append(_read_log(files, path, partition))
    return FoundDirectory(
        path=path,
        cluster_id=cluster_id,
        node_id=number,
        directory_id=directory_id,
        was_clean=read_file(files, f"{path}/{CLEAN_SHUTDOWN}") is not None,
        logs=tuple(logs),
        others=tuple(others),
    )


def _read_log(files: Files, path: str, partition: TopicPartition) -> FoundLog:
    directory = f"{path}/{partition}"
    size, snapshots, has_aborted = 0, [], False
    for entry in files.list_directory(directory):
        parsed = parse_offset_file(entry.name)
        if parsed is None:
            continue
        offset, suffix = parsed
        if suffix == LOG:
            size += files.status(f"{directory}/{entry.name}").size
        elif suffix == TRANSACTION_INDEX:
            has_aborted |= files.status(f"{directory}/{entry.name}").size > 0
        elif suffix == SNAPSHOT:
            snapshots.append(offset)
    try:
        metadata = read_file(files, f"{directory}/{PARTITION_METADATA}")
        topic_id = None if metadata is None else parse_partition_metadata(metadata)
        epochs = parse_epochs(read_file(files, f"{directory}/{LEADER_EPOCHS}") or b"0\n0\n")
        has_open = bool(snapshots) and _has_open(files, directory, max(snapshots))
    except (CorruptCheckpoint, CorruptSnapshot) as error:
        raise AdoptionRefused(
            f"{directory} holds an unreadable file ({error}): start Kafka once more and stop it "
            "in order, which mends it"
        ) from error
    return FoundLog(
        directory=path,
        partition=partition,
        topic_id=topic_id,
        latest_epoch=epochs[-1].epoch if epochs else NO_EPOCH,
        size_bytes=size,
        has_aborted=has_aborted,
        has_open=has_open,
    )


def _has_open(files: Files, directory: str, offset: int) -> bool:
    """Whether a transaction was open when the newest snapshot was written.

    That is at the log's end if Kafka was stopped in order.
    """
    states = ProducerStates.from_snapshot(
        read_file(files, f"{directory}/{offset_file(offset, SNAPSHOT)}") or b""
    )
    entries = (states.get(producer_id) for producer_id in states.ids())
    return any(
        entry is not None and entry.transaction_first_offset != NO_OFFSET for entry in entries
    )


def format_problems(files: Files, directories: Sequence[FoundDirectory]) -> Iterator[str]:
    """A sentence for each partition with messages that no broker of ours can read.

    Takes long: it reads the headers of all batches.
    """
    for directory in directories:
        for log in directory.logs:
            name = _first_of_old_format(files, f"{directory.path}/{log.partition}")
            if name is not None:
                yield (
                    f"{directory.path}/{log.partition}/{name} holds messages of format v0 or v1, "
                    "as Kafka wrote them while message.format.version was below 0.11, and this "
                    "version could not serve them: start Kafka and wait until retention has "
                    "removed them, or copy the topic to a new one with Kafka's clients and "
                    "delete it"
                )


def _first_of_old_format(files: Files, directory: str) -> str | None:
    """Name of the first segment with messages of format v0 or v1.

    Includes a segment that a swap was about to put in place.
    """
    for entry in sorted(files.list_directory(directory), key=lambda entry: entry.name):
        parsed = parse_offset_file(entry.name.removesuffix(SWAP))
        if parsed is not None and parsed[1] == LOG:
            file = files.open(f"{directory}/{entry.name}")
            if holds_old_messages(file.pread, file.size()):
                return entry.name
    return None


def read_kraft(files: Files, paths: Sequence[str]) -> KraftMetadata:
    """Kafka's metadata, from the directory that holds it. Raises AdoptionRefused, OSError."""
    holders = [
        path
        for path in paths
        if any(entry.name == METADATA_DIRECTORY for entry in files.list_directory(path))
    ]
    if not holders:
        raise AdoptionRefused(
            f"none of {', '.join(paths)} holds {METADATA_DIRECTORY}: name Kafka's "
            "metadata.log.dir with --metadata-dir"
        )
    if len(holders) > 1:
        raise AdoptionRefused(
            f"{' and '.join(holders)} each hold {METADATA_DIRECTORY}: name the one in use with "
            "--metadata-dir"
        )
    directory = f"{holders[0]}/{METADATA_DIRECTORY}"
    try:
        return _replayed(files, directory)
    except (UnreadableKraft, RecordsError) as error:
        raise AdoptionRefused(f"{directory}: {error}") from error


def _replayed(files: Files, directory: str) -> KraftMetadata:
    names = sorted(entry.name for entry in files.list_directory(directory))
    snapshots = [name for name in names if _CHECKPOINT.fullmatch(name)]
    segments = [name for name in names if (parsed := parse_offset_file(name)) and parsed[1] == LOG]
    kraft = KraftMetadata()
    next_offset = 0
    if snapshots:
        next_offset = int(snapshots[-1].partition("-")[0])
        for _, values in _batches(files, f"{directory}/{snapshots[-1]}", may_be_torn=False):
            for _, value in values:
                kraft.replay(value)
    for name in segments:
        path = f"{directory}/{name}"
        for header, values in _batches(files, path, may_be_torn=name == segments[-1]):
            if header.base_offset > next_offset:
                raise UnreadableKraft(
                    f"records {next_offset} to {header.base_offset - 1} are missing"
                )
            for offset, value in values:
                if offset >= next_offset:
                    kraft.replay(value)
            next_offset = max(next_offset, header.last_offset + 1)
    return kraft


def _batches(
    files: Files, path: str, *, may_be_torn: bool
) -> Iterator[tuple[BatchHeader, list[tuple[int, bytes]]]]:
    """Each batch with its records' offsets and values; no records for KRaft's control batches.

    may_be_torn: what follows the last whole batch was never committed, as Kafka finds at its start
    too.
    """
    file = files.open(path)
    data = file.pread(file.size(), 0)
    end = 0
    try:
        for position, header in iterate_headers(data):
            if not crc_matches(data, header, position):
                break
            end = position + header.size
            if header.is_control:
                yield header, []
            else:
                batch = memoryview(data)[position:end]
                yield header, [(each.offset, each.value or b"") for each in read_records(batch)]
    except RecordsError:
        if not may_be_torn:
            raise
    if end < len(data) and not may_be_torn:
        raise UnreadableKraft(f"{path} holds no whole batch at position {end}")
