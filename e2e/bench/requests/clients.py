"""A real client: librdkafka, with idempotence, in batches of its own making. There is no bare server that could answer it.

python -m e2e.bench.requests.clients BOOTSTRAP PID RECORDS        prints a Measured of writing and one of reading, as JSON
"""

import subprocess
import sys
import time
from collections.abc import Callable

import msgspec

from e2e.bench.cpu import cpu_time
from e2e.bench.requests.load import Measured
from e2e.bench.requests.report import Row
from e2e.bench.requests.spec import Case, Kind
from e2e.harness import topics
from e2e.harness.results import ROOT

RECORDS = 200_000
RECORD_BYTES = 1024
PATIENCE_S = 120.0
_VALUE = bytes(range(256)) * (RECORD_BYTES // 256)


def client_rows(bootstrap: str, pid: int, *, rounds: int) -> list[Row]:
    """What the broker's process spends on a client's records, written and read."""
    write = Case("librdkafka writes 1 KiB, idempotent", Kind.PRODUCE, RECORD_BYTES, 0, 0, 0)
    read = Case("librdkafka reads 1 KiB", Kind.FETCH, RECORD_BYTES, 0, 0, 0)
    rows = [Row(write, [], []), Row(read, [], [])]
    command = [
        sys.executable,
        "-m",
        "e2e.bench.requests.clients",
        bootstrap,
        str(pid),
        str(RECORDS),
    ]
    for number in range(rounds):
        done = subprocess.run(
            [*command, f"client-{number}"],
            check=True,
            stdout=subprocess.PIPE,
            cwd=ROOT,
            timeout=4 * PATIENCE_S,
        )
        for row, measured in zip(
            rows, msgspec.json.decode(done.stdout, type=list[Measured]), strict=True
        ):
            row.broker.append(measured)
    return rows


def write(bootstrap: str, topic: str, records: int) -> None:
    """Write `records`; all are acknowledged by all replicas."""
    topics.write(
        bootstrap,
        topic,
        ((None, _VALUE, 0) for _ in range(records)),
        PATIENCE_S,
        enable_idempotence=True,
        batch_size=64 * 1024,
        linger_ms=5,
        queue_buffering_max_messages=100_000,
    )


def read(bootstrap: str, topic: str, records: int) -> None:
    """Read the topic from its beginning until all are there."""
    offsets = [record.offset for record in topics.read(bootstrap, topic, PATIENCE_S)]
    assert offsets == list(range(records))


def measured(call: Callable[[], None], pid: int, records: int) -> Measured:
    """What a call costs the process `pid`. The client decides about requests: the records stand for them."""
    before, began = cpu_time(pid), time.perf_counter()
    call()
    wall_s = time.perf_counter() - began
    used = cpu_time(pid).since(before)
    return Measured(records, records, used.total_ns / 1e9, used.user_s, used.system_s, wall_s)


def main(bootstrap: str, pid: str, records: str, topic: str) -> None:
    count = int(records)
    write(bootstrap, topic, 100)  # the topic is made, the connection is there
    written = measured(lambda: write(bootstrap, topic, count), int(pid), count)
    fetched = measured(lambda: read(bootstrap, topic, count + 100), int(pid), count + 100)
    print(msgspec.json.encode([written, fetched]).decode())


if __name__ == "__main__":
    main(*sys.argv[1:])
