"""The partition of a record with a key, as Kafka's Java clients choose it, so that all agree."""

_SEED = 0x9747B28C
_FACTOR = 0x5BD1E995
_MASK = 0xFFFFFFFF


def murmur2(data: bytes) -> int:
    """MurmurHash2, 32 bits, as an unsigned number (org.apache.kafka.common.utils.Utils.murmur2)."""
    length = len(data)
    value = (_SEED ^ length) & _MASK
    whole = length & ~3
    for position in range(0, whole, 4):
        word = int.from_bytes(data[position : position + 4], "little") * _FACTOR & _MASK
        word = (word ^ (word >> 24)) * _FACTOR & _MASK
        value = value * _FACTOR & _MASK ^ word
    if length > whole:
        value = (value ^ int.from_bytes(data[whole:], "little")) * _FACTOR & _MASK
    value = (value ^ (value >> 13)) * _FACTOR & _MASK
    return value ^ (value >> 15)


def partition_of_key(key: bytes, partitions: int) -> int:
    """Index of the key's partition (Kafka: BuiltInPartitioner.partitionForKey)."""
    return (murmur2(key) & 0x7FFFFFFF) % partitions
