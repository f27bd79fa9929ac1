"""Idempotent producers of one partition, and the last batches of each.

Source: KIP-98, KIP-360, KIP-890; Kafka's ProducerStateManager, ProducerAppendInfo.

A producer numbers its records per partition. Its last five batches are kept, as many as a client
has in flight, so that a batch that is sent again is recognised and answered with its first offsets.
Upholds I10: appended batches continue the sequence.

A transaction begins with its first batch and ends with a marker, which also sets the producer's
epoch and that of the coordinator that sent it.

Live appends, replay after a restart and replicated batches all use the same `update`.
"""

import struct
from collections.abc import Iterable, Iterator

import msgspec

from logfleet.log.aborted import AbortedEntry
from logfleet.log.unstable import Unstable
from logfleet.records.batch import NO_SEQUENCE, SEQUENCE_MAX, BatchHeader
from logfleet.records.checksum import crc32c
from logfleet.records.control import Marker
from logfleet.wire.errors import ErrorCode

BATCHES_REMEMBERED = 5
"""Last batches kept per producer: its limit of max.in.flight.requests.per.connection
(ProducerStateEntry.NUM_BATCHES_TO_RETAIN)."""

NO_OFFSET = -1
EPOCH_MAX = 2**15 - 1
EPOCH_EACH_SINCE = 2
"""Version of the protocol since which each transaction has an epoch of its own (KIP-890): markers
have a higher one than the records.
"""
NO_COORDINATOR_EPOCH = -1

_SNAPSHOT_VERSION = 1
_SNAPSHOT_HEAD = struct.Struct(">hI")
_COUNT = struct.Struct(">i")
_ENTRY = struct.Struct(">qhiqiqiq")
_NO_ENTRY = bytes(_ENTRY.size)
_ID = struct.Struct(">q")


class CorruptSnapshot(Exception):
    """A producer snapshot has a wrong version, length or checksum.

    An older one and the log replace it.
    """


class SeenBatch(msgspec.Struct, frozen=True, gc=False):
    """The fields that identify a batch if its producer sends it again.

    timestamp: the batch's largest, in ms; that of a later marker if a snapshot holds only that.
    """

    first_sequence: int
    last_sequence: int
    last_offset: int
    offset_delta: int
    timestamp: int

    @classmethod
    def of(cls, header: BatchHeader, base_offset: int) -> "SeenBatch":
        """The identifying fields of a batch that was appended at `base_offset`."""
        return cls(
            header.base_sequence,
            header.last_sequence,
            base_offset + header.last_offset_delta,
            header.last_offset_delta,
            header.max_timestamp,
        )

    @property
    def first_offset(self) -> int:
        return self.last_offset - self.offset_delta


_NO_BATCH = SeenBatch(NO_SEQUENCE, NO_SEQUENCE, NO_OFFSET, 0, 0)


class ProducerEntry(msgspec.Struct):
    """State of one producer id.

    batches: oldest first, all of `epoch`; none if only a marker has that epoch. restored: the
    oldest batch comes from a snapshot, which holds only the last one: the log may have earlier
    ones. last_timestamp: of the last batch or marker. transaction_first_offset: of the open
    transaction. position: of the producer's entry in `ProducerStates._packed`.
    """

    epoch: int
    batches: list[SeenBatch]
    last_timestamp: int
    position: int
    coordinator_epoch: int = NO_COORDINATOR_EPOCH
    transaction_first_offset: int = NO_OFFSET
    restored: bool = False

    @property
    def last_sequence(self) -> int:
        return self.batches[-1].last_sequence if self.batches else NO_SEQUENCE


