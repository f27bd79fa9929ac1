"""The background work on this broker's logs.

Retention and flushing, disk space, moves between directories, compaction.
"""

from dataclasses import dataclass
from functools import partial

from logfleet.config.broker import BrokerConfig
from logfleet.config.cleaner import settings_of
from logfleet.io.files import Files
from logfleet.log.compaction.cleaner import Cleaner
from logfleet.node.disks import Disks
from logfleet.node.lifetime import Lifetime
from logfleet.node.partitions.hosting import Hosting
from logfleet.node.partitions.maintenance import Maintenance
from logfleet.store.loader import MetadataLoader


@dataclass(frozen=True, slots=True)
class LogTasks:
    """cleaner: None where log.cleaner.enable is false."""

    maintenance: Maintenance
    cleaner: Cleaner | None


def open_log_tasks(
    files: Files,
    config: BrokerConfig,
    life: Lifetime,
    *,
    metadata: MetadataLoader,
    disks: Disks,
    hosting: Hosting,
) -> LogTasks:
    """Run each task for as long as the broker lives."""
    table, log_dirs, flusher = hosting.table, disks.log_dirs, disks.flusher
    maintenance = Maintenance(
        files,
        config,
        table=table,
        log_dirs=log_dirs,
        flusher=flusher,
        checkpointer=disks.checkpointer,
        on_disk_failure=disks.failed,
    )
    cleaner: Cleaner | None = None
    if config.log_cleaner_enable:
        cleaner = Cleaner(
            lambda: settings_of(config.static, metadata.image, config.node_id),
            table=table,
            log_dirs=log_dirs,
            flusher=flusher,
            checkpoint=partial(disks.checkpointer.write, high_watermark_of=table.high_watermark_of),
            room=disks.disk_space.room_to_compact,
            on_disk_failure=disks.failed,
        )
        hosting.leadership.on_lost.append(cleaner.abort_round)
        hosting.following.on_unfollowed.append(cleaner.abort_round)
    life.closing.callback(disks.remember, table.high_watermarks)
    life.spawn("maintenance", maintenance.run())
    life.spawn("disk space", disks.disk_space.run())
    life.spawn("log moves", hosting.log_moves.run())
    if cleaner is not None:
        life.spawn("cleaner", cleaner.run())
    return LogTasks(maintenance, cleaner)
