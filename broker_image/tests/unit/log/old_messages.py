"""Messages as Kafka wrote them before there were batches (`LegacyRecord`)."""

import struct
import zlib


def old_message(offset: int, magic: int, value: bytes = b"old") -> bytes:
    """One without a key, of format v0 or v1."""
    timestamp = struct.pack(">q", 1_500_000_000_000) if magic else b""
    body = struct.pack(">bb", magic, 0) + timestamp + struct.pack(">ii", -1, len(value)) + value
    return struct.pack(">qiI", offset, 4 + len(body), zlib.crc32(body)) + body
