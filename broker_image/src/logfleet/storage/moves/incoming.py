"""What comes into a log directory from the others of its broker (KIP-113): copies that are being made, and what they take the place of.

A copy lies in a directory of its own, TOPIC-PARTITION.HEX-future, until one rename makes it the partition's log. Then the log that it was
copied from is there still: before that rename it is noted in a file whence the copy comes, so that a start that finds two logs knows the old one.
Kafka renames in the same order (LogManager.replaceCurrentWithFutureLog), and a start after a crash in between refuses both logs.
"""

import uuid
from collections.abc import Callable

from logfleet.io.files import read_file, write_file
from logfleet.log.checkpoints import CorruptCheckpoint, format_properties, parse_properties
from logfleet.log.config import LogConfig
from logfleet.log.names import (
    MOVED,
    TopicPartition,
    future_directory,
    parse_future_directory,
    parse_partition_directory,
)
from logfleet.storage.log_loader import LoadRequest, prepare_directory
from logfleet.storage.open_files import OpenFiles
from logfleet.storage.partition_log import PartitionLog
from logfleet.storage.trash import Discarded, Trash


class IncomingLogs:
    """Of one log directory. futures: the copies that are being made. found: partitions and paths of those that were there at the start.

    origins: by partition the id of the directory that it is copied from, or was. Where this directory has the partition's log,
    one in that directory is of no use.
    """

    def __init__(
        self, path: str, open_files: OpenFiles, trash: Trash, note: Callable[[str], None]
    ) -> None:
        """note: called with what a person should know. Raises OSError."""
        self.futures: dict[TopicPartition, PartitionLog] = {}
        self.found: list[tuple[TopicPartition, str]] = []
        self._path = path
        self._open_files = open_files
        self._files = open_files.files
        self._trash = trash
        self.origins = self._read_origins(note)

    def _read_origins(self, note: Callable[[str], None]) -> dict[TopicPartition, str]:
        """An unreadable file costs a person's look, if a partition then has two logs."""
        try:
            found = parse_properties(read_file(self._files, f"{self._path}/{MOVED}") or b"")
        except CorruptCheckpoint as error:
            note(f"{self._path}/{MOVED} is unreadable and left out: {error}")
            return {}
        named = {parse_partition_directory(name): origin for name, origin in found.items()}
        return {name: origin for name, origin in named.items() if name is not None}

    def note_origin(self, partition: TopicPartition, directory_id: str | None) -> None:
        """Durably: whence the partition's log comes, or (None) that nothing is left there. Blocks. Raises OSError."""
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
        """A new copy that begins at `start_offset`; it has nothing yet. topic_id: Kafka's text form. Raises OSError."""
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
        """Whether there is a directory of the partition's name, whatever it is. Blocks. Raises OSError."""
        try:
            self._files.list_directory(f"{self._path}/{partition}")
        except FileNotFoundError:
            return False
        return True

    def drop(self, partition: TopicPartition, now_ms: int) -> None:
        """The copy is not wanted: its bytes go. No flush of it may be running."""
        future = self.futures.pop(partition)
        future.forget_files()
        self._trash.add(Discarded(future.directory, now_ms))

    def finds(self, name: str) -> bool:
        """Whether a directory of that name, there at the start, is a copy."""
        partition = parse_future_directory(name)
        if partition is not None:
            self.found.append((partition, f"{self._path}/{name}"))
        return partition is not None

    def drop_found(self, path: str, now_ms: int) -> None:
        """The copy that was there at the start is not wanted: its bytes go."""
        self._trash.add(Discarded(path, now_ms))
