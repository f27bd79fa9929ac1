"""What a broker's memory is and how fast it is there again: brokers of their own, one at a time, thrown away with their data."""

import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import msgspec

from e2e.bench.figures import Rounds
from e2e.bench.kafka.client import GIVE_UP_S, Acknowledged, Client
from e2e.bench.kafka.nodes import SIDES, Cluster, Node, started
from e2e.bench.kafka.rows import (
    CHURNED,
    CLEAN,
    COLD,
    FILLED,
    IDLE,
    KILLED,
    PARTITIONS,
    SMALL_INDEXES,
    Kind,
    Life,
)
from e2e.bench.rounds import rotated
from e2e.harness.processes import Rig
from e2e.harness.topics import NO_CONFIG, create_topic, delete_topic

WARM_UP_S = 5.0
"""After a start, before an idle broker's memory is read: what it loads in its first moments belongs to it."""
RECORD_BYTES = 1024
CHURN_PARTITIONS, CHURN_RECORDS, CHURN_CONNECTIONS = 10, 20_000, 20


class Lives:
    """size_gib: what is written before SIGKILL. minutes: of churn."""

    def __init__(self, rig: Rig, client: Client, *, size_gib: float, minutes: float) -> None:
        self._rig = rig
        self._client = client
        self._size_gib = size_gib
        self._minutes = minutes

    def run(self, lives: Collection[Life], rounds: int) -> dict[str, Rounds]:
        """By row. Churn has one round, of both brokers at the same time: it is only their memory that counts."""
        found: dict[str, Rounds] = {life.name: {side: [] for side in SIDES} for life in lives}

        def note(life: Life, side: str, value: float) -> None:
            if life.name in found:
                (metric,) = life.metrics
                found[life.name][side].append({metric.key: value})

        for number in range(rounds if set(lives) - {CHURNED} else 0):
            for side in rotated(list(SIDES), number):
                if set(lives) & {IDLE, COLD, FILLED, CLEAN}:
                    with self._fresh(side) as node:
                        self._calm_life(node, lambda life, value, at=side: note(life, at, value))  # type: ignore[misc]
                if KILLED in lives:
                    with self._fresh(side) as node:
                        note(KILLED, side, self._killed(node))
            print(f"round {number + 1} of {rounds} of starts", file=sys.stderr)
        if CHURNED in lives:
            for side, value in self._churned().items():
                note(CHURNED, side, value)
        return found

    @contextmanager
    def _fresh(self, side: str) -> Iterator[Node]:
        """Started on an empty directory; killed, and its data removed, with the block."""
        node = started(self._rig, side, "life")
        try:
            yield node
        finally:
            node.close()
            shutil.rmtree(node.directory)

    def _calm_life(self, node: Node, note: Callable[[Life, float], None]) -> None:
        time.sleep(WARM_UP_S)
        note(IDLE, mib(node))
        self._write(node, "one", 1, 1000)
        note(COLD, self._restarted(node, "one"))
        self._write(node, "many", PARTITIONS, 10 * PARTITIONS, SMALL_INDEXES)
        note(FILLED, mib(node))
        note(CLEAN, self._restarted(node, "many"))

    def _killed(self, node: Node) -> float:
        self._write(node, "big", 12, int(self._size_gib * 2**30) // RECORD_BYTES)
        node.kill()
        return self._start_to_first(node, "big")

    def _restarted(self, node: Node, topic: str) -> float:
        node.terminate()
        return self._start_to_first(node, topic)

    def _start_to_first(self, node: Node, topic: str) -> float:
        """Seconds from the program's start to the first record that is acknowledged to a client that tries every 10 ms."""
        command = self._client.command("first", Cluster(node.name, [node]), topic)
        with subprocess.Popen(command, stdout=subprocess.PIPE) as waiting:
            start_ns = time.monotonic_ns()
            node.launch()
            said, _ = waiting.communicate(timeout=GIVE_UP_S)
        node.wait_ready()
        return (msgspec.json.decode(said, type=Acknowledged).acknowledged_ns - start_ns) / 1e9

    def _write(
        self,
        node: Node,
        topic: str,
        partitions: int,
        records: int,
        config: Mapping[str, str] = NO_CONFIG,
    ) -> None:
        create_topic(node.bootstrap, topic, partitions, config)
        given = {"partitions": partitions, "records": records, "record_bytes": RECORD_BYTES}
        self._client.run(Kind.WRITE, Cluster(node.name, [node]), topic, given)

    def _churned(self) -> dict[str, float]:
        nodes = {side: started(self._rig, side, "churn") for side in SIDES}
        with ThreadPoolExecutor(len(nodes)) as threads:
            list(threads.map(self._churn, nodes.values()))
        memory = {side: mib(node) for side, node in nodes.items()}
        for node in nodes.values():
            node.close()
        return memory

    def _churn(self, node: Node) -> None:
        """Topics come and go, clients come and go, records are written and read."""
        end_s = time.monotonic() + self._minutes * 60
        cluster = Cluster(node.name, [node])
        number = 0
        while time.monotonic() < end_s:
            for codec in ("none", "lz4"):
                topic = f"churn-{number}"
                number += 1
                create_topic(node.bootstrap, topic, CHURN_PARTITIONS)
                given: dict[str, str | int] = {
                    "partitions": CHURN_PARTITIONS,
                    "records": CHURN_RECORDS,
                    "record_bytes": RECORD_BYTES,
                    "codec": codec,
                }
                for mode in (Kind.WRITE, Kind.READ):
                    self._client.run(mode, cluster, topic, given)
                delete_topic(node.bootstrap, topic)
                topic = f"churn-{number}"
                number += 1
                create_topic(node.bootstrap, topic, CHURN_PARTITIONS)
                given |= {"connections": CHURN_CONNECTIONS, "rate": 200, "seconds": 1}
                self._client.run(Kind.PACE, cluster, topic, given)
                delete_topic(node.bootstrap, topic)


def mib(node: Node) -> float:
    return node.rss_bytes() / 2**20
