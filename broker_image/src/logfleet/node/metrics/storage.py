"""The disks of the log directories, and compaction."""

import time
from collections.abc import Iterator

from logfleet.log.compaction.cleaner import Cleaner
from logfleet.log.directories.disk_space import WARN_PERCENT, DiskSpace
from logfleet.log.directories.log_dirs import LogDirs
from logfleet.telemetry import table
from logfleet.telemetry.exposition import Family, Row, labelled, labels_text, single
from logfleet.telemetry.metric import Metric


def disks(disk_space: DiskSpace, log_dirs: LogDirs) -> Iterator[Family]:
    """Metrics of the disks, by the last check of each."""
    rooms = [((path,), room) for path, room in disk_space.rooms.items()]
    yield labelled(table.DISK_BYTES, [(path, room.total_bytes) for path, room in rooms])
    yield labelled(
        table.DISK_FREE, [(path, room.free_bytes + room.reserve_bytes) for path, room in rooms]
    )
    yield labelled(table.DISK_FULL, [(path, path[0] in disk_space.full) for path, _ in rooms])
    yield labelled(
        table.DISK_USED_OVER,
        [
            ((*path, percent), 100 * room.used_ratio >= percent)
            for path, room in rooms
            for percent in WARN_PERCENT
        ],
    )
    yield single(table.OFFLINE_LOG_DIRS, len(log_dirs.failed))


def compaction(cleaner: Cleaner | None, log_dirs: LogDirs) -> Iterator[Family]:
    """The metrics of Kafka's LogCleaner and LogCleanerManager, and totals for rates."""
    if cleaner is None:
        return
    stats = cleaner.stats
    yield single(table.CLEANINGS, stats.cleanings)
    yield single(table.CLEANER_FAILURES, stats.failures)
    yield single(table.CLEANER_READ_BYTES, stats.bytes_read)
    yield single(table.CLEANER_KEPT_BYTES, stats.bytes_kept)
    yield single(table.CLEANER_READ_RECORDS, stats.records_read)
    yield single(table.CLEANER_KEPT_RECORDS, stats.records_kept)
    yield single(table.CLEANER_KEYLESS_RECORDS, stats.keyless_records)
    yield single(table.CLEANER_CPU, stats.cpu_s)
    yield single(table.CLEANER_DIRTY_RATIO, stats.dirty_ratio_max)
    yield single(table.CLEANER_DELAY, stats.overdue_ms_max / 1000)
    yield single(table.CLEANER_ROUND, stats.last_duration_s)
    yield single(table.CLEANER_MAP, stats.last_map_utilization)
    yield single(table.CLEANER_LOOKED, time.monotonic() - stats.last_run)
    for metric in (table.CLEANER_UNCLEANABLE, table.CLEANER_UNCLEANABLE_BYTES):
        yield Family(metric, _uncleanable(metric, cleaner, log_dirs))


def _uncleanable(metric: Metric, cleaner: Cleaner, log_dirs: LogDirs) -> Iterator[Row]:
    for log_dir in log_dirs:
        value = 0
        for log in list(log_dir.logs.values()):
            if log in cleaner.uncleanable:
                value += 1 if metric is table.CLEANER_UNCLEANABLE else log.size
            yield None
        yield labels_text(metric.labels, [log_dir.path]), value
