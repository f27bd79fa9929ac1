"""What both connectors are made to do, and the figures of it."""

import dataclasses
from dataclasses import dataclass

from e2e.bench.figures import Bound, Goal, Metric

SIDES = ("logfleet", "kafka")
"""Formats of Spark: our data source, and Spark's own connector for Kafka."""
FLOOR = "floor"
"""A source and a sink in Python that do nothing, see `e2e.bench.spark.floor`."""
ALL_COLUMNS = "key,value,topic,partition,offset,timestamp,timestampType"
PARTITIONS = 8


CPU = "spark_cpu_s"
BROKER_CPU = Metric("broker_cpu_s", "CPU s of the broker")
RSS = Metric("rss_mib", "peak RSS, MiB")
OWN = Metric("own", "own CPU beyond the floor / Spark's own", Goal(Bound.RATIO_MAX, 0.3))
"""CPU of ours beyond the floor, in multiples of that of Spark's own connector."""


@dataclass(frozen=True)
class Row:
    """A piece of work: kind is a command of `e2e.bench.spark.side`. records: in all, of `size` bytes. columns: what is read.

    floor: whether it is measured with a source or sink that does nothing too.
    """

    kind: str
    codec: str
    size: int
    records: int
    metrics: tuple[Metric, ...]
    columns: str = ALL_COLUMNS
    floor: bool = False

    @property
    def name(self) -> str:
        columns = "" if self.columns == ALL_COLUMNS else f"-{self.columns}"
        return f"{self.kind}-{self.codec}-{self.size}{columns}"

    @property
    def topic(self) -> str:
        """What it reads."""
        return f"full-{self.codec}-{self.size}-{self.records}"

    @property
    def title(self) -> str:
        if self.kind == FEW:
            return f"availableNow of {self.records} records"
        columns = "" if self.columns == ALL_COLUMNS else f", only {self.columns}"
        return f"{self.kind.replace('_', ' ')}, {self.codec}, {self.size} B{columns}"


FEW = "few"
FEW_RECORDS = 80
RECORDS = {100: 2_000_000, 1024: 300_000}
AVAILABLE_NOW_RECORDS = 300_000
BURSTS, BURST_RECORDS = 30, 800
"""Micro-batches of a stream of small ones, and the records of each."""


def _rows_per_s(least: float) -> Metric:
    return Metric("rows_per_s", "rows/s", Goal(Bound.RATIO_MIN, least))


_TRIGGER = Metric("trigger_ms", "ms per micro-batch", Goal(Bound.RATIO_MAX, 1.0))
AIMS: dict[str, dict[int, tuple[Metric, float | None]]] = {
    "batch_read": {100: (_rows_per_s(1.5), 1.1), 1024: (_rows_per_s(1.5), 1.6)},
    "available_now": {100: (_rows_per_s(1.0), 1.3), 1024: (_rows_per_s(1.0), 1.3)},
    "small_batches": {100: (_TRIGGER, None), 1024: (_TRIGGER, None)},
    "write": {100: (_rows_per_s(1.0), 1.1), 1024: (_rows_per_s(0.8), 2.0)},
}
"""By kind and size: the figure of speed, and how much more processor time than Spark's own connector is aimed at."""


def metrics(kind: str, size: int) -> tuple[Metric, ...]:
    speed, cpu_most = AIMS[kind][size]
    goal = None if cpu_most is None else Goal(Bound.RATIO_MAX, cpu_most)
    return (speed, Metric(CPU, "CPU s of Spark", goal), BROKER_CPU, RSS)


def rows(*, quick: bool = False) -> list[Row]:
    part = 10 if quick else 1
    cpu_of_start = Metric(CPU, "CPU s of Spark", Goal(Bound.OURS_MAX, 1.5))
    found = [Row(FEW, "none", 100, FEW_RECORDS, (cpu_of_start, BROKER_CPU, RSS), floor=True)]
    for codec in ("none", "lz4"):
        for size, records in RECORDS.items():
            plain = codec == "none"
            for kind in AIMS if plain else ("batch_read", "write"):
                count = records // part
                if kind == "available_now":
                    count = AVAILABLE_NOW_RECORDS // part
                if kind == "small_batches":
                    count = (3 if quick else BURSTS) * BURST_RECORDS
                floor = plain and kind != "small_batches"
                row = Row(kind, codec, size, count, metrics(kind, size), floor=floor)
                found.append(row)
                if kind == "batch_read" and plain:
                    found.append(dataclasses.replace(row, columns="value"))
    return found
