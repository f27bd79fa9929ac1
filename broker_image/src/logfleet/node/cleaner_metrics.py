"""What Prometheus sees of the cleaner: what Kafka's LogCleaner and LogCleanerManager export, and totals to make rates of."""

import time
from collections.abc import Iterable, Iterator

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from logfleet.node.cleaner import Cleaner
from logfleet.node.log_dir import LogDir


class CleanerMetrics(Collector):
    """Read when a scrape comes."""

    def __init__(self, cleaner: Cleaner, log_dirs: Iterable[LogDir]) -> None:
        self._cleaner = cleaner
        self._log_dirs = log_dirs

    def collect(self) -> Iterator[Metric]:
        stats = self._cleaner.stats
        for name, text, total in (
            ("cleanings", "Rounds of compaction, each over one log", stats.cleanings),
            (
                "failures",
                "Rounds that ended early, not counting those of logs that went",
                stats.failures,
            ),
            ("read_bytes", "Bytes of log that were compacted", stats.bytes_read),
            ("kept_bytes", "Bytes that were left of them", stats.bytes_kept),
            ("read_records", "Records that were compacted", stats.records_read),
            ("kept_records", "Records that were left of them", stats.records_kept),
            ("keyless_records", "Records dropped because they had no key", stats.keyless_records),
            ("cpu_seconds", "Processor time of the child processes", stats.cpu_s),
        ):
            yield CounterMetricFamily(f"logfleet_log_cleaner_{name}", text, value=total)
        for name, text, value in (
            (
                "max_dirty_ratio",
                "Largest share of bytes not compacted among the logs that may be",
                stats.dirty_ratio_max,
            ),
            (
                "max_compaction_delay_seconds",
                "How long the oldest record has waited beyond max.compaction.lag.ms",
                stats.overdue_ms_max / 1000,
            ),
            ("last_round_seconds", "Duration of the last round", stats.last_duration_s),
            (
                "last_map_utilization_ratio",
                "How full the map of keys was in the last round",
                stats.last_map_utilization,
            ),
            (
                "seconds_since_last_look",
                "Time since logs were last looked at",
                time.monotonic() - stats.last_run,
            ),
        ):
            yield GaugeMetricFamily(f"logfleet_log_cleaner_{name}", text, value=value)
        yield from self._uncleanable()

    def _uncleanable(self) -> Iterator[Metric]:
        partitions = GaugeMetricFamily(
            "logfleet_log_cleaner_uncleanable_partitions",
            "Logs that cannot be compacted; the broker's log says why",
            labels=["directory"],
        )
        size = GaugeMetricFamily(
            "logfleet_log_cleaner_uncleanable_bytes", "Size of these logs", labels=["directory"]
        )
        for log_dir in self._log_dirs:
            found = [log for log in log_dir.logs.values() if log in self._cleaner.uncleanable]
            partitions.add_metric([log_dir.path], len(found))
            size.add_metric([log_dir.path], sum(log.size for log in found))
        yield from (partitions, size)
