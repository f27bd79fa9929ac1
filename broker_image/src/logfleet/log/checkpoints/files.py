"""The small text files of a log directory: formatting and parsing, without file access.

Offset checkpoints and leader epochs: a version, a count, one entry per line
(`OffsetCheckpointFile`, `LeaderEpochCheckpointFile`). `partition.metadata` and `meta.properties`
are key-value files (`PartitionMetadataFile`, `MetaProperties` version 1).
"""

from collections.abc import Iterable, Mapping, Sequence

import msgspec

from logfleet.log.names import TopicPartition
from logfleet.replication.leader_epochs import EpochStart
from logfleet.types import NO_BROKER_EPOCH, BrokerEpoch, LeaderEpoch


class CorruptCheckpoint(Exception):
    """A checkpoint file that does not follow its format."""


def offset_line(partition: TopicPartition, offset: int) -> str:
    """A partition's entry in an offset checkpoint."""
    return f"{partition.topic} {partition.partition} {offset}\n"


def format_offsets(lines: Sequence[str]) -> bytes:
    """The content of a checkpoint file; the lines may be in any order."""
    return _with_head(len(lines), lines)


def parse_offsets(data: bytes) -> dict[TopicPartition, int]:
    """Offsets in a checkpoint file. Raises CorruptCheckpoint."""
    offsets = {}
    for topic, partition, offset in _entries(data, 3):
        offsets[TopicPartition(topic, _number(partition))] = _number(offset)
    return offsets


def format_epochs(entries: Iterable[EpochStart]) -> bytes:
    listed = list(entries)
    lines = (f"{entry.epoch} {entry.start_offset}\n" for entry in listed)
    return _with_head(len(listed), lines)


def parse_epochs(data: bytes) -> tuple[EpochStart, ...]:
    """Entries of `leader-epoch-checkpoint`. Raises CorruptCheckpoint."""
    return tuple(
        EpochStart(LeaderEpoch(_number(e)), _number(start)) for e, start in _entries(data, 2)
    )


def format_properties(properties: Mapping[str, str]) -> bytes:
    """The content of a Java properties file with these values, which must need no escapes."""
    return "".join(f"{key}={value}\n" for key, value in properties.items()).encode()


def parse_properties(data: bytes) -> dict[str, str]:
    """Keys and values separated by `=` or `: `, `#` begins a comment. Raises CorruptCheckpoint."""
    properties = {}
    for line in _text(data).splitlines():
        stripped = line.strip()
        if not stripped or stripped.startswith(("#", "!")):
            continue
        key, equals, value = stripped.partition("=")
        if not equals:
            key, equals, value = stripped.partition(":")
        if not equals:
            raise CorruptCheckpoint(f"neither a key nor a comment: {stripped[:80]!r}")
        properties[key.strip()] = value.strip()
    return properties


def format_clean_shutdown(broker_epoch: BrokerEpoch) -> bytes:
    """The content of a clean-shutdown file (Kafka's CleanShutdownFileHandler, version 0)."""
    return f'{{"version":0,"brokerEpoch":{broker_epoch}}}'.encode()


def parse_clean_shutdown(data: bytes) -> BrokerEpoch | None:
    """The broker epoch in a clean-shutdown file, None if there is none.

    Older brokers leave the epoch out, or the file empty.
    """
    try:
        epoch = msgspec.json.decode(data, type=dict[str, BrokerEpoch]).get(
            "brokerEpoch", NO_BROKER_EPOCH
        )
    except msgspec.DecodeError:
        return None
    return None if epoch == NO_BROKER_EPOCH else epoch


class Running(msgspec.Struct, frozen=True):
    """The content of the running file.

    identity: of a file of the directory, see `Files.file_identity`. broker_epoch: of the last
    registration that the controller made active.
    """

    identity: str = msgspec.field(name="life")
    broker_epoch: BrokerEpoch = msgspec.field(name="brokerEpoch")


def format_running(identity: str, broker_epoch: BrokerEpoch) -> bytes:
    """The content of the running file, for `parse_running`."""
    return msgspec.json.encode(Running(identity, broker_epoch))


def parse_running(data: bytes) -> Running | None:
    """Parse the running file; None for other formats: older versions wrote only the boot id."""
    try:
        return msgspec.json.decode(data, type=Running)
    except msgspec.DecodeError:
        return None


def format_partition_metadata(topic_id: str) -> bytes:
    """The content of partition.metadata. topic_id: Kafka's text form of the topic's uuid."""
    return f"version: 0\ntopic_id: {topic_id}".encode()


def parse_partition_metadata(data: bytes) -> str:
    """The topic id in partition.metadata, as text. Raises CorruptCheckpoint."""
    topic_id = parse_properties(data).get("topic_id")
    if not topic_id:
        raise CorruptCheckpoint("no topic_id")
    return topic_id


def _with_head(count: int, lines: Iterable[str]) -> bytes:
    return f"0\n{count}\n{''.join(lines)}".encode()


def _entries(data: bytes, width: int) -> Iterable[list[str]]:
    lines = _text(data).splitlines()
    if len(lines) < 2 or lines[0] != "0":
        raise CorruptCheckpoint("it does not begin with version 0 and a count")
    entries = [line.split() for line in lines[2:] if line.strip()]
    if len(entries) != _number(lines[1]) or any(len(entry) != width for entry in entries):
        raise CorruptCheckpoint(f"it does not have {lines[1]} entries of {width} fields")
    return entries


def _number(text: str) -> int:
    try:
        return int(text)
    except ValueError:
        raise CorruptCheckpoint(f"not a number: {text[:40]!r}") from None


def _text(data: bytes) -> str:
    try:
        return data.decode()
    except UnicodeDecodeError:
        raise CorruptCheckpoint("not text") from None
