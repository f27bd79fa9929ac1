"""The two brokers, each as its users start it, on the same processor."""

import os
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from logfleet.node.tools.loopback_ports import is_taken

from e2e.harness.kafka import KafkaBroker
from e2e.harness.processes import Broker, Rig
from e2e.harness.program import Program

BROKER_CPU, CLIENT_CPU = "0", "1"
JVM = (
    *("-Xms1g", "-Xmx1g"),
    # the flags of kafka-run-class.sh
    *("-server", "-XX:+UseG1GC", "-XX:MaxGCPauseMillis=20"),
    *("-XX:InitiatingHeapOccupancyPercent=35", "-XX:+ExplicitGCInvokesConcurrent"),
    "-Djava.awt.headless=true",
)
CONFIG = {"log.segment.delete.delay.ms": "1000"}
"""Of both: what a round has written goes soon after it, so that the disk holds few rounds. All else as it is by default."""
DELETED_S_MAX = 60.0
LITTLE_BYTES = 64 * 1024 * 1024


def on_cpu(cpu: str) -> list[str]:
    """What runs a command on one processor."""
    return ["taskset", "-c", cpu]


class OurNode(Broker):
    """`logfleet broker` with its default settings."""

    def __init__(self, directory: Path) -> None:
        super().__init__(directory, CONFIG, "ours")
        self.prefix = on_cpu(BROKER_CPU)


class KafkaNode(Program):
    """Apache Kafka with its default settings, as kafka-server-start.sh runs it. It keeps ports and data over `kill` and `start`."""

    def __init__(self, kafka: KafkaBroker, name: str = "kafka") -> None:
        directory = kafka.directory
        super().__init__(name, [], directory)
        self.port, self.bootstrap, self.ports = kafka.port, kafka.bootstrap, kafka.ports
        kafka.jvm = [*JVM, f"-Djava.io.tmpdir={directory}"]  # where its lz4 unpacks itself
        kafka.format()
        self.data = Path(kafka.config["log.dirs"])
        self.command = kafka.command()
        self.prefix = on_cpu(BROKER_CPU)

    def start(self) -> None:
        """Started, and listening. Raises ProgramFailed."""
        self.launch()
        self.wait_ready()

    def wait_ready(self) -> None:
        self.wait_until(lambda: is_taken(self.port))


Node = OurNode | KafkaNode
SIDES: dict[str, Callable[[Path], Node]] = {
    "ours": OurNode,
    "kafka": lambda directory: KafkaNode(KafkaBroker(directory, **CONFIG)),
}


@dataclass(frozen=True)
class Cluster:
    """Brokers that a load is put on, one or several, all running. beside: what they need beside them, say a metadata store."""

    name: str
    nodes: Sequence[Broker | KafkaNode]
    beside: Sequence[Program] = ()

    @property
    def bootstrap(self) -> str:
        return ",".join(node.bootstrap for node in self.nodes)

    @property
    def pids(self) -> list[int]:
        return [node.pid for node in self.nodes]

    @property
    def beside_pids(self) -> list[int]:
        return [program.pid for program in self.beside]

    def await_deleted(self) -> None:
        """Return when deleted topics have left the disk, so that removing them is not measured. Raises TimeoutError."""
        give_up_s = time.monotonic() + DELETED_S_MAX
        while (held := sum(disk_bytes(node.data) for node in self.nodes)) > LITTLE_BYTES:
            if time.monotonic() > give_up_s:
                raise TimeoutError(f"{self.name} still holds {held} bytes")
            time.sleep(0.1)


def started(rig: Rig, side: str, life: str) -> Node:
    """A fresh broker of a side, ready; life: names its directory."""
    node = rig.own(SIDES[side](rig.directory / f"{side}-{life}"))
    node.start()
    return node


def disk_bytes(directory: Path) -> int:
    """What the files below take of the disk; a file that goes meanwhile counts nothing."""
    used = 0
    for folder, _, names in os.walk(directory):
        for name in names:
            try:
                used += os.stat(os.path.join(folder, name)).st_blocks * 512  # noqa: PTH116, PTH118 - many files
            except FileNotFoundError:
                continue
    return used
