"""Reads a coordinator's log again: which records count at once, and which when the transaction that they belong to is committed.

No transaction is begun here, but an adopted Kafka's log holds them. Source: Kafka's OffsetMetadataManager (replay,
replayEndTransactionMarker) and ControlRecordType.
"""

from collections.abc import Callable

from logfleet.groups.records import GroupRecord, OffsetRecord
from logfleet.wire.errors import MalformedMessage
from logfleet.wire.messages import OffsetCommitKey

_ABORT, _COMMIT = 0, 1
_Place = tuple[str, str, int]


class Replay:
    """Of the records of one partition of `__consumer_offsets`, told in the order of the log, those that count are applied.

    take_over: `GroupCoordinator.apply` of the partition's coordinator.
    """

    def __init__(self, take_over: Callable[[GroupRecord], None]) -> None:
        self._take_over = take_over
        # producer id -> group, topic and partition -> where in the log its last commit stands, and the commit
        self._pending: dict[int, dict[_Place, tuple[int, OffsetRecord]]] = {}

    @property
    def pending(self) -> int:
        """Offsets whose transactions have not ended."""
        return sum(map(len, self._pending.values()))

    def apply(self, record: GroupRecord) -> None:
        """A record that belongs to no transaction. Older commits of its offset that are pending are not to replace it."""
        if isinstance(record, OffsetRecord):
            for commits in self._pending.values():
                commits.pop(_place(record.key), None)
        self._take_over(record)

    def apply_transactional(self, record: GroupRecord, producer_id: int, log_offset: int) -> None:
        """A record of a transaction: a commit waits for its end, anything else, as a tombstone, counts at once."""
        if isinstance(record, OffsetRecord) and record.value is not None:
            commits = self._pending.setdefault(producer_id, {})
            commits[_place(record.key)] = (log_offset, record)
        else:
            self.apply(record)

    def end_transaction(self, producer_id: int, marker_key: bytes | None) -> None:
        """What a control record says of its producer's transaction. Raises MalformedMessage for a key that is none.

        marker_key: an i16 with its version, an i16 with the kind of marker; kinds other than the two that end a transaction are passed over.
        """
        if marker_key is None or len(marker_key) < 4:
            raise MalformedMessage(f"{marker_key!r} is no key of a control record")
        kind = int.from_bytes(marker_key[2:4], "big")
        if kind not in {_ABORT, _COMMIT}:
            return
        commits = self._pending.pop(producer_id, {})
        if kind == _COMMIT:
            for place, (log_offset, record) in commits.items():
                self._drop_older(place, log_offset)
                self._take_over(record)

    def _drop_older(self, place: _Place, log_offset: int) -> None:
        """The commit that stands last in the log holds, whichever transaction ends last."""
        for commits in self._pending.values():
            if place in commits and commits[place][0] < log_offset:
                del commits[place]


def _place(key: OffsetCommitKey) -> _Place:
    return key.group, key.topic, key.partition
