"""Names of files and directories in a log directory, exactly as Apache Kafka has them.

    TOPIC-PARTITION/                    one partition
        00000000000000000000.log        batches; the number is the segment's base offset
        00000000000000000000.index      offset -> position
        00000000000000000000.timeindex  timestamp -> offset
        00000000000000000000.txnindex   aborted transactions, if there are any
        00000000000000000000.snapshot   producer state just before that offset
        leader-epoch-checkpoint  partition.metadata
        ....log.cleaned, ....log.swap   a compacted segment, see swapping
    TOPIC-PARTITION.HEX-delete/         to be deleted
    TOPIC-PARTITION.HEX-stray/          belongs to no known topic; kept for the operator
    TOPIC-PARTITION.HEX-future/         a copy that moves here from another directory (KIP-113)

Source: `LogFileUtils`, `UnifiedLog.logDeleteDirName`, `logStrayDirName` and `logFutureDirName`.
"""

import re

import msgspec

LOG = ".log"
INDEX = ".index"
TIME_INDEX = ".timeindex"
SNAPSHOT = ".snapshot"
TRANSACTION_INDEX = ".txnindex"

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
"""Ours: present while a broker uses the directory. Kafka only reads directories there
(LogManager.loadLogs)."""
MOVED = ".logfleet-moved"
"""Ours: partition -> id of the directory its log was moved from, while the old log may still be
there."""
LOCK = ".lock"


NAME_BYTES_MAX = 255
"""Longest file name of common file systems; a long topic name is shortened in -delete and -stray
names."""

_OFFSET_FILE = re.compile(r"(\d{20})(\.[a-z]+)")
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
    """File name of a segment's log, of one of its sidecars, or of a producer snapshot."""
    return f"{offset:020d}{suffix}"


def parse_offset_file(name: str) -> tuple[int, str] | None:
    """(offset, suffix) of a name made by `offset_file`, else None.

    A suffix may be unknown here: later versions may have more files of this kind.
    """
    match = _OFFSET_FILE.fullmatch(name)
    return (int(match[1]), match[2]) if match else None


def parse_partition_directory(name: str) -> TopicPartition | None:
    """The partition of a directory name.

    None for other names, such as those of `leaving_directory`.
    """
    match = _PARTITION.fullmatch(name)
    if not match or leaving_suffix(name):
        return None
    return TopicPartition(match[1], int(match[2]))


def leaving_directory(partition: TopicPartition, unique_hex: str, suffix: str) -> str:
    """The new name of a partition's directory that is to be deleted or kept for the operator.

    unique_hex: 32 hexadecimal digits, so that a topic can be created and deleted again meanwhile.
    """
    assert len(unique_hex) == 32
    tail = f"-{partition.partition}.{unique_hex}{suffix}"
    return partition.topic[: NAME_BYTES_MAX - len(tail)] + tail


def leaving_suffix(name: str) -> str | None:
    """DELETE_DIRECTORY or STRAY_DIRECTORY if `leaving_directory` made this name, else None."""
    match = _LEAVING.fullmatch(name)
    return match[1] if match else None


def future_directory(partition: TopicPartition, unique_hex: str) -> str | None:
    """Name of the directory for a copy; None if the topic's name is too long (KAFKA-4893).

    unique_hex: as in `leaving_directory`.
    """
    assert len(unique_hex) == 32
    name = f"{partition}.{unique_hex}{FUTURE_DIRECTORY}"
    return name if len(name) <= NAME_BYTES_MAX else None


def parse_future_directory(name: str) -> TopicPartition | None:
    """The partition of a name made by `future_directory`, else None."""
    match = _FUTURE.fullmatch(name)
    return TopicPartition(match[1], int(match[2])) if match else None
