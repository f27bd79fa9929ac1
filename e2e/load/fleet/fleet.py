"""Three brokers in three zones on three members of etcd, and what a fault needs to know and to do."""

import time
from collections.abc import Callable, Mapping
from pathlib import Path

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]

from e2e.harness.processes import Broker, Fleet, Rig
from e2e.harness.topics import NO_CONFIG, are_whole
from e2e.load.fleet.disks import Disk

TOPIC = "kept"
PARTITIONS = 6
ZONES = ("a", "b", "c")
CONFIG = {
    "default.replication.factor": "3",
    "min.insync.replicas": "2",
    "offsets.topic.replication.factor": "3",
    "offsets.topic.num.partitions": "3",
}
PATIENCE_S = 60.0
POLL_S = 0.05


class NotHealed(AssertionError):
    """The fleet is not whole again in time."""


class FailoverFleet:
    """With a topic of three replicas. config: of each broker, beside CONFIG. has_disks: each broker has a small file system of its own, which takes root to mount."""

    def __init__(
        self,
        directory: Path,
        *,
        has_disks: bool = False,
        config: Mapping[str, str] = NO_CONFIG,
    ) -> None:
        self.rig = Rig(directory)
        self._disks: dict[str, Disk] = {}
        self.fleet: Fleet = self.rig.fleet(
            3,
            zones=ZONES,
            config={**CONFIG, **config},
            etcd_members=3,
            made=self._with_disk if has_disks else Broker,
        )
        self.admin = AdminClient({"bootstrap.servers": self.bootstrap, "socket.timeout.ms": 5000})
        self.create(TOPIC)

    @property
    def bootstrap(self) -> str:
        return self.fleet.bootstrap

    @property
    def brokers(self) -> list[Broker]:
        return self.fleet.brokers

    def _with_disk(self, directory: Path, config: Mapping[str, str], name: str) -> Broker:
        broker = Broker(directory, config, name)
        disk = self._disks[broker.config["node.id"]] = Disk(directory)
        broker.config["log.dirs"] = ",".join(map(str, disk.log_dirs))
        broker.environment = disk.environment
        return broker

    def create(self, topic: str) -> None:
        """Create a topic like TOPIC."""
        new = NewTopic(topic, PARTITIONS, 3, config={"min.insync.replicas": "2"})
        for future in self.admin.create_topics([new]).values():
            future.result(PATIENCE_S)

    def broker(self, broker_id: int) -> Broker:
        return self.brokers[broker_id - 1]

    def disk(self, broker_id: int) -> Disk:
        return self._disks[str(broker_id)]

    def log_dirs(self, broker: Broker) -> list[Path]:
        return [Path(each) for each in broker.config["log.dirs"].split(",")]

    def leaders(self) -> dict[int, int]:
        """Leader by partition."""
        partitions = self.admin.list_topics(TOPIC, timeout=5).topics[TOPIC].partitions
        return {index: state.leader for index, state in partitions.items()}

    def led_by(self, broker_id: int) -> frozenset[int]:
        return frozenset(index for index, leader in self.leaders().items() if leader == broker_id)

    def registered(self) -> set[int]:
        """Brokers that are active; nobody if none answers."""
        try:
            return set(self.admin.list_topics(timeout=5).brokers)
        except KafkaException:
            return set()

    def controller(self) -> int:
        return int(self.admin.list_topics(timeout=5).controller_id)

    def until_whole(self) -> None:
        """Every replica of every topic is in sync, and every partition is led."""
        self.until("whole", lambda: are_whole(self.admin, 5, replicas=3))

    def until(self, what: str, holds: Callable[[], bool], seconds: float = PATIENCE_S) -> None:
        give_up_s = time.monotonic() + seconds
        while not holds():
            if time.monotonic() > give_up_s:
                raise NotHealed(f"not {what} after {seconds} s: leaders {self.leaders()}")
            time.sleep(POLL_S)

    def close(self) -> None:
        self.rig.close()
        for disk in self._disks.values():
            disk.close()
