"""The rows of the table: what is done to three nodes, what is measured of it, and the goal for it.

Processor time is that of all brokers together. Kafka's controllers are in its brokers, ours in etcd's members: `with etcd` adds these.
"""

from dataclasses import replace

from e2e.bench.figures import Bound, Goal, Metric
from e2e.bench.kafka.rows import FULL, PACED, PER_RECORD, THROUGHPUT, Kind, Life, Load

REPLICAS = 3
PARTITIONS = 12
RECORD_GOAL, REQUEST_GOAL = Goal(Bound.RATIO_MAX, 0.8), Goal(Bound.RATIO_MAX, 0.6)
P99_GOAL = Goal(Bound.RATIO_MAX, 1.0, ours_max=10_000)
BATCHED = (
    replace(PER_RECORD, goal=RECORD_GOAL),
    Metric("whole_cpu_us_per_record", "the same with etcd", RECORD_GOAL),
    replace(THROUGHPUT, goal=None),
    FULL,
)
PER_REQUEST = (
    Metric("cpu_us_per_request", "CPU, us per request", REQUEST_GOAL),
    Metric("whole_cpu_us_per_request", "the same with etcd", REQUEST_GOAL),
)
P50, _, P999 = PACED[1:]
P99 = Metric("p99_us", "p99, us", P99_GOAL)
LATENCIES = (P50, P99, P999)
SINGLE = Load(
    "one-record-500",
    Kind.PACE,
    1024,
    (*PER_REQUEST, P50, replace(P99, goal=None), P999),
    partitions=1,
    rate=500,
    seconds=5,
    replicas=REPLICAS,
)


def latency(rate: int) -> Load:
    """Records at a fixed rate, in the batches that a producer makes of what comes in a millisecond."""
    return replace(
        SINGLE,
        name=f"latency-{rate}",
        metrics=(replace(PER_RECORD, goal=None), *LATENCIES, FULL),
        partitions=PARTITIONS,
        rate=rate,
        batch_records=10_000,
        linger_ms=1,
    )


def write(name: str, record_bytes: int, records: int) -> Load:
    return Load(
        f"write-{name}",
        Kind.WRITE,
        record_bytes,
        BATCHED,
        partitions=PARTITIONS,
        records=records,
        replicas=REPLICAS,
    )


LOADS = (
    write("100B", 100, 1_200_000),
    write("1KiB", 1024, 200_000),
    SINGLE,
    latency(2_000),
    latency(20_000),
)
MOVED = 4_000
MOVE_GOAL = Goal(Bound.OURS_MAX, 2)
LEADERS = Life(
    "leaders",
    f"{MOVED:,} leaders move",
    (
        Metric("leave_s", "as their broker leaves, s", MOVE_GOAL),
        Metric("exit_s", "until it has ended, s"),
        Metric("return_s", "in sync again after its start, s"),
        Metric("elect_s", "back by ElectLeaders, s", MOVE_GOAL),
    ),
)
MANY = 10_000
PARTITIONED = Life(
    "many",
    f"{MANY:,} partitions, 3 replicas",
    (
        Metric("create_s", "created and in sync, s"),
        Metric("rss_mib", "resident memory, the largest, MiB"),
        Metric("whole_rss_mib", "of all, with etcd, MiB"),
        Metric("idle_ms_per_s", "idle, CPU of all, ms per s"),
        Metric("whole_idle_ms_per_s", "the same with etcd"),
        Metric("led_s", "controller killed: all led again, s"),
        Metric("served_s", "controller killed: a topic is made, s"),
    ),
)
LAG_GOAL = Goal(Bound.OURS_MAX, 5)
LAG_KEYS, LAG_PLACES = ("create", "idle", "failover"), ("p99", "max")
LAG_PHASES = ("created", "idle", "after the controller's death")
LAG = Life(
    "lag",
    f"{MANY:,} partitions: the loop is late",
    tuple(
        Metric(f"{key}_{place}", f"{phase}, {place}, ms", LAG_GOAL)
        for key, phase in zip(LAG_KEYS, LAG_PHASES, strict=True)
        for place in LAG_PLACES
    ),
)
LIVES = (LEADERS, PARTITIONED, LAG)
ROWS: tuple[Load | Life, ...] = (*LOADS, *LIVES)
