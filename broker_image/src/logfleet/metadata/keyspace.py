"""The store's semantics in memory: what a transaction does to keys and revisions.

The embedded store adds a disk to it. `evaluate` decides and `apply` changes, so that the store can
make a commit durable between the two.
"""

from collections.abc import Iterable

from logfleet.metadata.store import (
    Compare,
    Delete,
    Deleted,
    DeletePrefix,
    Event,
    Get,
    KeyValue,
    LeaseNotFound,
    Operation,
    Put,
    Snapshot,
    Target,
    Txn,
    TxnResult,
    WatchBatch,
)


class Keyspace:
    """Keys, leases and the newest revision. `apply` is the only mutator of the keys."""

    def __init__(self, items: Iterable[KeyValue] = (), revision: int = 1) -> None:
        self.revision = revision
        self._items = {item.key: item for item in items}
        self._leases: set[int] = set()
        self._next_lease = 1

    def get(self, key: str) -> KeyValue | None:
        return self._items.get(key)

    def range(self, prefix: str) -> Snapshot:
        items = self._items
        keys = sorted(key for key in items if key.startswith(prefix))
        return Snapshot(self.revision, tuple(items[key] for key in keys))

    def grant(self) -> int:
        """The id of a new lease. Leases are not part of the history: a loaded keyspace has none."""
        lease = self._next_lease
        self._next_lease += 1
        self._leases.add(lease)
        return lease

    def end(self, lease: int) -> None:
        """End a lease for new keys. Applying `without_lease` deletes its present keys."""
        self._leases.discard(lease)

    def has_lease(self, lease: int) -> bool:
        return lease in self._leases

    def without_lease(self, lease: int) -> WatchBatch | None:
        """Make the revision that deletes the keys of `lease`, without applying it; None if none."""
        return self._batch(
            [Deleted(key) for key in sorted(self._items) if self._items[key].lease == lease]
        )

    def without_leases(self) -> WatchBatch | None:
        """Make the revision that deletes every key with a lease, without applying it."""
        return self._batch([Deleted(key) for key in sorted(self._items) if self._items[key].lease])

    def evaluate(self, txn: Txn) -> tuple[TxnResult, WatchBatch | None]:
        """The reply, and the revision to apply (None if nothing is written). Changes nothing.

        Raises LeaseNotFound for a Put with an ended lease in the executed list.
        """
        succeeded = all(self._holds(compare) for compare in txn.compares)
        operations = txn.success if succeeded else txn.failure
        events: list[Event] = []
        for operation in operations:
            events += self._events(operation)
        batch = self._batch(events)
        reads = tuple(self.get(each.key) for each in operations if isinstance(each, Get))
        return TxnResult(succeeded, batch.revision if batch else self.revision, reads), batch

    def apply(self, batch: WatchBatch) -> None:
        assert batch.revision == self.revision + 1, (batch.revision, self.revision)
        for event in batch.events:
            if isinstance(event, KeyValue):
                self._items[event.key] = event
            else:
                del self._items[event.key]
        self.revision = batch.revision

    def _batch(self, events: list[Event]) -> WatchBatch | None:
        return WatchBatch(self.revision + 1, tuple(events)) if events else None

    def _holds(self, compare: Compare) -> bool:
        item = self._items.get(compare.key)
        if item is None:
            return compare.target is not Target.VALUE and (compare.operand == 0) != compare.negated
        return bool(getattr(item, compare.target.value) == compare.operand) != compare.negated

    def _events(self, operation: Operation) -> list[Event]:
        match operation:
            case Put():
                return [self._written(operation)]
            case Delete(key):
                return [Deleted(key)] if key in self._items else []
            case DeletePrefix(prefix):
                return [Deleted(key) for key in sorted(self._items) if key.startswith(prefix)]
            case Get():
                return []

    def _written(self, put: Put) -> KeyValue:
        if put.lease and put.lease not in self._leases:
            raise LeaseNotFound(f"lease {put.lease} of {put.key} has ended")
        revision = self.revision + 1
        old = self._items.get(put.key)
        return KeyValue(
            put.key,
            put.value,
            old.create_revision if old else revision,
            revision,
            old.version + 1 if old else 1,
            put.lease,
        )
