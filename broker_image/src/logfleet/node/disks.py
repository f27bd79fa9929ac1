"""The log directories of a broker from their opening to their orderly close."""

from collections.abc import Callable, Mapping
from contextlib import AsyncExitStack

from logfleet.config.broker import BrokerConfig
from logfleet.log.checkpoints.checkpointer import Checkpointer
from logfleet.log.directories.disk_space import DiskSpace
from logfleet.log.directories.log_dir import LogDir
from logfleet.log.directories.log_dirs import LogDirs
from logfleet.log.flushing.flusher import Flusher
from logfleet.log.names import TopicPartition
from logfleet.types import BrokerEpoch


class Disks:
    """Opens a broker's log directories, and closes them in order.

    recovery_threads: how many logs of a directory are closed in parallel. on_failure: called with
    the reason if a directory could not be closed.
    """

    def __init__(
        self,
        config: BrokerConfig,
        log_dirs: LogDirs,
        flusher: Flusher,
        checkpointer: Checkpointer,
        *,
        disk_space: DiskSpace,
        recovery_threads: Callable[[], int],
        on_failure: Callable[[str], None],
    ) -> None:
        self._config = config
        self._log_dirs = log_dirs
        self._flusher = flusher
        self._checkpointer = checkpointer
        self._disk_space = disk_space
        self._recovery_threads = recovery_threads
        self._on_failure = on_failure
        self._high_watermarks: Mapping[TopicPartition, int] = {}

    async def open(self, cluster_id: str, stack: AsyncExitStack) -> None:
        """Open the directories; the stack closes them. Raises LogDirRefused."""
        opened = self._log_dirs.open_each(self._config.log_dirs, cluster_id, self._config.node_id)
        for log_dir in opened:
            stack.push_async_callback(self._close, log_dir)
            await self._disk_space.check(log_dir.path)

    async def settle(self, broker_epoch: BrokerEpoch) -> None:
        """The registration of this epoch is active; record it for the next start."""
        self._log_dirs.settle(broker_epoch)
        await self._flusher.run(self._log_dirs.record_running)

    def remember(self, high_watermarks: Callable[[], Mapping[TopicPartition, int]]) -> None:
        """Keep the high watermarks for the checkpoints at the close.

        Nothing is committed any more.
        """
        self._high_watermarks = high_watermarks()

    async def _close(self, log_dir: LogDir) -> None:
        self._disk_space.remove_reserve(log_dir.path)
        if log_dir not in self._log_dirs.dirs:
            return  # the directory has failed
        if not log_dir.is_loaded:
            log_dir.abandon()
            return
        try:
            await self._flusher.until_all_idle()
            await self._checkpointer.until_idle()
            await self._flusher.close(log_dir.logs.values(), self._recovery_threads())
            await self._flusher.run(log_dir.close, self._high_watermarks)
        except OSError as error:
            self._on_failure(f"log directory {log_dir.path} could not be closed: {error}")
