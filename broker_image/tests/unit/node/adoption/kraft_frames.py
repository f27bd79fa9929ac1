"""Records of Kafka's metadata log as its controller frames them."""

import msgspec
from logfleet.wire.codec import encode_bytes
from logfleet.wire.schema import load_table


def framed(record: msgspec.Struct, version: int = 0) -> bytes:
    """The record's value in the log."""
    kind = load_table()[type(record).__name__].key
    assert kind is not None
    return bytes([1, kind, version]) + encode_bytes(record, version)
