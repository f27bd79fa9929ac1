"""Rounds of work: both connectors in every row, in turns, on one broker."""

import json
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Self

from confluent_kafka import Producer
from logfleet.io.tether import tethered

from e2e.bench.cpu import cpu_time
from e2e.bench.report import short
from e2e.bench.spark.session import PeakRss, cpu_s
from e2e.bench.spark.work import BURST_RECORDS, FLOOR, PARTITIONS, SIDES, Row
from e2e.harness.processes import Broker
from e2e.load.numbers import create_topic, delete_topic

Values = dict[str, float]
Rounds = dict[str, list[Values]]
"""The values of each round, by side."""
END_S = 60.0
FLUSH_S = 120.0


class SideProcess:
    """`e2e.bench.spark.side` as leader of a session of its own. Use as a context manager; its log is `scratch/SOURCE.log`."""

    def __init__(self, source: str, broker: Broker, scratch: Path) -> None:
        self.source = source
        folder = scratch / source
        folder.mkdir()
        command = [sys.executable, "-m", "e2e.bench.spark.side"]
        command += [source, broker.bootstrap, str(folder)]
        with (scratch / f"{source}.log").open("wb") as log:
            self._process = subprocess.Popen(
                tethered(command),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                start_new_session=True,
            )
        self._log = scratch / f"{source}.log"
        self._answer()

    @property
    def session(self) -> int:
        return self._process.pid

    def do(self, command: str, **arguments: Any) -> Values:
        """Raises RuntimeError with the end of its log if it failed."""
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps({"do": command, **arguments}) + "\n")
        self._process.stdin.flush()
        return self._answer()

    def _answer(self) -> Values:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            text = "\n".join(self._log.read_text(errors="replace").splitlines()[-40:])
            raise RuntimeError(f"the Spark of {self.source} ended:\n{text}")
        answer: Values = json.loads(line)
        return answer

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        try:
            self._process.wait(END_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()


def value_of(number: int, size: int) -> bytes:
    """Text of `size` less 8 bytes that compresses to about a half, as records of the trade do."""
    digits = (number * 2654435761 % 2**32).to_bytes(4, "big").hex()
    text = (
        f'{{"id":{number},"from":"EWR","to":"{digits[:3]}","delay":{number % 90},"at":"{digits}"}}'
    )
    words = text + "".join(
        f',"{digits[n % 8]}{n}":{number * (n + 7) % 99991}' for n in range(size // 8)
    )
    return words.encode()[: size - 8].ljust(size - 8)


def fill(broker: Broker, topic: str, row: Row, first: int, count: int) -> None:
    """Records `first` to `first + count`, evenly over the partitions, as librdkafka batches them."""
    producer = Producer(
        {
            "bootstrap.servers": broker.bootstrap,
            "compression.type": row.codec,
            "linger.ms": 5,
            "batch.size": 65_536,
            "queue.buffering.max.messages": 500_000,
        }
    )
    for number in range(first, first + count):
        value = value_of(number, row.size)
        while True:
            try:
                producer.produce(topic, value, b"%08d" % number, number % PARTITIONS)
                break
            except BufferError:
                producer.poll(0.1)
    left = producer.flush(FLUSH_S)
    assert left == 0, f"{left} records were not written in {FLUSH_S:.0f} s"


def measure(row: Row, side: SideProcess, broker: Broker, name: str) -> Values:
    """The figures of a row for one side. name: of a topic that nothing was written to."""
    arguments = {
        "records": row.records,
        "codec": row.codec,
        "size": row.size,
        "columns": row.columns,
    }
    fresh = row.kind in {"write", "small_batches"}
    topic = name if fresh else row.topic
    if fresh:
        create_topic(broker.bootstrap, topic, PARTITIONS)
    if row.kind == "small_batches":
        side.do("start", topic=topic)
    broker_ns, spark_s = cpu_time(broker.pid).total_ns, cpu_s(side.session)
    with PeakRss(side.session) as peak:
        if row.kind == "small_batches":
            for burst in range(row.records // BURST_RECORDS):
                fill(broker, topic, row, burst * BURST_RECORDS, BURST_RECORDS)
                side.do("drain")
            found = side.do("stop", **arguments)
        else:
            found = side.do(row.kind, topic=topic, **arguments)
        found["spark_cpu_s"] = cpu_s(side.session) - spark_s
    found["rss_mib"] = peak.mib
    found["broker_cpu_s"] = (cpu_time(broker.pid).total_ns - broker_ns) / 1e9
    if fresh:
        delete_topic(broker.bootstrap, topic)
    return found


def run(
    rows: Sequence[Row],
    broker: Broker,
    sides: Sequence[SideProcess],
    *,
    rounds: int,
    until: float,
) -> dict[str, Rounds]:
    """By row. The first round warms up and is thrown away. No round begins after `until` (monotonic seconds) but the first two."""
    for row in {
        row.topic: row for row in rows if row.kind not in {"write", "small_batches"}
    }.values():
        create_topic(broker.bootstrap, row.topic, PARTITIONS)
        fill(broker, row.topic, row, 0, row.records)
    found: dict[str, Rounds] = {row.name: {side: [] for side in (*SIDES, FLOOR)} for row in rows}
    for number in range(1 + rounds):
        if number > 1 and time.monotonic() > until:
            print(f"the time is up after {number - 1} of {rounds} rounds", file=sys.stderr)
            break
        for place, row in enumerate(rows):
            taking = [side for side in sides if side.source != FLOOR or row.floor]
            turn = (number + place) % len(taking)
            for side in taking[turn:] + taking[:turn]:
                values = measure(row, side, broker, f"{row.name}-{number}-{side.source}")
                metric = row.metrics[0]
                figure = f"{short(values[metric.key])} {metric.title}"
                print(f"  {row.title}, {side.source}: {figure}", file=sys.stderr, flush=True)
                if number:
                    found[row.name][side.source].append(values)
        print(
            f"{'round' if number else 'warm-up round'} {number + 1} of {1 + rounds}",
            file=sys.stderr,
        )
    return found
