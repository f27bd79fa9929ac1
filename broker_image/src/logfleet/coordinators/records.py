"""The layout of the records of coordinators.

A key is an i16 with the kind of the record, then the key message. A value is an i16 with the
version of the value message, then that message. No value is a tombstone. Source:
CoordinatorRecordSerde.
"""

from logfleet.wire.errors import MalformedMessage


class UnknownRecord(Exception):
    """A kind or value version of a newer broker; loading skips the record."""


def prefixed(number: int, encoded: bytes) -> bytes:
    """An encoded message with its kind or version."""
    return number.to_bytes(2, "big") + encoded


def prefix(encoded: memoryview) -> int:
    """The kind of a key, or the version of a value. Raises MalformedMessage if it has none."""
    if len(encoded) < 2:
        raise MalformedMessage("no room for a version")
    return int.from_bytes(encoded[:2], "big", signed=True)


def value_version(value: memoryview, *, newest: int) -> int:
    """The version of a value. Raises UnknownRecord if it is none of 0 to `newest`."""
    version = prefix(value)
    if not 0 <= version <= newest:
        raise UnknownRecord(f"value version {version}")
    return version
