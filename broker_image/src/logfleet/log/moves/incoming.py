"""Logs that move into a log directory from another one of the broker (KIP-113).

A copy has a directory of its own, TOPIC-PARTITION.HEX-future, until one rename makes it the
partition's log. The log it was copied from still exists then: before the rename a file records
where the copy comes from, so that a start that finds two logs knows which is old. Kafka renames in
the same order (LogManager.replaceCurrentWithFutureLog), and a start after a crash in between
refuses both logs.
"""

import uuid
from collections.abc import Callable

from logfleet.io.files import read_file, write_file
from logfleet.log.checkpoints.files import CorruptCheckpoint, format_properties, parse_properties
from logfleet.log.config import LogConfig
from logfleet.log.directories.trash import Discarded, Trash
from logfleet.log.names import (
    MOVED,
    TopicPartition,
    future_directory,
    parse_future_directory,
    parse_partition_directory,
)
from logfleet.log.partition_log import PartitionLog
from logfleet.log.recovery.loader import LoadRequest, prepare_directory
from logfleet.log.segments.open_files import OpenFiles


class IncomingLogs:
    """The copies that are being made in one log directory. futures: copies in progress.

    found: partitions and paths of copies that were there at the start. origins: by partition, the
    id of the directory from which it is or was copied. If this directory has the partition's log,
    the one in that directory is obsolete.
    """

    def __init__(
        self, path: str, open_files: OpenFiles, trash: Trash, report: Callable[[str], None]
    ) -> None:
        """report: called with messages for the operator. Raises OSError."""
        self.futures: dict[TopicPartition, PartitionLog] = {}
        self.found: list[tuple[TopicPartition, str]] = []
        self._path = path
        self._open_files = open_files
        self._files = open_files.files
        self._trash = trash
        self.origins = self._read_origins(report)

    def _read_origins(self, report: Callable[[str], None]) -> dict[TopicPartition, str]:
        """Read the origins file. If it is unreadable, a person has to settle duplicate logs."""
        try:
            found = parse_properties(read_file(self._files, f"{self._path}/{MOVED}") or b"")
        except CorruptCheckpoint as error:
            report(f"{self._path}/{MOVED} is unreadable and left out: {error}")
            return {}
        named = {parse_partition_directory(name): origin for name, origin in found.items()}
        return {name: origin for name, origin in named.items() if name is not None}

    def record_origin(self, partition: TopicPartition, directory_id: str | None) -> None:
        """Record durably where the partition's log comes from; None: nothing is left there.

        Blocks. Raises OSError.
        """
        origins = {name: origin for name, origin in self.origins.items() if name != partition}
        if directory_id is not None:
            origins[partition] = directory_id
        if origins != self.origins:
            content = format_properties({str(name): origin for name, origin in origins.items()})
            write_file(self._files, f"{self._path}/{MOVED}", content, durable=True)
            self.origins = origins

    def begin(
        self,
        partition: TopicPartition,
        topic_id: str,
        config: LogConfig,
        start_offset: int,
        now_ms: int,
    ) -> PartitionLog:
        """Create an empty copy that begins at `start_offset`. topic_id: Kafka's text form.

        Raises OSError.
        """
        assert partition not in self.futures, f"{partition} is being copied"
        name = future_directory(partition, uuid.uuid4().hex)
        assert name is not None, "the topic's name is too long"
        directory = f"{self._path}/{name}"
        prepare_directory(self._open_files, directory, topic_id)
        request = LoadRequest.of_new(directory, config, now_ms, start_offset=start_offset)
        future = PartitionLog(partition, self._open_files, self._trash, request)
        self.futures[partition] = future
        return future

    def is_taken(self, partition: TopicPartition) -> bool:
        """Whether a directory of the partition's name exists, whatever it holds. Blocks.

        Raises OSError.
        """
        try:
            self._files.list_directory(f"{self._path}/{partition}")
        except FileNotFoundError:
            return False
        return True

    def drop(self, partition: TopicPartition, now_ms: int) -> None:
        """Remove a copy in progress. No flush of it may be running."""
        future = self.futures.pop(partition)
        future.drop_files()
        self._trash.add(Discarded(future.directory, now_ms))

    def add_if_copy(self, name: str) -> bool:
        """Whether a directory of that name is a copy.

        Called at the start, it is then added to `found`.
        """
        partition = parse_future_directory(name)
        if partition is not None:
            self.found.append((partition, f"{self._path}/{name}"))
        return partition is not None

    def drop_found(self, path: str, now_ms: int) -> None:
        """Remove a copy that was there at the start."""
        self._trash.add(Discarded(path, now_ms))
