"""Replays a coordinator's log: a transaction's records apply when it is committed, others at once.

This broker begins no transactions, but the log of an adopted Kafka may hold them. Source: Kafka's
OffsetMetadataManager (replay, replayEndTransactionMarker) and ControlRecordType.
"""

from collections.abc import Callable

from logfleet.groups.records import GroupRecord, OffsetRecord
from logfleet.wire.errors import MalformedMessage
from logfleet.wire.messages import OffsetCommitKey

_ABORT, _COMMIT = 0, 1
_Place = tuple[str, str, int]


class Replay:
    """Applies the valid records of one partition of `__consumer_offsets`, in the order of the log.

    take_over: `GroupCoordinator.apply` of the partition's coordinator. topics: name and id of each
    topic that an offset was ever committed for, ZERO_UUID if the commit had no id.
    """

    def __init__(self, take_over: Callable[[GroupRecord], None]) -> None:
        self.topics: set[tuple[str, bytes]] = set()
        self._apply = take_over
        # producer id -> (group, topic, partition) -> (log offset of its last commit, the commit)
        self._pending: dict[int, dict[_Place, tuple[int, OffsetRecord]]] = {}

    def _take_over(self, record: GroupRecord) -> None:
        self._apply(record)
        if isinstance(record, OffsetRecord) and record.value is not None:
            self.topics.add((record.key.topic, bytes(record.value.topic_id)))

    @property
    def pending(self) -> int:
        """The number of offsets whose transactions have not ended."""
        return sum(map(len, self._pending.values()))

    def apply(self, record: GroupRecord) -> None:
        """Apply a record outside a transaction.

        It also drops older pending commits of its offset.
        """
        if isinstance(record, OffsetRecord):
            for commits in self._pending.values():
                commits.pop(_place(record.key), None)
        self._take_over(record)

    def apply_transactional(self, record: GroupRecord, producer_id: int, log_offset: int) -> None:
        """Apply a record of a transaction.

        An offset commit takes effect when the transaction ends, other records at once.
        """
        if isinstance(record, OffsetRecord) and record.value is not None:
            commits = self._pending.setdefault(producer_id, {})
            commits[_place(record.key)] = (log_offset, record)
        else:
            self.apply(record)

    def end_transaction(self, producer_id: int, marker_key: bytes | None) -> None:
        """Apply a control record: commit or abort its producer's transaction.

        marker_key: an i16 with its version, an i16 with the kind of marker; other kinds are
        ignored. Raises MalformedMessage for an invalid key.
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
        """Drop older pending commits of an offset.

        The last commit in the log wins, whichever transaction ends last.
        """
        for commits in self._pending.values():
            if place in commits and commits[place][0] < log_offset:
                del commits[place]


def _place(key: OffsetCommitKey) -> _Place:
    return key.group, key.topic, key.partition
