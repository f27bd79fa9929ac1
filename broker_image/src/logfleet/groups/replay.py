"""What records and markers of a coordinator's log do: while it is loaded, on standby, and live.

A record of a transaction applies when the transaction is committed, others at once. There is one
code for all three, so that the state of a coordinator is always what its log defines (I34).
Source: Kafka's OffsetMetadataManager (replay, replayEndTransactionMarker).
"""

from collections.abc import Callable

from logfleet.groups.records import GroupRecord, OffsetRecord
from logfleet.groups.staged import StagedOffsets


class Replay:
    """Applies the valid records of one partition of `__consumer_offsets`, in the order of the log.

    apply: changes the state by a record that counts. staged: gets what transactions commit.
    group_seen: called with the group of each staged offset, which exists from then on. topics:
    name and id of each topic that an offset was committed or staged for, ZERO_UUID if the commit
    had no id; records that this coordinator appended itself are not among them.
    """

    def __init__(
        self,
        apply: Callable[[GroupRecord], None],
        staged: StagedOffsets,
        group_seen: Callable[[str], None],
    ) -> None:
        self.topics: set[tuple[str, bytes]] = set()
        self._apply = apply
        self._staged = staged
        self._group_seen = group_seen

    def read(self, record: GroupRecord, log_offset: int, producer_id: int | None) -> None:
        """Apply a record that was read from the log; producer_id: None outside a transaction."""
        if isinstance(record, OffsetRecord) and record.value is not None:
            self.topics.add((record.key.topic, bytes(record.value.topic_id)))
        if producer_id is None:
            self.apply(record)
        else:
            self.apply_transactional(record, producer_id, log_offset)

    def apply(self, record: GroupRecord) -> None:
        """Apply a record outside a transaction; all records applied before lie before it.

        A commit overtakes the offsets that are staged for its partition, a tombstone removes them.
        """
        if self._staged and isinstance(record, OffsetRecord):
            if record.value is None:
                self._staged.remove(record.key)
            else:
                self._staged.overtake(record.key)
        self._apply(record)

    def apply_transactional(self, record: GroupRecord, producer_id: int, log_offset: int) -> None:
        """Apply a record of a transaction.

        An offset commit is staged until the transaction ends, other records apply at once.
        """
        if isinstance(record, OffsetRecord) and record.value is not None:
            self._staged.stage(record, producer_id, log_offset)
            self._group_seen(record.key.group)
        else:
            self.apply(record)

    def end_transaction(self, producer_id: int, *, is_commit: bool) -> None:
        """Apply a marker: commit or abort the producer's transaction.

        One of a producer that has staged nothing is legal and changes nothing: its transaction may
        have had no offsets here, or tombstones removed them.
        """
        for record, log_offset in self._staged.end(producer_id):
            if is_commit:
                self._staged.overtake(record.key, log_offset)
                self._apply(record)
