"""The newest offset of each key, in a fixed amount of memory (Kafka's SkimpyOffsetMap).

Keys are stored as digests, 24 bytes with the offset, in a table with open addressing. MD5 as in
Kafka: n keys of a log collide with a probability of about n^2 / 2^129. The digests are salted, so
that nobody can craft two keys that collide and make one disappear.
"""

import hashlib
import struct

ENTRY_BYTES = 24
"""Size of a table entry: a digest of 16 bytes and an offset."""

_EMPTY = bytes(16)
_OFFSET = struct.Struct("q")


GROWTH = 4
"""Growth of the table in each step: while entries are moved, a quarter more memory is in use."""

FIRST_SLOTS = 1 << 15


class OffsetMap:
    """Accepts keys until it is full. len: number of keys; capacity: their limit."""

    def __init__(
        self, bytes_max: int, *, load_factor: float, salt: bytes, first_slots: int = FIRST_SLOTS
    ) -> None:
        """bytes_max: limit of the table, which starts small.

        load_factor: share of it that is used; from 1 on, all but one slot.
        """
        self._slots_max = max(bytes_max // ENTRY_BYTES, 2)
        self._load_factor = load_factor
        self.capacity = self._usable(self._slots_max)
        self._salt = salt
        self._count = 0
        self._begin(first_slots)

    def _begin(self, slots: int) -> None:
        self._slots = min(slots, self._slots_max)
        self._table = bytearray(self._slots * ENTRY_BYTES)
        self._limit = self._usable(self._slots)

    def _usable(self, slots: int) -> int:
        """How many of the slots may be used. One stays free: a search ends there."""
        return max(min(int(slots * self._load_factor), slots - 1), 1)

    def __len__(self) -> int:
        return self._count

    def put(self, key: bytes, offset: int) -> bool:
        """Map `key` to `offset`, which must be larger than all before.

        False if the map is full, even for a known key.
        """
        if self._count >= self._limit:
            if self._count >= self.capacity:
                return False
            self._grow()
        digest = hashlib.md5(self._salt + key).digest()  # noqa: S324  see above
        position = self._find(digest)
        table = self._table
        if not table.startswith(digest, position):
            table[position : position + 16] = digest
            self._count += 1
        _OFFSET.pack_into(table, position + 16, offset)
        return True

    def get(self, key: bytes) -> int:
        """The largest offset put for `key`, -1 if there is none."""
        digest = hashlib.md5(self._salt + key).digest()  # noqa: S324  see above
        position = self._find(digest)
        if self._table.startswith(digest, position):
            offset: int = _OFFSET.unpack_from(self._table, position + 16)[0]
            return offset
        return -1

    def _find(self, digest: bytes) -> int:
        """Position of the key's entry, or of the free one for it."""
        table = self._table
        position = int.from_bytes(digest[:8], "little") % self._slots * ENTRY_BYTES
        while not table.startswith(digest, position) and not table.startswith(_EMPTY, position):
            position += ENTRY_BYTES
            if position == len(table):
                position = 0
        return position

    def _grow(self) -> None:
        before = self._table
        self._begin(self._slots * GROWTH)
        for position in range(0, len(before), ENTRY_BYTES):
            if not before.startswith(_EMPTY, position):
                entry = before[position : position + ENTRY_BYTES]
                place = self._find(bytes(entry[:16]))
                self._table[place : place + ENTRY_BYTES] = entry
