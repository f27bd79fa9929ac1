"""The records of `__consumer_offsets`: Kafka's keys and values, byte for byte.

`logfleet.coordinators.records` has their layout. Each kind of groups declares the types of its
records; committed offsets belong to all kinds. Values are written in the versions that Kafka 4.4
writes.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Final, Generic, TypeVar

import msgspec

from logfleet.coordinators.records import UnknownRecord, prefix, prefixed, value_version
from logfleet.wire.codec import decode, encode_bytes
from logfleet.wire.messages import OffsetCommitKey, OffsetCommitValue

K = TypeVar("K", bound=msgspec.Struct)
V = TypeVar("V", bound=msgspec.Struct)

OFFSETS_TOPIC = "__consumer_offsets"
"""Kafka's Topic.GROUP_METADATA_TOPIC_NAME."""

LEGACY_OFFSET_COMMIT_KEY = 0
"""Written by brokers before 0.9; its layout equals that of version 1."""
OFFSET_COMMIT_KEY = 1
OFFSET_COMMIT_VERSION = 4
"""The first version with tagged fields, which hold the topic id."""
OFFSET_COMMIT_WITH_EXPIRY_VERSION = 1
"""The only version with an expiry timestamp (OffsetCommit v2 to v4 with a retention time)."""


@dataclass(frozen=True, slots=True)
class GroupRecord:
    """A record: messages of the wire. value: None deletes what the key names."""

    key: Any
    value: Any


@dataclass(frozen=True, slots=True)
class OffsetRecord(GroupRecord):
    """A committed offset of a group. value: None deletes it."""

    key: OffsetCommitKey
    value: OffsetCommitValue | None


@dataclass(frozen=True, slots=True)
class RecordType(Generic[K, V]):
    """One type of record. Its keys begin with their version, which no other type has.

    record: its class. value_version: the version in which a value is written. value_newest: the
    newest version that is read. legacy_keys: versions of keys that are only read.
    """

    record: type[GroupRecord]
    key: type[K]
    value: type[V]
    key_version: int
    value_version: Callable[[V], int]
    value_newest: int
    legacy_keys: tuple[int, ...] = ()

    def encode(self, record: GroupRecord) -> tuple[bytes, bytes | None]:
        key = prefixed(self.key_version, encode_bytes(record.key, 0))
        if record.value is None:
            return key, None
        version = self.value_version(record.value)
        return key, prefixed(version, encode_bytes(record.value, version))

    def decode(self, key: memoryview, value: memoryview | None) -> GroupRecord:
        decoded, _ = decode(self.key, 0, key, 2)
        if value is None:
            return self.record(decoded, None)
        version = value_version(value, newest=self.value_newest)
        return self.record(decoded, decode(self.value, version, value, 2)[0])


class RecordTypes:
    """The types of the records in a log."""

    def __init__(self, types: Iterable[RecordType[Any, Any]]) -> None:
        self._by_record: dict[type[GroupRecord], RecordType[Any, Any]] = {}
        self._by_key_version: dict[int, RecordType[Any, Any]] = {}
        for each in types:
            self._by_record[each.record] = each
            for version in (each.key_version, *each.legacy_keys):
                assert version not in self._by_key_version, version
                self._by_key_version[version] = each

    def encode(self, record: GroupRecord) -> tuple[bytes, bytes | None]:
        """The key and value for the log; a value of None is a tombstone."""
        return self._by_record[type(record)].encode(record)

    def decode(self, key: memoryview, value: memoryview | None) -> GroupRecord:
        """The record of a key and a value in the log.

        Raises UnknownRecord for a type or value version of a newer broker, MalformedMessage for
        invalid bytes.
        """
        found = self._by_key_version.get(prefix(key))
        if found is None:
            raise UnknownRecord(f"kind {prefix(key)}")
        return found.decode(key, value)


def _offset_version(value: OffsetCommitValue) -> int:
    is_timed = value.expire_timestamp != -1
    return OFFSET_COMMIT_WITH_EXPIRY_VERSION if is_timed else OFFSET_COMMIT_VERSION


OFFSET: Final = RecordType(
    OffsetRecord,
    OffsetCommitKey,
    OffsetCommitValue,
    key_version=OFFSET_COMMIT_KEY,
    value_version=_offset_version,
    value_newest=OFFSET_COMMIT_VERSION,
    legacy_keys=(LEGACY_OFFSET_COMMIT_KEY,),
)