class ProducerStates:
    """All producers of one partition, by id. unstable: their transactions; see there.

    They are kept twice. `_packed` holds them as a snapshot does: a count, then an entry for each
    producer, in any order. Each change is made in both, so that a snapshot is a copy: 2 ms for
    100,000 producers, while packing them all at once would block the loop for 11 ms.
    """

    __slots__ = ("_entries", "_packed", "unstable")

    def __init__(self) -> None:
        self.unstable = Unstable()
        self._entries: dict[int, ProducerEntry] = {}
        self._packed = bytearray(_COUNT.size)

    def __len__(self) -> int:
        return len(self._entries)

    def ids(self) -> Iterable[int]:
        """Ids of the producers that have a state."""
        return self._entries.keys()

    def get(self, producer_id: int) -> ProducerEntry | None:
        return self._entries.get(producer_id)

    def last_offsets(self) -> Iterator[tuple[int, int]]:
        """(producer id, offset of its last record) of the producers that have a batch."""
        for producer_id, entry in self._entries.items():
            if entry.batches:
                yield producer_id, entry.batches[-1].last_offset

    def last_markers(self) -> Iterator[tuple[int, tuple[int, int]]]:
        """(producer id, (its epoch, time of its last batch or marker)) of those that had a marker.

        Times in ms.
        """
        for producer_id, entry in self._entries.items():
            if entry.coordinator_epoch != NO_COORDINATOR_EPOCH:
                yield producer_id, (entry.epoch, entry.last_timestamp)

    def check(self, header: BatchHeader) -> SeenBatch | ErrorCode | None:
        """Judge a client's batch before it is appended.

        None to append it, the batch it repeats, or an error code. The order is Kafka's: a
        repetition is answered before any other check; an older epoch is INVALID_PRODUCER_EPOCH; a
        newer one must begin at sequence 0; the same one must continue where it ended, else
        OUT_OF_ORDER_SEQUENCE_NUMBER; a producer without state (expired or deleted) may begin
        anywhere. Offsets that a coordinator appends to a transaction have no sequence: only their
        epoch is checked. A batch outside of its producer's open transaction is INVALID_TXN_STATE.
        """
        entry = self._entries.get(header.producer_id)
        if entry is None:
            return None
        first = header.base_sequence
        if header.producer_epoch == entry.epoch:
            last = header.last_sequence
            for seen in entry.batches:
                if seen.first_sequence == first and seen.last_sequence == last:
                    return None if first == NO_SEQUENCE else seen
            expected = 0 if entry.last_sequence == SEQUENCE_MAX else entry.last_sequence + 1
        elif header.producer_epoch < entry.epoch:
            return ErrorCode.INVALID_PRODUCER_EPOCH
        else:
            expected = 0
        if first == expected and entry.transaction_first_offset == NO_OFFSET:
            return None  # by far most batches
        if first not in (expected, NO_SEQUENCE):
            return ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
        is_outside = entry.transaction_first_offset != NO_OFFSET and not header.is_transactional
        return ErrorCode.INVALID_TXN_STATE if is_outside else None

    def update(self, header: BatchHeader, base_offset: int) -> None:
        """Record a batch with a producer id that was appended at `base_offset`."""
        seen = SeenBatch.of(header, base_offset)
        entry = self._entries.get(header.producer_id)
        if entry is None:
            entry = self._entries[header.producer_id] = ProducerEntry(
                header.producer_epoch, [], header.max_timestamp, len(self._packed)
            )
            self._packed += _NO_ENTRY
        elif header.producer_epoch != entry.epoch:
            entry.epoch = header.producer_epoch
            entry.batches.clear()
            entry.restored = False
        elif len(entry.batches) == BATCHES_REMEMBERED:
            del entry.batches[0]
            entry.restored = False
        entry.batches.append(seen)
        entry.last_timestamp = header.max_timestamp
        _ENTRY.pack_into(
            self._packed,
            entry.position,
            header.producer_id,
            entry.epoch,
            seen.last_sequence,
            seen.last_offset,
            seen.offset_delta,
            entry.last_timestamp,
            entry.coordinator_epoch,
            entry.transaction_first_offset,
        )

    # Transactions

    def update_transactional(self, header: BatchHeader, base_offset: int) -> None:
        """Record a transactional batch as `update` does.

        If its producer has no open transaction in this partition, one begins with it.
        """
        self.update(header, base_offset)
        entry = self._entries[header.producer_id]
        if entry.transaction_first_offset == NO_OFFSET:
            entry.transaction_first_offset = base_offset
            self._pack(header.producer_id, entry)
            self.unstable.begun(base_offset, header.producer_id)

    def is_open(self, producer_id: int, epoch: int) -> bool:
        """Whether the producer has an open transaction, and this epoch."""
        entry = self._entries.get(producer_id)
        return (
            entry is not None
            and entry.epoch == epoch
            and entry.transaction_first_offset != NO_OFFSET
        )

    def open_transactions(self) -> Iterator[tuple[int, ProducerEntry]]:
        """(producer id, its entry) of those that have an open transaction."""
        for producer_id, entry in self._entries.items():
            if entry.transaction_first_offset != NO_OFFSET:
                yield producer_id, entry

    def oldest_write(self) -> int | None:
        """Time (ms) of the newest record of the transaction that is open for longest.

        None if none is open. Source: ProducerStateManager.oldestTxnLastTimestamp.
        """
        oldest = self.unstable.oldest
        return None if oldest is None else self._entries[oldest].last_timestamp

    def check_marker(self, marker: Marker, version: int) -> ErrorCode | None:
        """Judge a marker before a leader appends it; None if it may. version: of the transaction.

        An older epoch is INVALID_PRODUCER_EPOCH. From version 2 on the same epoch is so too, as the
        marker has to have a newer one than the records; but if no transaction is open it is a
        marker that was sent again (KAFKA-19999), and an epoch at its maximum could not grow
        (KAFKA-20090). A coordinator older than the last one is TRANSACTION_COORDINATOR_FENCED. A
        producer without state is legal: its transaction had no records here.
        """
        entry = self._entries.get(marker.producer_id)
        if entry is None:
            return None
        is_late = marker.epoch < entry.epoch or (
            version >= EPOCH_EACH_SINCE
            and marker.epoch == entry.epoch != EPOCH_MAX
            and entry.transaction_first_offset != NO_OFFSET
        )
        if is_late:
            return ErrorCode.INVALID_PRODUCER_EPOCH
        if marker.coordinator_epoch < entry.coordinator_epoch:
            return ErrorCode.TRANSACTION_COORDINATOR_FENCED
        return None

    def end(self, marker: Marker, header: BatchHeader, offset: int) -> AbortedEntry | None:
        """Record a marker that was appended at `offset`, unchecked: it ends the transaction.

        The producer has its epoch from here on; batches of another one are forgotten. Returns the
        entry for the transaction index if the transaction had records here and was aborted.
        """
        entry = self._entries.get(marker.producer_id)
        if entry is None:
            entry = self._entries[marker.producer_id] = ProducerEntry(
                marker.epoch, [], header.max_timestamp, len(self._packed)
            )
            self._packed += _NO_ENTRY
        elif marker.epoch != entry.epoch:
            entry.epoch = marker.epoch
            entry.batches.clear()
            entry.restored = False
        entry.coordinator_epoch = marker.coordinator_epoch
        entry.last_timestamp = header.max_timestamp
        first, entry.transaction_first_offset = entry.transaction_first_offset, NO_OFFSET
        self._pack(marker.producer_id, entry)
        if first == NO_OFFSET:
            return None
        stable = self.unstable.ended(first, offset)
        if marker.is_commit:
            return None
        return AbortedEntry(marker.producer_id, first, offset, stable)

    def _pack(self, producer_id: int, entry: ProducerEntry) -> None:
        last = entry.batches[-1] if entry.batches else _NO_BATCH
        _ENTRY.pack_into(
            self._packed,
            entry.position,
            producer_id,
            entry.epoch,
            last.last_sequence,
            last.last_offset,
            last.offset_delta,
            entry.last_timestamp,
            entry.coordinator_epoch,
            entry.transaction_first_offset,
        )

    # Forgetting and finding again

    def recall(self, producer_id: int, earlier: Iterable[SeenBatch]) -> None:
        """Put batches found in the log, in their order, before those of a restored entry."""
        entry = self._entries[producer_id]
        entry.batches = [*earlier, *entry.batches][-BATCHES_REMEMBERED:]
        entry.restored = False

    def expire(self, ids: Iterable[int], now_ms: int, expiration_ms: int) -> None:
        """Drop the given producers that wrote nothing for `expiration_ms`.

        Those with an open transaction stay.
        """
        for producer_id in ids:
            entry = self._entries.get(producer_id)
            if (
                entry is not None
                and entry.transaction_first_offset == NO_OFFSET
                and now_ms - entry.last_timestamp >= expiration_ms
            ):
                del self._entries[producer_id]
                self._remove_packed(entry.position)

    def _remove_packed(self, position: int) -> None:
        """Remove the entry at `position`. The last one takes its place, so that no gap is left."""
        last = len(self._packed) - _ENTRY.size
        if position != last:
            self._packed[position : position + _ENTRY.size] = self._packed[last:]
            (moved_id,) = _ID.unpack_from(self._packed, position)
            self._entries[moved_id].position = position
        del self._packed[last:]

    def snapshot(self) -> bytes:
        """A snapshot as Kafka writes it at each roll (`ProducerSnapshot` version 1).

        It holds each producer's last batch. Costs a copy and a checksum.
        """
        _COUNT.pack_into(self._packed, 0, len(self._entries))
        head = _SNAPSHOT_HEAD.pack(_SNAPSHOT_VERSION, crc32c(self._packed))
        return b"".join((head, self._packed))

    @classmethod
    def from_snapshot(cls, data: bytes) -> "ProducerStates":
        """The state in a snapshot file. Raises CorruptSnapshot."""
        try:
            version, crc = _SNAPSHOT_HEAD.unpack_from(data)
            (count,) = _COUNT.unpack_from(data, _SNAPSHOT_HEAD.size)
        except struct.error:
            raise CorruptSnapshot("too short for its head") from None
        if version != _SNAPSHOT_VERSION or crc != crc32c(data[_SNAPSHOT_HEAD.size :]):
            raise CorruptSnapshot(f"version {version}, checksum {crc:#x}")
        entries = data[_SNAPSHOT_HEAD.size + _COUNT.size :]
        if len(entries) != count * _ENTRY.size:
            raise CorruptSnapshot(f"{len(entries)} bytes for {count} entries")
        states = cls()
        states._packed += entries
        for number, fields in enumerate(_ENTRY.iter_unpack(entries)):
            producer_id, epoch, sequence, offset, delta, timestamp, coordinator, first = fields
            # An entry of Kafka's snapshots has a batch only if its offset is set.
            last = SeenBatch(_first_sequence(sequence, delta), sequence, offset, delta, timestamp)
            states._entries[producer_id] = ProducerEntry(
                epoch,
                [last] if offset >= 0 else [],
                timestamp,
                _COUNT.size + number * _ENTRY.size,
                coordinator,
                first,
                restored=True,
            )
        if len(states) != count:
            raise CorruptSnapshot(f"{len(states)} producers in {count} entries")
        states.unstable = Unstable(
            (entry.transaction_first_offset, producer_id)
            for producer_id, entry in states.open_transactions()
        )
        return states


def _first_sequence(last_sequence: int, offset_delta: int) -> int:
    if last_sequence == NO_SEQUENCE:
        return NO_SEQUENCE
    return (last_sequence - offset_delta) & SEQUENCE_MAX
