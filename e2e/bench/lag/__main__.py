"""`make bench-lag`: how late the loop of one broker is under mixed load; also while a log is compacted, syncs or writes stall, and logs expire.

At the end: what a request costs after one slow write (`e2e.bench.lag.one_slow_write`). Lateness counts as the broker's own where its thread did not wait for a processor: others on the machine do not show in it, but
for what they do to caches and disks. The figures and the slowest steps go to e2e/results/lag.json.
"""

import argparse
import os
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path

import msgspec
from confluent_kafka.admin import (  # type: ignore[attr-defined]  # as its documentation has it
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
)
from logfleet.records.record import Record, build_batch
from logfleet.wire.messages import ProduceRequest

from e2e.bench.conditions import bench_rig, conditions, print_conditions
from e2e.bench.lag.one_slow_write import SLOW_MS, SlowWriteCost, slow_write_cost
from e2e.bench.lag.probe import LIMIT_S, Figures
from e2e.bench.lag.watched_broker import PATH, WatchedBroker
from e2e.harness.preload import compiled
from e2e.harness.results import RESULTS, source_key, store
from e2e.harness.topics import create_topic
from e2e.harness.wire_connection import WireConnection
from e2e.load.mixed import TOPIC

SOURCES = (
    "broker_image/src",
    "broker_image/requirements.lock",
    "e2e/bench/lag",
    "e2e/load/mixed.py",
)
STORE = RESULTS / "lag.json"
STALL = Path(__file__).with_name("stall.c")
COMPACTED, EXPIRING = "compacted", "expiring"
PARTITIONS = 1000
BATCH_RECORDS = 800
IN_FLIGHT = 4
OLD_MS = 30 * 86_400_000
PATIENCE_S = 300.0
MIB = 1 << 20
PHASES = (
    "mixed load",
    "compaction",
    "syncs take 200 ms",
    "1,000 partitions expire",
    "writes take 200 ms",
    "writes take 2 s",
)
CONFIG = {
    "log.retention.check.interval.ms": "1000",
    "log.cleaner.backoff.ms": "1000",
    "logfleet.metrics.series.max": "10000",
    "offsets.topic.num.partitions": "8",
}


class Stalled(WatchedBroker):
    """One whose disk can be made slow. stall_file and stall_writes_file: see stall.c."""

    phases = PHASES

    def __init__(self, directory: Path, library: Path) -> None:
        super().__init__(directory, CONFIG)
        self.stall_file = directory / "stall"
        self.stall_writes_file = directory / "stall_writes"
        assert self.environment is not None
        self.environment = {
            **self.environment,
            "LD_PRELOAD": str(library),
            "LOGFLEET_STALL": str(self.stall_file),
            "LOGFLEET_STALL_WRITES": str(self.stall_writes_file),
        }


def until(ready: Callable[[], bool], what: str) -> None:
    """Return when `ready()`. Raises TimeoutError."""
    give_up_s = time.monotonic() + PATIENCE_S
    while not ready():
        if time.monotonic() > give_up_s:
            raise TimeoutError(what)
        time.sleep(0.2)


