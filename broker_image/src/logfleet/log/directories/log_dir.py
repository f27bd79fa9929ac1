"""One entry of `log.dirs`: its lock, its identity, its checkpoints, and the logs in it.

The layout is Kafka's, so that either broker can be started on the other's directory. A log is only
removed by `delete`; one that belongs to no topic the broker knows is renamed and kept
(`set_aside`).

Errors: LogDirRefused (one line for the operator: another broker's directory, or in use) and OSError
(the disk).
"""

import base64
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path

import msgspec

from logfleet.io.files import (
    FileLocked,
    Lock,
    is_shortage,
    make_durable_directory,
    process_name,
    read_file,
    write_file,
)
from logfleet.log.checkpoints.files import (
    CorruptCheckpoint,
    format_offsets,
    format_properties,
    parse_offsets,
    parse_properties,
)
from logfleet.log.checkpoints.job import ALL, CheckpointJob
from logfleet.log.config import LogConfig
from logfleet.log.directories.last_run import (
    mark_closed,
    read_last_run,
    remove_run_files,
    remove_running,
    write_running,
)
from logfleet.log.directories.trash import Discarded, Trash
from logfleet.log.moves.incoming import IncomingLogs
from logfleet.log.names import (
    DELETE_DIRECTORY,
    FIRST_DIRTY_OFFSETS,
    HIGH_WATERMARKS,
    LOCK,
    LOG_STARTS,
    META_PROPERTIES,
    RECOVERY_POINTS,
    STRAY_DIRECTORY,
    TopicPartition,
    leaving_directory,
    leaving_suffix,
    parse_partition_directory,
)
from logfleet.log.partition_log import PartitionLog
from logfleet.log.recovery.loader import LoadRequest, prepare_directory
from logfleet.log.segments.open_files import OpenFiles
from logfleet.types import NO_BROKER_EPOCH, BrokerEpoch
from logfleet.wire.internal_topics import METADATA_TOPIC

META_VERSION = "1"

ConfigOf = Callable[[str], LogConfig]
"""Looks up the configuration of a topic by its name."""


def absolute(path: str) -> str:
    """The path of a log directory as Kafka's tools name it (File.getAbsolutePath)."""
    return str(Path(path).absolute())


class LogDirRefused(Exception):
    """The directory is in use, or another broker's; the text says which and what to do."""


class Identity(msgspec.Struct, frozen=True):
    """The owner of a directory (`meta.properties`). ids in Kafka's text form."""

    cluster_id: str
    node_id: int
    directory_id: str

    def as_properties(self) -> dict[str, str]:
        """Keys and values of meta.properties."""
        return {
            "version": META_VERSION,
            "cluster.id": self.cluster_id,
            "node.id": str(self.node_id),
            "directory.id": self.directory_id,
        }


def identity_of(path: str, data: bytes, node_id: int) -> Identity:
    """Parse the meta.properties of the log directory `path`.

    Raises LogDirRefused, also if it is another node's.
    """
    name = f"{path}/{META_PROPERTIES}"
    try:
        properties = parse_properties(data)
    except CorruptCheckpoint as error:
        raise LogDirRefused(f"{name} is unreadable: {error}") from error
    if "broker.id" in properties and "node.id" not in properties:
        raise LogDirRefused(
            f"{name} was written by a Kafka with ZooKeeper: migrate that to KRaft with Kafka 3.9, "
            "then see `logfleet adopt --help`; nothing was changed here"
        )
    for key in ("cluster.id", "node.id", "directory.id"):
        if not properties.get(key):
            raise LogDirRefused(
                f"{name} has no {key}: bring it back from a copy of the directory; "
                "where a Kafka before 3.7 wrote it, start a newer one there once. "
                "Nothing was changed here"
            )
    theirs = properties["node.id"]
    if theirs != str(node_id):
        raise LogDirRefused(
            f"log directory {path} belongs to node.id={theirs}, this broker has {node_id}: "
            "start it with its own directory, nothing was changed here"
        )
    return Identity(properties["cluster.id"], node_id, properties["directory.id"])


