"""The partition of an internal topic that holds a key's records; its leader is the coordinator.

Every broker and tool must compute the same one, so it is the hash of Kafka's Java code.
"""

import functools
import struct

CACHED_KEYS = 16_384
"""Size of the cache: a few thousand keys send most requests."""


def java_string_hash(text: str) -> int:
    """`String.hashCode()` of Java as a signed 32-bit number.

    Over UTF-16 code units, not code points.
    """
    encoded = text.encode("utf-16-le", "surrogatepass")
    value = 0
    for unit in struct.unpack(f"<{len(encoded) // 2}H", encoded):
        value = (31 * value + unit) & 0xFFFFFFFF
    return value - 0x1_0000_0000 if value & 0x8000_0000 else value


@functools.lru_cache(maxsize=CACHED_KEYS)
def partition_for(key: str, partitions: int) -> int:
    """The partition of a group or a transactional id, 0 <= result < partitions.

    partitions: the topic's partition count, at least 1; it must never change while it has records.
    Source: GroupCoordinatorService.partitionFor, TransactionStateManager.partitionFor; Utils.abs
    maps Integer.MIN_VALUE to 0.
    """
    value = java_string_hash(key)
    return 0 if value == -0x8000_0000 else abs(value) % partitions