class Bench:
    """The phases, one after the other. seconds: of the phases that have no end of their own."""

    def __init__(self, broker: Stalled, seconds: float, compacted_mib: int) -> None:
        self._broker = broker
        self._seconds = seconds
        self._compacted_bytes = compacted_mib * MIB
        self._admin = AdminClient({"bootstrap.servers": broker.bootstrap, "log_level": 2})

    def prepare(self) -> None:
        """All topics, and the records that are to be compacted and to expire."""
        bootstrap = self._broker.bootstrap
        create_topic(bootstrap, TOPIC, 12)
        create_topic(bootstrap, EXPIRING, PARTITIONS, {"retention.ms": "-1"})
        segments = {"segment.bytes": str(16 * MIB), "retention.ms": "-1"}
        create_topic(bootstrap, COMPACTED, 1, segments)
        now_ms = time.time_ns() // 1_000_000
        old = bytes(build_batch([Record(None, b"old", now_ms - OLD_MS)]))
        batches = [
            bytes(
                build_batch(
                    [
                        Record(b"%d-%d" % (number, record), b"." * 1024, now_ms)
                        for record in range(BATCH_RECORDS)
                    ]
                )
            )
            for number in range(8)
        ]
        with WireConnection(self._broker.port, timeout_s=PATIENCE_S) as connection:
            rows = dict.fromkeys(range(PARTITIONS), old)
            _produced(connection, EXPIRING, rows)
            count = self._compacted_bytes // len(batches[0])
            for number in range(count):
                _produced(connection, COMPACTED, {0: batches[number % len(batches)]})

    def mixed(self) -> None:
        time.sleep(self._seconds)

    def compaction(self) -> None:
        self._alter(COMPACTED, {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0.01"})
        most = 0.7 * self._compacted_bytes
        until(
            lambda: self._broker.metric("logfleet_log_cleaner_read_bytes_total") >= most,
            "the log was not compacted",
        )

    def stall(self) -> None:
        self._broker.stall_file.touch()
        time.sleep(self._seconds)
        self._broker.stall_file.unlink()

    def slow_writes(self) -> None:
        self._stall_writes(200)

    def hung_writes(self) -> None:
        self._stall_writes(2_000)

    def _stall_writes(self, ms: int) -> None:
        """The loop waits for the first of them, and for no other: see logfleet.log.directories.disk."""
        self._broker.stall_writes_file.write_text(str(ms))
        time.sleep(self._seconds)
        self._broker.stall_writes_file.unlink()

    def expiry(self) -> None:
        self._alter(EXPIRING, {"retention.ms": "1000"})
        until(
            lambda: self._broker.metric(f'logfleet_partition_size_bytes{{topic="{EXPIRING}"') == 0,
            "the partitions did not expire",
        )
        time.sleep(min(self._seconds, 5))

    def _alter(self, name: str, config: Mapping[str, str]) -> None:
        entries = [
            ConfigEntry(key, value, incremental_operation=AlterConfigOpType.SET)
            for key, value in config.items()
        ]
        resource = ConfigResource(ConfigResource.Type.TOPIC, name, incremental_configs=entries)
        self._admin.incremental_alter_configs([resource])[resource].result(PATIENCE_S)


def _produced(connection: WireConnection, topic: str, batches: Mapping[int, bytes]) -> None:
    data = [
        ProduceRequest.PartitionProduceData(index=index, records=memoryview(batch))
        for index, batch in batches.items()
    ]
    rows = ProduceRequest.TopicProduceData(name=topic, partition_data=data)
    request = ProduceRequest(acks=-1, timeout_ms=30_000, topic_data=[rows])
    answer = connection.call(request, 9)
    for row in answer.responses[0].partition_responses:
        assert row.error_code == 0, f"{topic}-{row.index}: {row.error_code}"


def table(phases: list[Figures]) -> str:
    """For people: milliseconds."""
    columns = ("p50", "p99", "p99.9", "max")
    lines = [f"{'':26}{'lag':>8}{'':24}{'own':>8}{'':24}{'own > 5 ms':>12}"]
    lines.append(f"{'phase':26}" + "".join(f"{name:>8}" for name in columns * 2))
    for each in phases:
        values = [each.lag_ms[name] for name in columns] + [each.own_ms[name] for name in columns]
        figures = "".join(f"{value:8.1f}" for value in values)
        lines.append(f"{each.name:26}{figures}{each.over:8d} of {each.looks}")
    for each in phases:
        for step, count in each.steps.items():
            lines.append(f"  {each.name}: {count} x {step}")
    return "\n".join(lines)


def sentence(cost: SlowWriteCost) -> str:
    """For people."""
    return (
        f"Processor time per request of one record, after one write of {SLOW_MS} ms: "
        f"{cost.before_us} us before, {cost.held_up_us} in the second after it "
        f"({cost.held_up_ratio}x), {cost.after_us} from then on ({cost.after_ratio}x, aim 1.1x)"
    )


def main() -> int:
    parser = argparse.ArgumentParser(prog="make bench-lag", description=__doc__)
    parser.add_argument("--seconds", type=float, default=30.0)
    parser.add_argument("--size", type=int, default=1024, help="MiB of the log that is compacted")
    parser.add_argument("--no-store", action="store_true", help=f"leave {STORE.name} alone")
    options = parser.parse_args()
    found = conditions() | {"compacted_mib": options.size}
    with bench_rig("lag") as rig:
        library = compiled(STALL, rig.directory)
        broker = rig.own(Stalled(rig.directory / "broker", library))
        broker.start()
        bench = Bench(broker, options.seconds, options.size)
        bench.prepare()
        load = rig.program(
            "load",
            [sys.executable, "-m", "e2e.load.mixed", broker.bootstrap, str(broker.admin_port)],
            {**os.environ, "PYTHONPATH": PATH},
        )
        load.launch()
        until(
            lambda: broker.metric("logfleet_topic_messages_in_total") > 10_000, "the load is idle"
        )
        for phase in (
            bench.mixed,
            bench.compaction,
            bench.stall,
            bench.expiry,
            bench.slow_writes,
            bench.hung_writes,
        ):
            broker.next_phase()
            phase()
            print(f"{phase.__name__} done", file=sys.stderr, flush=True)
            assert load.running, load.tail()
        broker.next_phase()
        load.terminate()
        broker.terminate()
        phases = broker.seen()
        cost = slow_write_cost(rig, library)
    assert [each.name for each in phases] == list(PHASES), phases
    print_conditions(found)
    print(
        f"Lateness of the event loop in ms; own: without waiting for a processor; goal {LIMIT_S * 1000:.0f} ms"
    )
    print(table(phases))
    print(sentence(cost))
    if not options.no_store:
        figures = {each.name: msgspec.to_builtins(each) for each in phases}
        store(
            STORE,
            source_key(*SOURCES),
            {**found, "phases": figures, "one slow write": msgspec.to_builtins(cost)},
        )
    return 0


if __name__ == "__main__":
    sys.exit(main())
