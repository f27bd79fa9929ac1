"""What both connectors are made to do, and the figures of it."""

from dataclasses import dataclass

SIDES = ("logfleet", "kafka")
"""Formats of Spark: our data source, and Spark's own connector for Kafka."""
PARTITIONS = 8


@dataclass(frozen=True)
class Metric:
    """A figure. least, most: what the ratio ours / theirs is aimed to be; neither: told only."""

    key: str
    title: str
    least: float | None = None
    most: float | None = None

    def is_met(self, ratio: float) -> bool | None:
        """None without an aim."""
        if self.least is not None:
            return ratio >= self.least
        return None if self.most is None else ratio <= self.most

    @property
    def aim(self) -> str:
        if self.least is not None:
            return f">= {self.least:g}"
        return "" if self.most is None else f"<= {self.most:g}"


CPU = Metric("spark_cpu_s", "CPU s of Spark", most=1.0)
BROKER_CPU = Metric("broker_cpu_s", "CPU s of the broker")
RSS = Metric("rss_mib", "peak RSS, MiB")


@dataclass(frozen=True)
class Row:
    """A piece of work: kind is a command of `e2e.perf_spark.side`. records: in all, of `size` bytes."""

    kind: str
    codec: str
    size: int
    records: int
    metric: Metric

    @property
    def name(self) -> str:
        return f"{self.kind}-{self.codec}-{self.size}"

    @property
    def topic(self) -> str:
        """What it reads."""
        return f"full-{self.codec}-{self.size}"

    @property
    def title(self) -> str:
        return f"{self.kind.replace('_', ' ')}, {self.codec}, {self.size} B"

    @property
    def metrics(self) -> tuple[Metric, ...]:
        return (self.metric, CPU, BROKER_CPU, RSS)


KINDS = {
    "batch_read": Metric("rows_per_s", "rows/s", least=1.5),
    "available_now": Metric("rows_per_s", "rows/s", least=1.0),
    "small_batches": Metric("trigger_ms", "ms per micro-batch", most=1.0),
    "write": Metric("rows_per_s", "rows/s", least=1.0),
}
RECORDS = {100: 2_000_000, 1024: 300_000}
BURSTS, BURST_RECORDS = 30, 800
"""Micro-batches of a stream of small ones, and the records of each."""


def rows(*, quick: bool = False) -> list[Row]:
    found = []
    for codec in ("none", "lz4"):
        for size, records in RECORDS.items():
            for kind, metric in KINDS.items():
                count = records // 10 if quick else records
                if kind == "small_batches":
                    count = (3 if quick else BURSTS) * BURST_RECORDS
                found.append(Row(kind, codec, size, count, metric))
    return found
