"""The records of `__consumer_offsets`: Kafka's keys and values, byte for byte.

`logfleet.coordinators.records` has their layout. Values are written in the versions that Kafka 4.4
writes.
"""

from dataclasses import dataclass

from logfleet.coordinators.records import UnknownRecord, prefix, prefixed, value_version
from logfleet.wire.codec import decode, encode_bytes
from logfleet.wire.messages import (
    GroupMetadataKey,
    GroupMetadataValue,
    OffsetCommitKey,
    OffsetCommitValue,
)

OFFSETS_TOPIC = "__consumer_offsets"
"""Kafka's Topic.GROUP_METADATA_TOPIC_NAME."""

LEGACY_OFFSET_COMMIT_KEY = 0
"""Written by brokers before 0.9; its layout equals that of kind 1."""
OFFSET_COMMIT_KEY = 1
GROUP_METADATA_KEY = 2

OFFSET_COMMIT_VERSION = 4
"""The first version with tagged fields, which hold the topic id."""
OFFSET_COMMIT_WITH_EXPIRY_VERSION = 1
"""The only version with an expiry timestamp (OffsetCommit v2 to v4 with a retention time)."""
GROUP_METADATA_VERSION = 3


@dataclass(frozen=True, slots=True)
class OffsetRecord:
    """A committed offset of a group. value: None deletes it."""

    key: OffsetCommitKey
    value: OffsetCommitValue | None


@dataclass(frozen=True, slots=True)
class GroupMetadataRecord:
    """The members and assignments of a group's generation. value: None deletes the group."""

    key: GroupMetadataKey
    value: GroupMetadataValue | None


GroupRecord = OffsetRecord | GroupMetadataRecord


def encode_record(record: GroupRecord) -> tuple[bytes, bytes | None]:
    """The key and value for the log; a value of None is a tombstone."""
    match record:
        case OffsetRecord(key, value):
            encoded_key = prefixed(OFFSET_COMMIT_KEY, encode_bytes(key, 0))
            if value is None:
                return encoded_key, None
            version = (
                OFFSET_COMMIT_VERSION
                if value.expire_timestamp == -1
                else OFFSET_COMMIT_WITH_EXPIRY_VERSION
            )
            return encoded_key, prefixed(version, encode_bytes(value, version))
        case GroupMetadataRecord(group_key, group_value):
            encoded_key = prefixed(GROUP_METADATA_KEY, encode_bytes(group_key, 0))
            if group_value is None:
                return encoded_key, None
            return encoded_key, prefixed(
                GROUP_METADATA_VERSION, encode_bytes(group_value, GROUP_METADATA_VERSION)
            )


def decode_record(key: memoryview, value: memoryview | None) -> GroupRecord:
    """The record of a key and a value in the log.

    Raises UnknownRecord for a kind or value version of a newer broker, MalformedMessage for invalid
    bytes.
    """
    kind = prefix(key)
    match kind:
        case _ if kind in {LEGACY_OFFSET_COMMIT_KEY, OFFSET_COMMIT_KEY}:
            offset_key, _ = decode(OffsetCommitKey, 0, key, 2)
            if value is None:
                return OffsetRecord(offset_key, None)
            version = value_version(value, newest=OFFSET_COMMIT_VERSION)
            return OffsetRecord(offset_key, decode(OffsetCommitValue, version, value, 2)[0])
        case _ if kind == GROUP_METADATA_KEY:
            group_key, _ = decode(GroupMetadataKey, 0, key, 2)
            if value is None:
                return GroupMetadataRecord(group_key, None)
            version = value_version(value, newest=GROUP_METADATA_VERSION + 1)
            return GroupMetadataRecord(group_key, decode(GroupMetadataValue, version, value, 2)[0])
        case _:
            raise UnknownRecord(f"kind {kind}")
