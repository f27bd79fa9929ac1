"""A topic `t` of one partition on a whole broker, and disks that refuse to let go of it."""

from typing import Any

from logfleet.io.files import PosixFiles
from logfleet.log.names import TopicPartition
from logfleet.log.partition_log import PartitionLog
from logfleet.node.broker import Broker
from logfleet.records.record import Record, build_batch
from logfleet.types import LeaderEpoch
from logfleet.wire.messages import DeleteTopicsRequest

from broker_image.tests.unit.node.broker_rig import ask_broker

NOW = 1_700_000_000_000
T0 = TopicPartition("t", 0)


async def delete_topic(broker: Broker) -> None:
    request = DeleteTopicsRequest(topic_names=["t"], timeout_ms=10_000)
    answer = await ask_broker(broker, request, 5)
    assert [row.error_code for row in answer.responses] == [0]
    await broker.rooms.hosting.local.until_applied(broker.image.revision)


def led(broker: Broker) -> PartitionLog:
    partition = broker.rooms.partitions.get("t", 0)
    assert partition is not None
    return partition.log


def append(log: PartitionLog, count: int) -> None:
    for _ in range(count):
        log.append_as_leader(build_batch([Record(None, b"value", NOW)]), LeaderEpoch(0), NOW)


async def offsets(broker: Broker, until: Any) -> tuple[int, int]:
    await until(lambda: broker.rooms.partitions.get("t", 0) is not None)
    return led(broker).log_start_offset, led(broker).log_end_offset


class Refusing(PosixFiles):
    """Refuses to rename the directory of t-0 as often as configured."""

    def __init__(self, error: int, times: int) -> None:
        self.error, self.times = error, times

    def rename(self, source: str, target: str) -> None:
        if source.endswith("/t-0") and self.times:
            self.times -= 1
            raise OSError(self.error, "it was told to", source)
        super().rename(source, target)
