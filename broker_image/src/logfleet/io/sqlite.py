"""The embedded metadata store of a single node: a keyspace in memory.

Each revision is fsynced to SQLite before its response.

The file is opened in exclusive locking mode: its lock is held until the process ends. So a lease
can only be held by this process; leases of former processes end when the file is opened, and those
of this process last until revoked.

Errors: a commit that SQLite rolls back because the disk is full is StoreUnavailable; any other
failure of a commit is UnknownOutcome and closes the store for good (after a failed fsync the state
of the disk is unknown).
"""

import asyncio
import math
import sqlite3
from collections.abc import AsyncGenerator, Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import TypeVar

from logfleet.metadata.keyspace import Keyspace
from logfleet.metadata.store import (
    KeyValue,
    Snapshot,
    StoreLocked,
    StoreRefused,
    StoreUnavailable,
    Txn,
    TxnResult,
    UnknownOutcome,
    WatchBatch,
    check_txn,
)

HISTORY_REVISIONS_MAX = 10_000
"""Revisions kept in memory for watches to continue from; an older position gets a snapshot."""
SCHEMA_VERSION = 1
_SCHEMA = """
CREATE TABLE IF NOT EXISTS revision (newest INTEGER NOT NULL);
CREATE TABLE IF NOT EXISTS items (
    key TEXT PRIMARY KEY, value BLOB NOT NULL, create_revision INTEGER NOT NULL,
    mod_revision INTEGER NOT NULL, version INTEGER NOT NULL, lease INTEGER NOT NULL
) WITHOUT ROWID;
"""

T = TypeVar("T")


class SqliteLease:
    """A lease held by this process; it ends by `revoke`, or with the process."""

    ttl_s: int
    deadline_s = math.inf

    def __init__(self, store: "SqliteStore", lease: int, ttl_s: int) -> None:
        self.id = lease
        self.ttl_s = ttl_s
        self._store = store
        self._ended = asyncio.Event()

    async def lost(self) -> None:
        await self._ended.wait()

    async def revoke(self) -> None:
        await self._store.revoke(self.id)
        self._ended.set()


class SqliteStore:
    """MetadataStore in one file. Created by `open`; used from the loop that opened it."""

    def __init__(self, disk: "_Database", pool: ThreadPoolExecutor, keyspace: Keyspace) -> None:
        self._disk = disk
        self._pool = pool
        self._keyspace = keyspace
        self._history: list[WatchBatch] = []
        self._compacted = keyspace.revision
        self._writing = asyncio.Lock()
        self._moved = asyncio.Event()
        self._closed = ""

    @classmethod
    async def open(cls, path: Path, *, is_synced: bool = True) -> "SqliteStore":
        """Open or create the store at `path`, and its directory.

        is_synced: whether a revision is durable after a power loss; after the process's end it is.

        Raises StoreLocked if another process has it open, StoreRefused if the file is not a store
        of this version or cannot be opened or created.
        """
        pool = ThreadPoolExecutor(1, thread_name_prefix="metadata-sqlite")
        try:
            loop = asyncio.get_running_loop()
            disk, keyspace = await loop.run_in_executor(
                pool, partial(_open, path, is_synced=is_synced)
            )
        except BaseException:
            pool.shutdown(wait=False)
            raise
        return cls(disk, pool, keyspace)

    async def get(self, key: str) -> KeyValue | None:
        self._check_open()
        return self._keyspace.get(key)

    async def range(self, prefix: str) -> Snapshot:
        self._check_open()
        return self._keyspace.range(prefix)

    async def txn(self, txn: Txn) -> TxnResult:
        check_txn(txn)
        async with self._writing:
            self._check_open()
            result, batch = self._keyspace.evaluate(txn)
            if batch is not None:
                await self._commit(batch)
            return result

    async def grant_lease(self, ttl_s: int) -> SqliteLease:
        self._check_open()
        return SqliteLease(self, self._keyspace.grant(), ttl_s)

    async def revoke(self, lease: int) -> None:
        async with self._writing:
            self._check_open()
            self._keyspace.end(lease)
            if (batch := self._keyspace.without_lease(lease)) is not None:
                await self._commit(batch)

    async def watch(
        self, prefix: str = "", *, after_revision: int | None = None
    ) -> AsyncGenerator[Snapshot | WatchBatch, None]:
        self._check_open()
        position = after_revision if after_revision is not None else -1
        while not self._closed:
            if position < self._compacted:
                snapshot = self._keyspace.range(prefix)
                position = snapshot.revision
                yield snapshot
            elif position < self._keyspace.revision:
                batch = self._history[position - self._compacted]
                position = batch.revision
                if (seen := _under(prefix, batch)) is not None:
                    yield seen
            else:
                await self._moved.wait()

    async def compact(self, revision: int) -> None:
        self._check_open()
        if revision > self._keyspace.revision:
            raise StoreRefused(f"revision {revision} is not reached yet")
        if revision > self._compacted:
            del self._history[: revision - self._compacted]
            self._compacted = revision

    async def close(self) -> None:
        async with self._writing:
            self._close(self._closed or "the metadata store is closed")
            if self._disk.is_open:
                loop = asyncio.get_running_loop()
                await _finished(loop.run_in_executor(self._pool, self._disk.close))
                self._pool.shutdown(wait=False)

    async def _commit(self, batch: WatchBatch) -> None:
        """Make the revision durable, then visible. The caller holds `_writing`.

        A cancellation of the caller is raised after the commit, so that memory and disk stay the
        same.
        """
        loop = asyncio.get_running_loop()
        await _finished(
            loop.run_in_executor(self._pool, self._disk.write, batch),
            then=lambda written: self._take_over(written, batch),
        )

    def _take_over(self, written: asyncio.Future[None], batch: WatchBatch) -> None:
        """Publish a committed batch.

        Raises StoreUnavailable if it was rolled back, UnknownOutcome if that is unknown.
        """
        try:
            written.result()
        except sqlite3.Error as error:
            if getattr(error, "sqlite_errorcode", None) == sqlite3.SQLITE_FULL:
                raise StoreUnavailable(f"{self._disk.path}: {error}") from error
            self._close(f"the metadata store failed: {error}")
            raise UnknownOutcome(f"{self._disk.path}: {error}") from error
        self._publish(batch)

    def _publish(self, batch: WatchBatch) -> None:
        self._keyspace.apply(batch)
        self._history.append(batch)
        if len(self._history) >= 2 * HISTORY_REVISIONS_MAX:
            del self._history[:-HISTORY_REVISIONS_MAX]
            self._compacted = batch.revision - HISTORY_REVISIONS_MAX
        self._wake()

    def _wake(self) -> None:
        self._moved.set()
        self._moved = asyncio.Event()

    def _close(self, reason: str) -> None:
        self._closed = reason
        self._wake()

    def _check_open(self) -> None:
        if self._closed:
            raise StoreUnavailable(self._closed)


