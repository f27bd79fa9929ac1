"""The newest offset of each key, in a fixed amount of memory (Kafka's SkimpyOffsetMap).

Keys are kept as digests, 24 bytes with the offset, in a table with open addressing. MD5 as in Kafka, which two keys of a log meet
with a probability of about n^2 / 2^129; salted, so that nobody can prepare two keys of which one would make the other disappear.
"""

import hashlib
import struct

ENTRY_BYTES = 24
"""A digest of 16 bytes and an offset."""

_EMPTY = bytes(16)
_OFFSET = struct.Struct("q")


class OffsetMap:
    """Takes keys until it is full. len: how many there are; capacity: how many there can be."""

    def __init__(self, bytes_max: int, *, load_factor: float, salt: bytes) -> None:
        """bytes_max: of the table; load_factor: how much of it is used, above 0 and below 1. Takes all the memory at once."""
        slots = max(bytes_max // ENTRY_BYTES, 2)
        self.capacity = max(int(slots * load_factor), 1)
        self._slots = slots
        self._salt = salt
        self._table = bytearray(slots * ENTRY_BYTES)
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def put(self, key: bytes, offset: int) -> bool:
        """Note that `key` is at `offset`, which is larger than all before. False if the map is full, also for a key that it holds."""
        if self._count >= self.capacity:
            return False
        digest, position = self._find(key)
        table = self._table
        if not table.startswith(digest, position):
            table[position : position + 16] = digest
            self._count += 1
        _OFFSET.pack_into(table, position + 16, offset)
        return True

    def get(self, key: bytes) -> int:
        """The largest offset noted for `key`, -1 if there is none."""
        digest, position = self._find(key)
        if self._table.startswith(digest, position):
            offset: int = _OFFSET.unpack_from(self._table, position + 16)[0]
            return offset
        return -1

    def _find(self, key: bytes) -> tuple[bytes, int]:
        """The key's digest, and the position of its entry or of the free one where it would go."""
        digest = hashlib.md5(self._salt + key).digest()  # noqa: S324  see above
        table = self._table
        position = int.from_bytes(digest[:8], "little") % self._slots * ENTRY_BYTES
        while not table.startswith(digest, position) and not table.startswith(_EMPTY, position):
            position += ENTRY_BYTES
            if position == len(table):
                position = 0
        return digest, position
