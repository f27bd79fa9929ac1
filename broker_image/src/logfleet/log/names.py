"""Names of files and directories in a log directory, exactly as Apache Kafka has them.

    TOPIC-PARTITION/                    one partition
        00000000000000000000.log        batches; the number is the segment's base offset
        00000000000000000000.index      offset -> position
        00000000000000000000.timeindex  timestamp -> offset
        00000000000000000000.snapshot   producer state just before that offset
        leader-epoch-checkpoint  partition.metadata
        ....log.cleaned, ....log.swap  a compacted segment being made, and about to take its place (see swapping)
    TOPIC-PARTITION.HEX-delete/         on its way out
    TOPIC-PARTITION.HEX-stray/          belongs to nothing known here; kept for a person to look at
    TOPIC-PARTITION.HEX-future/         a copy that is to take the place of the partition in another log directory (KIP-113)

Source: `LogFileUtils`, `UnifiedLog.logDeleteDirName`, `logStrayDirName` and `logFutureDirName`.
"""

import re

import msgspec

LOG = ".log"
INDEX = ".index"
TIME_INDEX = ".timeindex"
SNAPSHOT = ".snapshot"
SEGMENT_SUFFIXES = (LOG, INDEX, TIME_INDEX)
TRANSACTION_INDEX = ".txnindex"
"""Of aborted transactions; only brokers of another kind write it so far."""

DELETED = ".deleted"
CLEANED = ".cleaned"
SWAP = ".swap"
TEMPORARY = ".tmp"
DELETE_DIRECTORY = "-delete"
STRAY_DIRECTORY = "-stray"
FUTURE_DIRECTORY = "-future"

LEADER_EPOCHS = "leader-epoch-checkpoint"
PARTITION_METADATA = "partition.metadata"
META_PROPERTIES = "meta.properties"
RECOVERY_POINTS = "recovery-point-offset-checkpoint"
HIGH_WATERMARKS = "replication-offset-checkpoint"
LOG_STARTS = "log-start-offset-checkpoint"
FIRST_DIRTY_OFFSETS = "cleaner-offset-checkpoint"
CLEAN_SHUTDOWN = ".kafka_cleanshutdown"
RUNNING = ".logfleet-boot"
"""Ours: a broker is using the directory. Kafka reads only directories there (LogManager.loadLogs)."""
MOVED = ".logfleet-moved"
"""Ours: which logs have come from which other directories, by their ids, and may still be there."""
LOCK = ".lock"

METADATA_TOPIC = "__cluster_metadata"
"""Name of the log that holds Kafka's own metadata; tools take a topic of that name for it."""

NAME_BYTES_MAX = 255
"""Longest file name of the usual file systems; a long topic's name is shortened on its way out."""

_OFFSET_FILE = re.compile(r"(\d{20})(\.log|\.index|\.timeindex|\.snapshot|\.txnindex)")
_PARTITION = re.compile(r"([a-zA-Z0-9._-]+)-(\d+)")
_LEAVING = re.compile(r".+-\d+\.[0-9a-f]{32}(-delete|-stray)")
_FUTURE = re.compile(r"([a-zA-Z0-9._-]+)-(\d+)\.[0-9a-f]{32}-future")


class TopicPartition(msgspec.Struct, frozen=True, order=True, gc=False):
    """One partition by its topic's name."""

    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"


def offset_file(offset: int, suffix: str) -> str:
    """File name of a segment's part or of a producer snapshot."""
    return f"{offset:020d}{suffix}"


def parse_offset_file(name: str) -> tuple[int, str] | None:
    """(offset, suffix) of a name that `offset_file` gives, else None."""
    match = _OFFSET_FILE.fullmatch(name)
    return (int(match[1]), match[2]) if match else None


def parse_partition_directory(name: str) -> TopicPartition | None:
    """The partition whose directory has this name; None for one that is leaving or none at all."""
    match = _PARTITION.fullmatch(name)
    if not match or leaving_suffix(name):
        return None
    return TopicPartition(match[1], int(match[2]))


def leaving_directory(partition: TopicPartition, unique_hex: str, suffix: str) -> str:
    """Name under which a partition's directory waits for deletion or for a person.

    unique_hex: 32 hexadecimal digits, so that a topic can be created and deleted again meanwhile.
    """
    assert len(unique_hex) == 32
    tail = f"-{partition.partition}.{unique_hex}{suffix}"
    return partition.topic[: NAME_BYTES_MAX - len(tail)] + tail


def leaving_suffix(name: str) -> str | None:
    """DELETE_DIRECTORY or STRAY_DIRECTORY if the directory's name is one of `leaving_directory`."""
    match = _LEAVING.fullmatch(name)
    return match[1] if match else None


def future_directory(partition: TopicPartition, unique_hex: str) -> str | None:
    """Name of the directory in which a log is copied; None if the topic's is too long for it (KAFKA-4893). unique_hex: as in `leaving_directory`."""
    assert len(unique_hex) == 32
    name = f"{partition}.{unique_hex}{FUTURE_DIRECTORY}"
    return name if len(name) <= NAME_BYTES_MAX else None


def parse_future_directory(name: str) -> TopicPartition | None:
    """The partition of a name that `future_directory` gives, else None."""
    match = _FUTURE.fullmatch(name)
    return TopicPartition(match[1], int(match[2])) if match else None
