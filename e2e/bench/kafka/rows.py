"""The rows of the table: what is sent, what is measured of it, and the goal for it.

Values are half random bytes and half zeros, so that lz4 halves them. Batches of 64 KiB are that before compression, as librdkafka
counts them.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum

from e2e.bench.figures import Bound, Goal, Metric

BATCH_BYTES = 64 * 1024


class Kind(StrEnum):
    """What the client does in a row (client.c)."""

    WRITE = "write"
    READ = "read"
    PACE = "pace"
    TRANSACT = "transact"
    FLUSH = "flush"


@dataclass(frozen=True)
class Load:
    """A row of load. records, seconds: per round and side. rate: records per second, of all connections together. batch_records,
    linger_ms: of the producers that have a rate. transaction_records: after so many of them the producer
    commits, or waits for their acknowledgements. replicas, config: the topic's.
    """

    name: str
    kind: Kind
    record_bytes: int
    metrics: tuple[Metric, ...]
    codec: str = "none"
    partitions: int = 12
    records: int = 0
    rate: int = 0
    seconds: int = 0
    connections: int = 1
    batch_records: int = 1
    linger_ms: int = 0
    transaction_records: int = 0
    replicas: int = 1
    config: Mapping[str, str] = field(default_factory=dict)

    @property
    def title(self) -> str:
        size = f"{self.record_bytes // 1024} KiB" if self.record_bytes >= 1024 else "100 B"
        if self.kind is Kind.PACE:
            clients = "" if self.connections == 1 else f", {self.connections} connections"
            how = "one {} record per request" if self.batch_records == 1 else "{} records"
            return f"{how.format(size)}, {self.rate:,}/s{clients}"
        if self.transaction_records:
            how = "a transaction" if self.kind is Kind.TRANSACT else "a flush, no transactions"
            partitions = "" if self.partitions == 1 else f", {self.partitions} partitions"
            records = "record" if self.transaction_records == 1 else "records"
            return f"{self.transaction_records:,} {records} of {size} {how}{partitions}"
        return f"{self.kind} {size}, {self.codec}, {self.partitions:,} partitions"

    @property
    def smaller(self) -> "Load":
        """For a trial of the bench itself: its figures say nothing."""
        return replace(
            self,
            records=self.records // 50,
            seconds=min(self.seconds, 1),
            connections=min(self.connections, 50),
        )

    def arguments(self) -> dict[str, str | int]:
        """For the client."""
        given: dict[str, str | int] = {
            "partitions": self.partitions,
            "record_bytes": self.record_bytes,
            "codec": self.codec,
        }
        if self.kind is Kind.PACE:
            return given | {
                "rate": self.rate,
                "seconds": self.seconds,
                "connections": self.connections,
                "batch_records": self.batch_records,
                "linger_ms": self.linger_ms,
            }
        if self.transaction_records:
            given["transaction_records"] = self.transaction_records
        return given | {"records": self.records}


PER_RECORD = Metric("cpu_us_per_record", "CPU, us per record", Goal(Bound.RATIO_MAX, 1.0))
PER_REQUEST = Metric("cpu_us_per_request", "CPU, us per request", Goal(Bound.RATIO_MAX, 0.7))
THROUGHPUT = Metric("records_per_s", "records per second", Goal(Bound.RATIO_MIN, 1.0))
FULL = Metric("records_per_request", "records per request")
BATCHED = (PER_RECORD, THROUGHPUT, FULL)
SPREAD = (replace(PER_RECORD, goal=None), THROUGHPUT, FULL)
"""Of rows whose batches are what a thousand partitions leave of them."""
PACED = (
    PER_REQUEST,
    Metric("p50_us", "p50, us"),
    Metric("p99_us", "p99, us", Goal(Bound.RATIO_MAX, 1.0)),
    Metric("p999_us", "p99.9, us"),
)
COMMITTED = (
    replace(PER_RECORD, goal=Goal(Bound.RATIO_MAX, 0.8)),
    THROUGHPUT,
    Metric("p50_us", "commit p50, us"),
    Metric("p99_us", "commit p99, us", Goal(Bound.RATIO_MAX, 1.0)),
)
FLUSHED = (PER_RECORD, THROUGHPUT)
"""Of the rows to compare with: the same records in the same batches, and nothing is committed."""

SMALL_RECORDS, BIG_RECORDS = 4_000_000, 600_000
PARTITIONS = 1000
SMALL_INDEXES = {"segment.index.bytes": str(64 * 1024)}
"""Of the topics with 1,000 partitions, on both sides. Kafka maps each index at its full size, 10 MiB by default, into memory: a kernel that reads
files ahead in large pages (seen on 6.18, ext4) then clears memory for whole holes at every first touch, and that is all one would measure."""
LOADS = (
    *(
        Load(f"{kind}-{name}-{codec}", kind, size, BATCHED, codec=codec, records=records)
        for kind in (Kind.WRITE, Kind.READ)
        for name, size, records in (
            ("100B", 100, SMALL_RECORDS),
            ("1KiB", 1024, BIG_RECORDS),
        )
        for codec in ("none", "lz4")
    ),
    Load("single-1000", Kind.PACE, 1024, PACED, partitions=1, rate=1000, seconds=20),
    Load("single-5000", Kind.PACE, 1024, PACED, partitions=1, rate=5000, seconds=20),
    Load(
        "partitions",
        Kind.WRITE,
        100,
        SPREAD,
        partitions=PARTITIONS,
        records=4_000_000,
        config=SMALL_INDEXES,
    ),
    *(
        Load(
            f"transactions-{size}",
            Kind.TRANSACT,
            100,
            COMMITTED,
            partitions=1,
            records=records,
            transaction_records=size,
        )
        for size, records in ((1, 600), (100, 30_000), (1_000, 200_000), (10_000, 500_000))
    ),
    *(
        Load(
            f"transactions-{size}-flushed",
            Kind.FLUSH,
            100,
            FLUSHED,
            partitions=1,
            records=records,
            transaction_records=size,
        )
        for size, records in ((1, 600), (1_000, 200_000))
    ),
    Load("connections", Kind.PACE, 1024, PACED, rate=1000, seconds=20, connections=500),
)


@dataclass(frozen=True)
class Life:
    """A row that needs brokers of its own: their memory, their starts."""

    name: str
    title: str
    metrics: tuple[Metric, ...]


MIB = "resident memory, MiB"
SECONDS = "seconds to the first record"
IDLE = Life("memory-idle", "idle", (Metric("mib", MIB, Goal(Bound.OURS_MAX, 80)),))
FILLED = Life(
    "memory-partitions", "with 1,000 partitions", (Metric("mib", MIB, Goal(Bound.OURS_MAX, 150)),)
)
CHURNED = Life("memory-churn", "after churn", (Metric("mib", MIB),))
COLD = Life("start-cold", "start with one topic", (Metric("s", SECONDS),))
CLEAN = Life(
    "start-partitions",
    "start with 1,000 partitions",
    (Metric("s", SECONDS, Goal(Bound.OURS_MAX, 2)),),
)
KILLED = Life(
    "start-killed", "start after SIGKILL", (Metric("s", SECONDS, Goal(Bound.OURS_MAX, 3)),)
)
LIVES = (IDLE, FILLED, COLD, CLEAN, KILLED, CHURNED)

ROWS: tuple[Load | Life, ...] = (*LOADS, *LIVES)
