"""The records of `__consumer_offsets`: Kafka's keys and values, byte for byte.

A key is an i16 that says what the record is, then the key message; a value is an i16 with the version
of the value message, then that message; no value is a tombstone (CoordinatorRecordSerde).
Values are written in the versions that Kafka 4.4 writes.
"""

from dataclasses import dataclass

from logfleet.wire.codec import decode, encode_bytes
from logfleet.wire.errors import MalformedMessage
from logfleet.wire.messages import (
    GroupMetadataKey,
    GroupMetadataValue,
    OffsetCommitKey,
    OffsetCommitValue,
)

LEGACY_OFFSET_COMMIT_KEY = 0
"""What brokers before 0.9 wrote; the same layout as 1."""
OFFSET_COMMIT_KEY = 1
GROUP_METADATA_KEY = 2

OFFSET_COMMIT_VERSION = 4
"""The first with tagged fields: the topic id is one."""
OFFSET_COMMIT_WITH_EXPIRY_VERSION = 1
"""The only version that holds an expiry of its own (OffsetCommit v2 to v4 with a retention time)."""
GROUP_METADATA_VERSION = 3


@dataclass(frozen=True, slots=True)
class OffsetRecord:
    """A committed offset of a group, or with value None: that there is none any more."""

    key: OffsetCommitKey
    value: OffsetCommitValue | None


@dataclass(frozen=True, slots=True)
class GroupMetadataRecord:
    """The members and assignments of a group's generation, or with value None: that the group is gone."""

    key: GroupMetadataKey
    value: GroupMetadataValue | None


GroupRecord = OffsetRecord | GroupMetadataRecord


class UnknownRecord(Exception):
    """A kind of record that this broker does not know. Raised by `decode_record`; skipped when loading."""


def encode_record(record: GroupRecord) -> tuple[bytes, bytes | None]:
    """Key and value as they stand in the log; a value of None is a tombstone."""
    match record:
        case OffsetRecord(key, value):
            encoded_key = _prefixed(OFFSET_COMMIT_KEY, encode_bytes(key, 0))
            if value is None:
                return encoded_key, None
            version = (
                OFFSET_COMMIT_VERSION
                if value.expire_timestamp == -1
                else OFFSET_COMMIT_WITH_EXPIRY_VERSION
            )
            return encoded_key, _prefixed(version, encode_bytes(value, version))
        case GroupMetadataRecord(group_key, group_value):
            encoded_key = _prefixed(GROUP_METADATA_KEY, encode_bytes(group_key, 0))
            if group_value is None:
                return encoded_key, None
            return encoded_key, _prefixed(
                GROUP_METADATA_VERSION, encode_bytes(group_value, GROUP_METADATA_VERSION)
            )


def decode_record(key: memoryview, value: memoryview | None) -> GroupRecord:
    """The record behind a key and a value of the log.

    Raises UnknownRecord for a kind or a value version of a newer broker, MalformedMessage for bytes that are neither.
    """
    kind = _prefix(key)
    match kind:
        case _ if kind in {LEGACY_OFFSET_COMMIT_KEY, OFFSET_COMMIT_KEY}:
            offset_key, _ = decode(OffsetCommitKey, 0, key, 2)
            if value is None:
                return OffsetRecord(offset_key, None)
            version = _value_version(value, newest=OFFSET_COMMIT_VERSION)
            return OffsetRecord(offset_key, decode(OffsetCommitValue, version, value, 2)[0])
        case _ if kind == GROUP_METADATA_KEY:
            group_key, _ = decode(GroupMetadataKey, 0, key, 2)
            if value is None:
                return GroupMetadataRecord(group_key, None)
            version = _value_version(value, newest=GROUP_METADATA_VERSION + 1)
            return GroupMetadataRecord(group_key, decode(GroupMetadataValue, version, value, 2)[0])
        case _:
            raise UnknownRecord(f"kind {kind}")


def _prefixed(number: int, encoded: bytes) -> bytes:
    return number.to_bytes(2, "big") + encoded


def _prefix(encoded: memoryview) -> int:
    if len(encoded) < 2:
        raise MalformedMessage("no room for a version")
    return int.from_bytes(encoded[:2], "big", signed=True)


def _value_version(value: memoryview, *, newest: int) -> int:
    version = _prefix(value)
    if not 0 <= version <= newest:
        raise UnknownRecord(f"value version {version}")
    return version
