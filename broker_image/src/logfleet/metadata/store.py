"""The contract of the metadata store: what the brokers of a fleet agree on, and how it may change.

One ordered history of revisions over string keys. A transaction compares and writes many keys at
once and makes one revision; a watch delivers those revisions in order, each complete. etcd
(`logfleet.io.etcd`) implements it for a fleet, SQLite (`logfleet.io.sqlite`) for a single node;
callers cannot distinguish them.

Two rules for every writer:

* **A lease excludes no other process.** A process may act after its lease has ended (etcd issue
  #10811), so every write compares the key that permits it.
* **A read never settles an unknown transaction.** After `UnknownOutcome` an etcd member may still
  hold the proposal and commit it later, so a read that does not show it proves nothing. Commit the
  same keys with the same compare again until one attempt gets a definite reply. If it succeeded,
  the older attempt cannot succeed any more. If its compare failed, the value in the store (a `Get`
  in `failure` returns it) is final, and the older attempt may have written it.

Errors::

    StoreError
    ├── StoreUnavailable   nothing was changed; a retry may succeed (a full store: once it has room)
    ├── UnknownOutcome     the transaction was applied, was not, or still may be (see above)
    ├── StoreRefused       a retry fails too: no permission, or an invalid request
    ├── LeaseNotFound      a transaction named a lease that has ended; nothing was changed
    ├── StoreReplaced      another store replies at this address; discard everything read before
    └── StoreLocked        another process has this embedded store open
"""

from collections.abc import AsyncGenerator, Iterable, Sequence
from enum import Enum
from typing import Protocol

import msgspec

TXN_OPERATIONS_MAX = 128
"""Per list of a transaction: etcd's --max-txn-ops."""
TXN_BYTES_MAX = 1024 * 1024
"""Keys and values of a transaction.

Two thirds of etcd's --max-request-bytes, the rest is framing and prefix.
"""


class StoreError(Exception):
    """A call to the metadata store failed."""


class StoreUnavailable(StoreError):
    pass


class UnknownOutcome(StoreError):
    pass


class StoreRefused(StoreError):
    pass


class LeaseNotFound(StoreError):
    pass


class StoreReplaced(StoreError):
    pass


class StoreLocked(StoreError):
    pass


class KeyValue(msgspec.Struct, frozen=True, gc=False):
    """A key as one revision left it.

    create_revision: the revision that created it (after its last deletion).
    mod_revision: the revision that wrote it last.
    version: writes since its creation, from 1.
    lease: id of the lease that it ends with, 0 for none.
    """

    key: str
    value: bytes
    create_revision: int
    mod_revision: int
    version: int
    lease: int = 0


class Target(Enum):
    CREATE_REVISION = "create_revision"
    MOD_REVISION = "mod_revision"
    VERSION = "version"
    VALUE = "value"


class Compare(msgspec.Struct, frozen=True):
    """True if the key's target equals the operand (or differs from it, if `negated`).

    An absent key has revisions and version 0 and no value: no compare on the value of an absent key
    is true.
    """

    key: str
    target: Target
    operand: int | bytes
    negated: bool = False


def absent(key: str) -> Compare:
    return Compare(key, Target.CREATE_REVISION, 0)


def exists(key: str) -> Compare:
    return Compare(key, Target.CREATE_REVISION, 0, negated=True)


def created_at(key: str, revision: int) -> Compare:
    return Compare(key, Target.CREATE_REVISION, revision)


def modified_at(key: str, revision: int) -> Compare:
    """Unchanged since `revision`; 0 means absent."""
    return Compare(key, Target.MOD_REVISION, revision)


def version_is(key: str, version: int) -> Compare:
    return Compare(key, Target.VERSION, version)


def value_is(key: str, value: bytes) -> Compare:
    return Compare(key, Target.VALUE, value)


class Put(msgspec.Struct, frozen=True):
    """Writes the key. lease: the lease whose end deletes the key; 0 detaches it from its lease."""

    key: str
    value: bytes
    lease: int = 0


class Delete(msgspec.Struct, frozen=True):
    key: str


class DeletePrefix(msgspec.Struct, frozen=True):
    """Deletes every key that begins with `prefix` (not empty).

    One operation, whatever their number.
    """

    prefix: str


class Get(msgspec.Struct, frozen=True):
    key: str


Operation = Put | Delete | DeletePrefix | Get


class Txn(msgspec.Struct, frozen=True):
    """If all compares hold, `success` is executed, else `failure`: atomically, as one revision.

    Refused by `check_txn` before it is sent: more than TXN_OPERATIONS_MAX entries in a list, more
    than TXN_BYTES_MAX in all, a key named twice in one list of operations.
    """

    compares: Sequence[Compare] = ()
    success: Sequence[Operation] = ()
    failure: Sequence[Operation] = ()


class TxnResult(msgspec.Struct, frozen=True):
    """The definite reply to a transaction.

    succeeded: the compares held.
    revision: the revision that it made; if it wrote nothing, the store's newest, which may be a
    write under another prefix that no watch of this prefix ever delivers.
    reads: one entry per Get of the executed list, in its order; None for an absent key.
    """

    succeeded: bool
    revision: int
    reads: tuple[KeyValue | None, ...] = ()


