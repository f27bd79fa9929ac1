"""Partitions of an internal topic, for tests of coordinators: their logs are on disk."""

from logfleet.io.files import PosixFiles
from logfleet.log.batch_rules import BatchRefusal
from logfleet.log.config import LogConfig
from logfleet.log.directories.trash import Trash
from logfleet.log.names import TopicPartition
from logfleet.log.partition_log import PartitionLog
from logfleet.log.recovery.loader import LoadRequest, prepare_directory
from logfleet.log.segments.open_files import OpenFiles
from logfleet.log.validation import AppendResult, Prepared
from logfleet.node.partitions.leader_partition import LeaderPartition
from logfleet.replication.leader import LeaderReplicas
from logfleet.types import LeaderEpoch

TOPIC_ID = b"id of the topic."


def open_log(path: str, topic: str, index: int = 0) -> PartitionLog:
    """The log of a partition of an internal topic, new or as it was left."""
    files = OpenFiles(PosixFiles())
    directory = f"{path}/{topic}-{index}"
    prepare_directory(files, directory, "bQrxV1XaQAyDOV5OYVsTsQ")
    request = LoadRequest(
        directory=directory,
        config=LogConfig(cleanup_policy=frozenset({"compact"})),
        clean=False,
        recovery_point=0,
        log_start_offset=0,
        now_ms=0,
    )
    return PartitionLog(TopicPartition(topic, index), files, Trash(files), request)


class LaggingPartition(LeaderPartition):
    """A partition whose followers fetch only on request, and whose disk can fail."""

    lags = False
    failure: OSError | None = None
    refusal: BatchRefusal | None = None

    def __init__(
        self, log: PartitionLog, index: int = 0, *, replicas_state: LeaderReplicas | None = None
    ) -> None:
        super().__init__(
            log.partition.topic,
            TOPIC_ID,
            index,
            log,
            LeaderEpoch(0),
            replicas_state=replicas_state,
        )
        log.ends.flush_messages = 1

    def append(self, batch: bytearray | memoryview | Prepared, now_ms: int) -> AppendResult:
        if self.failure is not None:
            raise self.failure
        if self.refusal is not None:
            return self.refusal
        return super().append(batch, now_ms)

    def flush(self) -> bool:
        return self.lags

    def catch_up(self) -> None:
        self.ends.flushed(self.log.log_end_offset)
