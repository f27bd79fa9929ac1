"""The messages of consumers in a classic group.

These are subscriptions and assignments, opaque to the broker's protocol (KIP-62). They are [int16
version, message]; a reader treats a newer version as the newest that it supports.
"""

from collections.abc import Mapping, Sequence
from typing import TypeVar

import msgspec

from logfleet.wire.codec import decode, encode_bytes
from logfleet.wire.errors import MalformedMessage
from logfleet.wire.messages import ConsumerProtocolAssignment, ConsumerProtocolSubscription
from logfleet.wire.schema import load_table

PROTOCOL_TYPE = "consumer"
# The newest version that every consumer reads: Debian's librdkafka writes version 1, old Java
# clients read 0 and up.
WRITTEN_VERSION = 1

M = TypeVar("M", bound=msgspec.Struct)
Assignment = dict[str, list[int]]


def write_subscription(topics: Sequence[str]) -> bytes:
    """Encode a member's subscription, its metadata in JoinGroup."""
    return _write(ConsumerProtocolSubscription(topics=sorted(topics)))


def read_subscription(data: bytes) -> list[str]:
    """The topics of a member. Raises MalformedMessage."""
    return _read(ConsumerProtocolSubscription, data).topics


def write_assignment(assignment: Mapping[str, Sequence[int]]) -> bytes:
    """Encode a member's assigned partitions, as sent in SyncGroup."""
    rows = [
        ConsumerProtocolAssignment.TopicPartition(topic=topic, partitions=list(partitions))
        for topic, partitions in sorted(assignment.items())
    ]
    return _write(ConsumerProtocolAssignment(assigned_partitions=rows))


def read_assignment(data: bytes) -> Assignment:
    """A member's partitions by topic; empty bytes mean none. Raises MalformedMessage."""
    if not data:
        return {}
    message = _read(ConsumerProtocolAssignment, data)
    return {row.topic: row.partitions for row in message.assigned_partitions}


def _write(message: msgspec.Struct) -> bytes:
    return WRITTEN_VERSION.to_bytes(2, "big") + encode_bytes(message, WRITTEN_VERSION)


def _read(cls: type[M], data: bytes) -> M:
    version = int.from_bytes(data[:2], "big", signed=True)
    if len(data) < 2 or version < 0:
        raise MalformedMessage(f"{cls.__name__} without a version")
    newest = load_table()[cls.__name__].versions[1]
    return decode(cls, min(version, newest), data, 2)[0]