class Deleted(msgspec.Struct, frozen=True):
    key: str


Event = KeyValue | Deleted


class WatchBatch(msgspec.Struct, frozen=True):
    """Everything that one revision changed (under the watched prefix), in the transaction's order.

    Without events: the watch has delivered everything up to this revision.
    """

    revision: int
    events: tuple[Event, ...]


class Snapshot(msgspec.Struct, frozen=True):
    """All keys under a prefix as they stood at `revision`, sorted by key.

    From a watch it means: replace all earlier state by this; the batches that follow come after it.
    """

    revision: int
    items: tuple[KeyValue, ...]


class Lease(Protocol):
    """Keys that expire together.

    It is kept alive from `grant_lease` until it is revoked or lost, even while the store does not
    reply.
    """

    @property
    def id(self) -> int: ...

    @property
    def ttl_s(self) -> int:
        """The granted time to live, at least the requested one."""
        ...

    @property
    def deadline_s(self) -> float:
        """No other process can have seen it expire before this time (`logfleet.io.clock.boot_s`).

        It counts from the moment when the last answered keepalive was sent; infinite for an
        embedded store. After it the lease may have ended or not; only the store can answer that.
        """
        ...

    async def lost(self) -> None:
        """Return when the lease has ended: it was revoked, or the store reports that it expired."""
        ...

    async def revoke(self) -> None:
        """End it and delete its keys, as one revision. Does nothing if it has ended.

        Raises StoreUnavailable if no store replied; then the lease expires by itself.
        """
        ...


class MetadataStore(Protocol):
    """Reads are linearizable.

    Every call may raise StoreUnavailable, StoreRefused and StoreReplaced.
    """

    async def get(self, key: str) -> KeyValue | None: ...

    async def range(self, prefix: str) -> Snapshot:
        """All keys that begin with `prefix` ("" for all) at one revision, fetched in pages."""
        ...

    async def txn(self, txn: Txn) -> TxnResult:
        """Raises UnknownOutcome, LeaseNotFound.

        ValueError for a transaction that `check_txn` refuses.
        """
        ...

    async def grant_lease(self, ttl_s: int) -> Lease: ...

    def watch(
        self, prefix: str = "", *, after_revision: int | None = None
    ) -> AsyncGenerator[Snapshot | WatchBatch, None]:
        """All changes under `prefix` in the order of their revisions, each exactly once.

        after_revision: where to resume; None begins with a Snapshot. If the history after it was
        compacted, a Snapshot comes first, then batches. The watch reconnects by itself; it ends
        only with the store (StopAsyncIteration after `close`), or by StoreRefused or StoreReplaced.
        The caller closes the generator (contextlib.aclosing).
        """
        ...

    async def compact(self, revision: int) -> None:
        """Drop the history up to `revision`: a watch that resumes before it gets a Snapshot."""
        ...

    async def close(self) -> None:
        """Release connections, threads and locks.

        Leases are not revoked: they expire, as after a crash.
        """
        ...


def check_txn(txn: Txn) -> None:
    """Raise ValueError for a transaction over the limits. All implementations share the limits."""
    for entries in (txn.compares, txn.success, txn.failure):
        if len(entries) > TXN_OPERATIONS_MAX:
            raise ValueError(
                f"{len(entries)} entries in one list of a transaction, {TXN_OPERATIONS_MAX} at most"
            )
    size = sum(map(entry_bytes, (*txn.compares, *txn.success, *txn.failure)))
    if size > TXN_BYTES_MAX:
        raise ValueError(f"a transaction of {size} bytes, {TXN_BYTES_MAX} at most")
    _check_branch(txn.success)
    _check_branch(txn.failure)


def entry_bytes(entry: Compare | Operation) -> int:
    """The size of an entry, counted towards TXN_BYTES_MAX."""
    match entry:
        case Compare(key):
            return len(key) + 16
        case Put(key, value):
            return len(key) + len(value)
        case DeletePrefix(prefix):
            return len(prefix)
        case Delete(key) | Get(key):
            return len(key)


def _check_branch(operations: Iterable[Operation]) -> None:
    keys: set[str] = set()
    prefixes: list[str] = []
    for operation in operations:
        if isinstance(operation, DeletePrefix):
            if not operation.prefix:
                raise ValueError("DeletePrefix of everything")
            if any(_overlap(operation.prefix, prefix) for prefix in prefixes):
                raise ValueError(
                    f"a deletion of {operation.prefix}* stands beside one that overlaps"
                )
            prefixes.append(operation.prefix)
            continue
        if operation.key in keys:
            raise ValueError(f"{operation.key} stands twice in one list of a transaction")
        keys.add(operation.key)
    for prefix in prefixes:
        if overlapping := [key for key in keys if key.startswith(prefix)]:
            raise ValueError(f"{overlapping[0]} stands beside a deletion of {prefix}*")


def _overlap(one: str, other: str) -> bool:
    return one.startswith(other) or other.startswith(one)