async def _finished(
    future: asyncio.Future[T], then: Callable[[asyncio.Future[T]], T] = lambda done: done.result()
) -> T:
    """The result of `then` once the future is done.

    A cancellation is raised after both, instead of any result or error.
    """
    cancelled: asyncio.CancelledError | None = None
    while not future.done():
        try:
            await asyncio.wait([future])
        except asyncio.CancelledError as error:
            cancelled = error
    try:
        return then(future)
    finally:
        if cancelled is not None:
            raise cancelled


def _under(prefix: str, batch: WatchBatch) -> WatchBatch | None:
    if not prefix:
        return batch
    events = tuple(event for event in batch.events if event.key.startswith(prefix))
    return WatchBatch(batch.revision, events) if events else None


class _Database:
    """The connection to SQLite; every method runs in the store's one thread."""

    def __init__(self, path: Path, connection: sqlite3.Connection) -> None:
        self.path = path
        self.is_open = True
        self._connection = connection

    def write(self, batch: WatchBatch) -> None:
        execute = self._connection.execute
        execute("BEGIN IMMEDIATE")
        try:
            for event in batch.events:
                if isinstance(event, KeyValue):
                    row = (
                        event.key,
                        event.value,
                        event.create_revision,
                        event.mod_revision,
                        event.version,
                        event.lease,
                    )
                    execute("INSERT OR REPLACE INTO items VALUES (?, ?, ?, ?, ?, ?)", row)
                else:
                    execute("DELETE FROM items WHERE key = ?", (event.key,))
            execute("UPDATE revision SET newest = ?", (batch.revision,))
            execute("COMMIT")
        except sqlite3.Error:
            if self._connection.in_transaction:
                execute("ROLLBACK")
            raise

    def close(self) -> None:
        self.is_open = False
        self._connection.close()


def _open(path: Path, *, is_synced: bool) -> tuple[_Database, Keyspace]:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        connection = sqlite3.connect(path, isolation_level=None, timeout=0)
    except (OSError, sqlite3.Error) as error:
        raise StoreRefused(f"{path} cannot be opened or created: {error}") from error
    try:
        keyspace = _load(connection, is_synced=is_synced)
        disk = _Database(path, connection)
        if (batch := keyspace.without_leases()) is not None:
            disk.write(batch)
            keyspace.apply(batch)
    except sqlite3.Error as error:
        connection.close()
        if getattr(error, "sqlite_errorcode", None) == sqlite3.SQLITE_BUSY:
            raise StoreLocked(f"{path} is in use by another process") from error
        raise StoreRefused(f"{path}: {error}") from error
    except BaseException:
        connection.close()
        raise
    return disk, keyspace


def _load(connection: sqlite3.Connection, *, is_synced: bool) -> Keyspace:
    execute = connection.execute
    # Exclusive before the first access: then the lock is never released, and WAL needs no shared
    # memory file.
    execute("PRAGMA locking_mode = EXCLUSIVE")
    execute("PRAGMA journal_mode = WAL")
    execute(f"PRAGMA synchronous = {'FULL' if is_synced else 'OFF'}")
    execute("BEGIN IMMEDIATE")
    (version,) = execute("PRAGMA user_version").fetchone()
    if version not in (0, SCHEMA_VERSION):
        raise StoreRefused(
            f"the metadata store has version {version}, this program supports {SCHEMA_VERSION}"
        )
    if version == 0:
        for statement in _SCHEMA.split(";"):
            execute(statement)
        execute("INSERT INTO revision VALUES (1)")
        execute(f"PRAGMA user_version = {SCHEMA_VERSION}")
    execute("COMMIT")
    (revision,) = execute("SELECT newest FROM revision").fetchone()
    rows = execute("SELECT key, value, create_revision, mod_revision, version, lease FROM items")
    return Keyspace((KeyValue(*row) for row in rows), revision)
