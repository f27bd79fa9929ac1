"""The configuration that tests want, where Kafka's defaults are those of production."""

import os
from collections.abc import Mapping, Sequence
from typing import Final

FSYNC_VARIABLE: Final = "LOGFLEET_TEST_FSYNC"
LOOPBACK: Final = "127.0.0.1"

OF_TESTS: Final[Mapping[str, str]] = {
    # a new group waits 3 s by default for more members
    "group.initial.rebalance.delay.ms": "0",
    # 50 each by default, which are created with the first group and the first transaction
    "offsets.topic.num.partitions": "1",
    "transaction.state.log.num.partitions": "1",
    "auto.create.topics.enable": "true",
    # a test may run on a disk that is nearly full
    "logfleet.disk.reserve.bytes": "0",
}


def replication(brokers: int) -> dict[str, str]:
    """Three replicas where there are as many brokers; writes survive the loss of one."""
    replicas = min(3, brokers)
    min_isr = max(1, replicas - 1)
    return {
        "default.replication.factor": str(replicas),
        "offsets.topic.replication.factor": str(replicas),
        "transaction.state.log.replication.factor": str(replicas),
        "transaction.state.log.min.isr": str(min_isr),
        "min.insync.replicas": str(min_isr),
    }


def broker_settings(
    broker_id: int, port: int, directory: str, *, brokers: int = 1, rack: str | None = None
) -> dict[str, str]:
    """The keys of one broker, before those that the test gives."""
    return {
        **OF_TESTS,
        **replication(brokers),
        **({"broker.rack": rack} if rack else {}),
        "node.id": str(broker_id),
        "listeners": f"PLAINTEXT://{LOOPBACK}:{port}",
        "logfleet.admin.listener": f"{LOOPBACK}:0",
        "log.dirs": directory,
    }


def racks(zones: Sequence[str], brokers: int) -> list[str | None]:
    """The rack of each broker: the zones in turn, None without zones."""
    return [zones[index % len(zones)] if zones else None for index in range(brokers)]


def is_synced() -> bool:
    """Whether brokers wait for the disk.

    They need not: a killed process loses nothing of what it has written, only a machine does.
    """
    return os.environ.get(FSYNC_VARIABLE, "") not in ("", "0")