class LogDir:
    """An open log directory. `load` must be exhausted before partitions are used.

    logs: the partitions' logs by topic and partition; only `create`, `delete`, `set_aside` and
    `take_over` change it. incoming: copies of logs of other directories. high_watermarks: as last
    checkpointed. was_clean: the directory was closed properly. broker_epoch: of the last
    registration on this directory that the controller made active, None if the directory names
    none. lost_nothing: everything that was written is there, or the cluster does not count on what
    is missing; final once loaded. half_created: partitions whose `create` failed half way, so that
    files may exist; they are created here and nowhere else. is_loaded: `load` was exhausted.
    """

    def __init__(
        self,
        open_files: OpenFiles,
        path: str,
        cluster_id: str,
        node_id: int,
        *,
        is_locked: bool = False,
    ) -> None:
        """Lock the directory, which is created if absent, and check its owner.

        Raises LogDirRefused, OSError. is_locked: the caller holds the lock, and keeps it.
        """
        self.path = path
        self.logs: dict[TopicPartition, PartitionLog] = {}
        self.notes: list[str] = []
        self.half_created: set[TopicPartition] = set()
        self.is_loaded = False
        self._open_files = open_files
        self._files = open_files.files
        self._trash = Trash(open_files)
        # partitions that the checkpoints named before the load
        self._named_before: set[TopicPartition] = set()
        self._departures = 0
        self._departures_recorded = 0
        make_durable_directory(self._files, path)
        self._lock = None if is_locked else self._locked()
        try:
            self.identity = self._identify(cluster_id, node_id)
            self._last = read_last_run(self._files, path)
            self.was_clean = self._last.was_clean
            self.broker_epoch = self._last.broker_epoch
            self.lost_nothing = self.broker_epoch is not None
            self.high_watermarks = self._read_offsets(HIGH_WATERMARKS)
            self.incoming = IncomingLogs(path, open_files, self._trash, self.notes.append)
            self._written = {
                FIRST_DIRTY_OFFSETS: self._read(FIRST_DIRTY_OFFSETS) or format_offsets([])
            }
        except BaseException:
            self.abandon()
            raise

    def _locked(self) -> Lock:
        try:
            return self._files.lock(f"{self.path}/{LOCK}", process_name())
        except FileLocked as error:
            raise LogDirRefused(
                f"log directory {self.path} is in use by {error.holder or 'another process'}"
            ) from error

    def _identify(self, cluster_id: str, node_id: int) -> Identity:
        data = self._read(META_PROPERTIES)
        if data is None:
            directory_id = base64.urlsafe_b64encode(uuid.uuid4().bytes).rstrip(b"=").decode()
            found = Identity(cluster_id, node_id, directory_id)
            self._write_identity(found)
            return found
        identity = identity_of(self.path, data, node_id)
        if identity.cluster_id != cluster_id:
            raise LogDirRefused(
                f"log directory {self.path} belongs to cluster.id={identity.cluster_id}, "
                f"this broker has {cluster_id}: start it with its own directory, nothing was "
                "changed here"
            )
        return identity

    def _write_identity(self, identity: Identity) -> None:
        content = format_properties(identity.as_properties())
        write_file(self._files, f"{self.path}/{META_PROPERTIES}", content, durable=True)

    def _read(self, name: str) -> bytes | None:
        return read_file(self._files, f"{self.path}/{name}")

    def _read_offsets(self, name: str) -> dict[TopicPartition, int]:
        """Offsets of a checkpoint. An unreadable one costs a longer recovery, not the directory."""
        data = self._read(name)
        try:
            return parse_offsets(data) if data is not None else {}
        except CorruptCheckpoint as error:
            self.notes.append(f"{self.path}/{name} is unreadable and left out: {error}")
            return {}

    @property
    def absolute_path(self) -> str:
        """The path as Kafka's tools name it."""
        return absolute(self.path)

    # Loading

    def load(
        self, config_of: ConfigOf, now_ms: int, *, by_kafka: bool = False
    ) -> Iterator[PartitionLog]:
        """Open the partitions one by one; after a crash each may take a while. See `begin_load`."""
        for partition, request in self.begin_load(config_of, now_ms, by_kafka=by_kafka):
            yield self.open(partition, request)
        self.complete_load()

    def begin_load(
        self, config_of: ConfigOf, now_ms: int, *, by_kafka: bool = False
    ) -> Iterator[tuple[TopicPartition, LoadRequest]]:
        """Yield what `open` needs for each partition in the directory.

        Call `complete_load` after that. From here on the directory counts as not closed properly,
        until `close`. by_kafka: it was Kafka that did not close it.
        """
        note_count_before = len(self.notes)
        recovery_points = self._read_offsets(RECOVERY_POINTS)
        gaps_are_damage = not by_kafka and len(self.notes) == note_count_before
        log_starts = self._read_offsets(LOG_STARTS)
        first_dirty = self._read_offsets(FIRST_DIRTY_OFFSETS)
        self._named_before = {*recovery_points, *log_starts, *first_dirty, *self.high_watermarks}
        remove_run_files(self._files, self.path, self._last)
        for entry in sorted(self._files.list_directory(self.path), key=lambda entry: entry.name):
            if not entry.is_directory:
                continue
            directory = f"{self.path}/{entry.name}"
            if leaving_suffix(entry.name) == DELETE_DIRECTORY:
                self._trash.add(Discarded(directory, now_ms))
                continue
            if self.incoming.add_if_copy(entry.name):
                continue
            partition = parse_partition_directory(entry.name)
            if partition is None:  # -stray, lost+found and other files
                self.notes.append(f"{directory} is no partition: left alone")
                continue
            if partition.topic == METADATA_TOPIC:
                # the metadata log of a Kafka node that this broker replaced, kept for a way back
                continue
            request = LoadRequest(
                directory=directory,
                config=config_of(partition.topic),
                clean=self.was_clean,
                recovery_point=recovery_points.get(partition, 0),
                log_start_offset=log_starts.get(partition, 0),
                now_ms=now_ms,
                first_dirty_offset=first_dirty.get(partition, 0),
                gaps_are_damage=gaps_are_damage,
            )
            yield partition, request

    def open(self, partition: TopicPartition, request: LoadRequest) -> PartitionLog:
        """Open the log of a partition. Thread-safe for different partitions."""
        opened = self.logs[partition] = PartitionLog(
            partition, self._open_files, self._trash, request
        )
        if self._last.was_killed and not self.is_loaded:
            self._sync_after_kill(opened)
        if opened.log_end_offset < request.recovery_point:
            self.lost_nothing = False  # a flush up to the recovery point was recorded
        return opened

    def settle(self, broker_epoch: BrokerEpoch) -> None:
        """The registration of this epoch is active: the cluster no longer counts on what was lost.

        Call `record_running` to make that outlast the process.
        """
        self.broker_epoch = broker_epoch
        self.lost_nothing = True

    def record_running(self) -> None:
        """Let the next start find what `settle` set, even if the process is killed. Blocks."""
        if self.lost_nothing and self.broker_epoch is not None:
            write_running(self._files, self.path, self.broker_epoch)

    def _sync_after_kill(self, log: PartitionLog) -> None:
        """Sync a log whose process was killed while the machine ran on.

        Everything it wrote is there if the sync works. The kernel drops what it failed to write
        back, and reports that when the file is synced. Raises OSError: the disk has failed.
        """
        try:
            job = log.begin_flush()
            job.run(self._files)
        except OSError as error:
            log.abandon_flush()
            if not is_shortage(error):
                raise
            self.lost_nothing = False
        else:
            log.complete_flush(job)
            self.lost_nothing = self.lost_nothing and not log.has_lost

    def complete_load(self) -> None:
        """Finish the load, once all logs that `begin_load` named are open."""
        self.logs = dict(sorted(self.logs.items()))
        if self._named_before - self.logs.keys():
            # a crash came after a log had left, before the checkpoints were written
            self._departures += 1
        self.high_watermarks = {p: o for p, o in self.high_watermarks.items() if p in self.logs}
        self.is_loaded = True
        self.record_running()

    # Partitions that come and go

    def create(
        self, partition: TopicPartition, topic_id: str, config: LogConfig, now_ms: int
    ) -> PartitionLog:
        """Create an empty log, durable after its first flush. topic_id: Kafka's text form."""
        assert partition not in self.logs, f"{partition} exists"
        self.half_created.add(partition)
        directory = f"{self.path}/{partition}"
        prepare_directory(self._open_files, directory, topic_id)
        request = LoadRequest.of_new(directory, config, now_ms)
        created = self.open(partition, request)
        self.half_created.discard(partition)
        return created

    def delete(self, partition: TopicPartition, now_ms: int) -> None:
        """Remove the log at once, its bytes later. Raises OSError: then it is still there."""
        delay_ms = self.logs[partition].config.file_delete_delay_ms
        path = self._take_out(partition, DELETE_DIRECTORY)
        self._trash.add(Discarded(path, now_ms + delay_ms))

    def set_aside(self, partition: TopicPartition) -> str:
        """Rename a partition that belongs to no known topic, and keep it for the operator.

        Returns its new path. Raises OSError: then it is still there.
        """
        return self._take_out(partition, STRAY_DIRECTORY)

    def _take_out(self, partition: TopicPartition, suffix: str) -> str:
        """Rename a log's directory out of use. If that fails nothing has changed."""
        log = self.logs[partition]
        path = f"{self.path}/{leaving_directory(partition, uuid.uuid4().hex, suffix)}"
        self._files.rename(log.directory, path)
        log.drop_files()
        del self.logs[partition]
        self._departures += 1
        self.high_watermarks.pop(partition, None)
        return path

    def drop_future(self, partition: TopicPartition, now_ms: int) -> None:
        """Drop the copy of the partition's log. No flush of it may be running."""
        self.incoming.drop(partition, now_ms)
        self._departures += 1
        if partition not in self.logs:
            self.high_watermarks.pop(partition, None)

    def take_over(self, partition: TopicPartition, source: "LogDir") -> None:
        """Make the copy the partition's log instead of that of `source`, by one rename.

        Raises OSError: then it is not. Not durable before `make_names_durable`; after that call
        `discard_moved`.
        """
        moved, future = source.logs[partition], self.incoming.futures[partition]
        assert partition not in self.logs, f"{partition} exists"
        directory = f"{self.path}/{partition}"
        self._files.rename(future.directory, directory)
        moved.switch_to(future, directory)
        del self.incoming.futures[partition]
        del source.logs[partition]
        source.high_watermarks.pop(partition, None)
        self.logs[partition] = moved

    def discard_moved(self, log: PartitionLog, now_ms: int) -> None:
        """Remove the files that a log left here when another directory took it over.

        They are removed like those of deleted logs. Raises OSError.
        """
        name = leaving_directory(log.partition, uuid.uuid4().hex, DELETE_DIRECTORY)
        self._files.rename(f"{self.path}/{log.partition}", f"{self.path}/{name}")
        self._departures += 1
        due_ms = now_ms + log.config.file_delete_delay_ms
        self._trash.add(Discarded(f"{self.path}/{name}", due_ms))

    def make_names_durable(self) -> None:
        """Make all renames in the directory durable. Blocks. Raises OSError."""
        self._files.fsync_directory(self.path)

    def take_removals(self, now_ms: int) -> list[Discarded]:
        """Files and directories to be removed now: pass them to `trash.remove` in a thread."""
        return self._trash.take_due(now_ms)

    def put_back(self, removals: Iterable[Discarded]) -> None:
        """Keep removals that failed now for the next `take_removals`."""
        for discarded in removals:
            self._trash.add(discarded)

    # Checkpoints

    @property
    def has_departed(self) -> bool:
        """Whether the checkpoint files may name logs that are gone.

        If so, their lines would apply to new logs of the same names.
        """
        return self._departures > self._departures_recorded

    def begin_checkpoint(self, names: Sequence[str] = ALL) -> CheckpointJob:
        """Begin to write checkpoint files.

        Call `add_to_checkpoint` for each log, after the flushes that moved the recovery points; run
        the job in a thread; then call `complete_checkpoint`.
        """
        return CheckpointJob(self.path, names, self._written, self._departures)

    def add_to_checkpoint(
        self, job: CheckpointJob, partition: TopicPartition, high_watermark: int | None
    ) -> None:
        """Add the lines of a log, or of the copy that may become it; ignored if it has left.

        high_watermark: None if it is not hosted.
        """
        log = self.logs.get(partition) or self.incoming.futures.get(partition)
        if log is None:
            return
        if high_watermark is not None:
            self.high_watermarks[partition] = high_watermark
        job.add(partition, log, self.high_watermarks.get(partition))

    def checkpoint(self, high_watermarks: Mapping[TopicPartition, int]) -> CheckpointJob:
        """The checkpoint files as of now, in one step: for callers that may block the loop."""
        job = self.begin_checkpoint()
        for partition in self.logs:
            self.add_to_checkpoint(job, partition, high_watermarks.get(partition))
        return job

    def complete_checkpoint(self, job: CheckpointJob) -> Iterator[None]:
        """A job of all files has run: record what a crash will find.

        A generator: nothing happens before the first step, one log per step.
        """
        for log, point in job.points:
            log.ends.checkpointed(point)
            yield
        self._departures_recorded = job.departures

    def close(self, high_watermarks: Mapping[TopicPartition, int]) -> None:
        """Make everything durable and mark the directory as closed.

        Blocks; nothing may be appended any more.
        """
        for log in self.logs.values():
            job = log.close()
            job.run(self._files)
            log.complete_flush(job)
        self.checkpoint(high_watermarks).run(self._files)
        epoch = self.broker_epoch if self.lost_nothing else None
        mark_closed(self._files, self.path, NO_BROKER_EPOCH if epoch is None else epoch)
        self.abandon()

    def fail(self) -> None:
        """Give up the directory because its disk failed.

        The next start must not trust what was written. The kernel reports a failed write-back only
        once.
        """
        remove_running(self._files, self.path)
        self.abandon()

    def abandon(self) -> None:
        """Give up the directory as it is, as a crash would: the next start recovers it."""
        self._open_files.disk(self.path).close()
        for log in self.logs.values():
            log.drop_files()
        if self._lock is not None:
            self._lock.release()
