"""The background work on this broker's logs.

Retention and flushing, disk space, moves between directories, compaction.
"""

from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any

from logfleet.config.broker import BrokerConfig
from logfleet.config.cleaner import settings_of
from logfleet.io.files import Files
from logfleet.log.checkpoints.checkpointer import Checkpointer
from logfleet.log.compaction.cleaner import Cleaner
from logfleet.log.directories.disk_failure import OnDiskFailure
from logfleet.log.directories.disk_space import DiskSpace
from logfleet.log.directories.log_dirs import LogDirs
from logfleet.log.flushing.flusher import Flusher
from logfleet.metadata.image import ClusterImage
from logfleet.node.partitions.log_moves import LogMoves
from logfleet.node.partitions.maintenance import Maintenance
from logfleet.node.partitions.partition_table import PartitionTable
from logfleet.quotas.replication_throttle import ReplicationThrottle


class LogTasks:
    """Makes and starts the background tasks.

    maintenance, log_moves, cleaner: each a task after `start`. cleaner is None where
    log.cleaner.enable is false.
    """

    def __init__(
        self,
        files: Files,
        config: BrokerConfig,
        *,
        table: PartitionTable,
        log_dirs: LogDirs,
        flusher: Flusher,
        checkpointer: Checkpointer,
        disk_space: DiskSpace,
        throttle: ReplicationThrottle,
        image: Callable[[], ClusterImage],
        on_disk_failure: OnDiskFailure,
    ) -> None:
        self._disk_space = disk_space
        self.maintenance = Maintenance(
            files,
            config,
            table=table,
            log_dirs=log_dirs,
            flusher=flusher,
            checkpointer=checkpointer,
            on_disk_failure=on_disk_failure,
        )
        self.log_moves = LogMoves(
            table,
            log_dirs,
            flusher,
            checkpointer,
            throttle=throttle,
            disk_space=disk_space,
            on_disk_failure=on_disk_failure,
        )
        self.cleaner: Cleaner | None = None
        if config.log_cleaner_enable:
            self.cleaner = Cleaner(
                lambda: settings_of(config.static, image(), config.node_id),
                table=table,
                log_dirs=log_dirs,
                flusher=flusher,
                checkpoint=partial(checkpointer.write, high_watermark_of=table.high_watermark_of),
                room=disk_space.room_to_compact,
                on_disk_failure=on_disk_failure,
            )

    def start(self, spawn: Callable[[str, Coroutine[Any, Any, None]], None]) -> None:
        """Run each task for as long as the broker lives."""
        spawn("maintenance", self.maintenance.run())
        spawn("disk space", self._disk_space.run())
        spawn("log moves", self.log_moves.run())
        if self.cleaner is not None:
            spawn("cleaner", self.cleaner.run())
