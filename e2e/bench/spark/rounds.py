"""Rounds of work: both connectors in every row, in turns, on one broker."""

import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Self

from logfleet.io.tether import tethered

from e2e.bench.cpu import PeakRss, cpu_time, session_cpu_s
from e2e.bench.figures import Rounds, Values
from e2e.bench.rounds import run_rounds
from e2e.bench.spark.work import BURST_RECORDS, FLOOR, PARTITIONS, SIDES, Row
from e2e.harness.processes import Broker
from e2e.harness.topics import create_topic, delete_topic, write

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
    records = (
        (b"%08d" % number, value_of(number, row.size), number % PARTITIONS)
        for number in range(first, first + count)
    )
    batches = {"linger_ms": 5, "batch_size": 65_536, "queue_buffering_max_messages": 500_000}
    write(broker.bootstrap, topic, records, FLUSH_S, compression_type=row.codec, **batches)


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
    broker_ns, spark_s = cpu_time(broker.pid).total_ns, session_cpu_s(side.session)
    with PeakRss(side.session) as peak:
        if row.kind == "small_batches":
            for burst in range(row.records // BURST_RECORDS):
                fill(broker, topic, row, burst * BURST_RECORDS, BURST_RECORDS)
                side.do("drain")
            found = side.do("stop", **arguments)
        else:
            found = side.do(row.kind, topic=topic, **arguments)
        found["spark_cpu_s"] = session_cpu_s(side.session) - spark_s
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
    until_s: float,
) -> dict[str, Rounds]:
    """By row. The first round warms up and is thrown away. No round begins after `until_s` (monotonic) but the first two."""
    read = {row.topic: row for row in rows if row.kind not in {"write", "small_batches"}}
    for row in read.values():
        create_topic(broker.bootstrap, row.topic, PARTITIONS)
        fill(broker, row.topic, row, 0, row.records)
    by_source = {side.source: side for side in sides}

    def taking(row: Row) -> list[str]:
        return [source for source in by_source if source != FLOOR or row.floor]

    def one(row: Row, source: str, number: int) -> Values:
        return measure(row, by_source[source], broker, f"{row.name}-{number}-{source}")

    every = (*SIDES, FLOOR)
    return run_rounds(rows, every, one, rounds=rounds, warmups=1, taking=taking, until_s=until_s)
