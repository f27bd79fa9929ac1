"""The log directories of a broker from their opening to their orderly close."""

from collections.abc import Callable, Mapping

from logfleet.config.broker import BrokerConfig
from logfleet.io.files import Files
from logfleet.log.checkpoints.checkpointer import Checkpointer
from logfleet.log.directories.disk_failure import DiskFailure
from logfleet.log.directories.disk_space import DiskSpace
from logfleet.log.directories.log_dir import LogDir
from logfleet.log.directories.log_dirs import LogDirs
from logfleet.log.flushing.flusher import Flusher
from logfleet.log.names import TopicPartition
from logfleet.log.segments.open_files import OpenFiles
from logfleet.node.decisions.disks import RecordedDisks
from logfleet.node.lifetime import Lifetime
from logfleet.node.partitions.replica import Replica
from logfleet.telemetry.decisions import Decisions
from logfleet.types import BrokerEpoch


class Disks:
    """A broker's log directories, none of them before `open`.

    failed: to be called with a disk's error; it decides what follows. on_directory_failed: each is
    called with the logs of a directory that has failed. open_files_max: see OpenFiles.
    """

    def __init__(
        self,
        config: BrokerConfig,
        files: Files,
        flusher: Flusher,
        decisions: Decisions,
        life: Lifetime,
        *,
        open_files_max: int,
    ) -> None:
        self.flusher = flusher
        self.checkpointer = Checkpointer(files, flusher)
        self.log_dirs = LogDirs(OpenFiles(files, open_files_max), [])
        self.disk_space = DiskSpace(
            files, flusher, self.log_dirs, config.logfleet_disk_reserve_bytes
        )
        failure = DiskFailure(self.log_dirs, self.disk_space, fail=life.fail)
        self.on_directory_failed = failure.on_directory_failed
        self.failed = RecordedDisks(decisions, failure, self.log_dirs, self.disk_space)
        self._config = config
        self._life = life
        self._high_watermarks: Mapping[TopicPartition, int] = {}

    async def open(self, cluster_id: str, recovery_threads: Callable[[], int]) -> None:
        """Open the directories, and close them with the broker. Raises LogDirRefused.

        recovery_threads: how many logs of a directory are closed in parallel.
        """
        opened = self.log_dirs.open_each(self._config.log_dirs, cluster_id, self._config.node_id)
        for log_dir in opened:
            self._life.closing.push_async_callback(self._close, log_dir, recovery_threads)
            await self.disk_space.check(log_dir.path)

    async def settle(self, broker_epoch: BrokerEpoch) -> None:
        """The registration of this epoch is active; record it for the next start."""
        self.log_dirs.settle(broker_epoch)
        await self.flusher.run(self.log_dirs.record_running)

    def storage_failed(self, partition: Replica, error: OSError) -> None:
        """A log could not be written or read: see DiskFailure."""
        self.failed(TopicPartition(partition.topic, partition.index), error)

    def remember(self, high_watermarks: Callable[[], Mapping[TopicPartition, int]]) -> None:
        """Keep the high watermarks for the checkpoints at the close.

        Nothing is committed any more.
        """
        self._high_watermarks = high_watermarks()

    async def _close(self, log_dir: LogDir, recovery_threads: Callable[[], int]) -> None:
        self.disk_space.remove_reserve(log_dir.path)
        if log_dir not in self.log_dirs.dirs:
            return  # the directory has failed
        if not log_dir.is_loaded:
            log_dir.abandon()
            return
        try:
            await self.flusher.until_all_idle()
            await self.checkpointer.until_idle()
            await self.flusher.close(log_dir.logs.values(), recovery_threads())
            await self.flusher.run(log_dir.close, self._high_watermarks)
        except OSError as error:
            self._life.fail(f"log directory {log_dir.path} could not be closed: {error}")
