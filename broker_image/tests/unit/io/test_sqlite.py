import asyncio
import math
import os
import re
import signal
import sqlite3
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import pytest
import pytest_asyncio
from logfleet.io import sqlite
from logfleet.io.sqlite import SqliteStore
from logfleet.metadata.store import (
    Get,
    Put,
    Snapshot,
    StoreLocked,
    StoreRefused,
    StoreUnavailable,
    Txn,
    UnknownOutcome,
    WatchBatch,
)

from broker_image.tests.contract.metadata_store import MetadataStoreContract, soon, write

pytestmark = pytest.mark.asyncio


@pytest_asyncio.fixture
async def store(path: Path):
    store = await SqliteStore.open(path)
    yield store
    await store.close()


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "made" / "metadata.db"


class TestContract(MetadataStoreContract):
    pass


async def test_everything_is_there_after_a_restart(path: Path) -> None:
    store = await SqliteStore.open(path)
    await write(store, Put("a", b"1"), Put("b", b"2"))
    last = await write(store, Put("a", b"3"))
    before = await store.range("")
    await store.close()
    store = await SqliteStore.open(path)
    assert await store.range("") == before
    assert (await write(store, Put("c", b""))).revision == last.revision + 1
    await store.close()


async def test_a_watch_of_a_former_process_goes_on_with_a_snapshot(path: Path) -> None:
    store = await SqliteStore.open(path)
    first = await write(store, Put("a", b"1"))
    await write(store, Put("a", b"2"))
    await store.close()
    store = await SqliteStore.open(path)
    assert isinstance(await soon(store.watch(after_revision=first.revision)), Snapshot)
    await store.close()


async def test_leases_of_a_former_process_end_when_the_file_is_opened(path: Path) -> None:
    store = await SqliteStore.open(path)
    lease = await store.grant_lease(3)
    assert lease.deadline_s == math.inf
    await write(store, Put("broker/1", b"", lease.id), Put("stays", b""))
    revision = (await store.range("")).revision
    await store.close()
    store = await SqliteStore.open(path)
    left = await store.range("")
    assert [item.key for item in left.items] == ["stays"]
    assert left.revision == revision + 1
    await store.close()


async def test_a_second_process_is_refused_and_a_killed_one_leaves_no_lock(path: Path) -> None:
    program = (
        "import asyncio, sys, pathlib\n"
        "from logfleet.io.sqlite import SqliteStore\n"
        "from logfleet.metadata.store import Txn, Put\n"
        "async def main():\n"
        "    store = await SqliteStore.open(pathlib.Path(sys.argv[1]))\n"
        "    lease = await store.grant_lease(3)\n"
        "    await store.txn(Txn(success=[Put('a', b'kept'), Put('l', b'', lease.id)]))\n"
        "    print('ready', flush=True)\n"
        "    await asyncio.Event().wait()\n"
        "asyncio.run(main())\n"
    )
    with subprocess.Popen(
        [sys.executable, "-c", program, str(path)], stdout=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"ready\n"
        with pytest.raises(StoreLocked, match="in use by another process"):
            await SqliteStore.open(path)
        os.kill(process.pid, signal.SIGKILL)
    store = await SqliteStore.open(path)
    assert [(item.key, item.value) for item in (await store.range("")).items] == [("a", b"kept")]
    await store.close()


async def test_a_path_that_cannot_be_created_is_refused_in_one_line(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    for place in (tmp_path / "file" / "m.sqlite", Path("/proc/none/m.sqlite"), tmp_path):
        with pytest.raises(StoreRefused, match=re.escape(f"{place} cannot be opened or created")):
            await SqliteStore.open(place)


async def test_a_file_of_another_kind_or_version_is_refused(path: Path) -> None:
    path.parent.mkdir()
    path.write_bytes(b"not a database at all" * 100)
    with pytest.raises(StoreRefused, match="not a database"):
        await SqliteStore.open(path)
    path.unlink()
    with sqlite3.connect(path) as connection:
        connection.execute("PRAGMA user_version = 99")
    connection.close()
    with pytest.raises(StoreRefused, match="version 99"):
        await SqliteStore.open(path)


async def test_commits_are_synced(path: Path) -> None:
    store = await SqliteStore.open(path)
    connection = store._disk._connection
    loop = asyncio.get_running_loop()

    def pragma(name: str) -> object:
        return connection.execute(f"PRAGMA {name}").fetchone()[0]

    settings = [
        await loop.run_in_executor(store._pool, pragma, name)
        for name in ("journal_mode", "synchronous", "locking_mode")
    ]
    assert settings == ["wal", 2, "exclusive"]
    await store.close()


async def test_a_slow_disk_blocks_neither_the_loop_nor_readers(
    store: SqliteStore, monkeypatch
) -> None:
    loop = asyncio.get_running_loop()
    entered, release = asyncio.Event(), threading.Event()
    real = store._disk.write

    def slow(batch) -> None:
        loop.call_soon_threadsafe(entered.set)
        release.wait()
        real(batch)

    monkeypatch.setattr(store._disk, "write", slow)
    writing = asyncio.ensure_future(write(store, Put("a", b"1")))
    await entered.wait()
    assert await store.get("a") is None, "not durable yet, so not visible"
    release.set()
    await writing
    assert await store.get("a") is not None


async def cancelled_at_the_disk(
    store: SqliteStore, monkeypatch: pytest.MonkeyPatch, write_batch: Callable[[WatchBatch], None]
) -> None:
    """Put `a`, cancelled while the disk's thread is at it; write_batch: what that does then."""
    loop = asyncio.get_running_loop()
    entered, release = asyncio.Event(), threading.Event()

    def slow(batch: WatchBatch) -> None:
        loop.call_soon_threadsafe(entered.set)
        release.wait()
        write_batch(batch)

    monkeypatch.setattr(store._disk, "write", slow)
    writing = asyncio.ensure_future(write(store, Put("a", b"1")))
    await entered.wait()
    writing.cancel()
    loop.call_soon(release.set)
    with pytest.raises(asyncio.CancelledError):
        await writing


async def test_a_cancelled_writer_leaves_memory_and_disk_the_same(
    store: SqliteStore, monkeypatch
) -> None:
    real = store._disk.write
    await cancelled_at_the_disk(store, monkeypatch, real)
    assert await store.get("a") is not None
    monkeypatch.setattr(store._disk, "write", real)
    assert (await write(store, Put("b", b""))).succeeded


@pytest.mark.parametrize(
    "code, lives", [(sqlite3.SQLITE_FULL, True), (sqlite3.SQLITE_IOERR, False)]
)
async def test_a_cancelled_writer_whose_commit_fails_is_cancelled(
    store: SqliteStore, monkeypatch, code, lives
) -> None:
    error = sqlite3.OperationalError("it cannot be written")
    error.sqlite_errorcode = code
    real = store._disk.write

    def failing(_batch: WatchBatch) -> None:
        raise error

    await cancelled_at_the_disk(store, monkeypatch, failing)
    monkeypatch.setattr(store._disk, "write", real)
    if lives:
        assert await store.get("a") is None
        assert (await write(store, Put("b", b""))).succeeded
    else:
        with pytest.raises(StoreUnavailable, match="cannot be written"):
            await store.get("a")


async def test_a_full_disk_changes_nothing_and_is_no_end(store: SqliteStore, monkeypatch) -> None:
    real = store._disk.write
    error = sqlite3.OperationalError("database or disk is full")
    error.sqlite_errorcode = sqlite3.SQLITE_FULL

    def full(batch) -> None:
        raise error

    monkeypatch.setattr(store._disk, "write", full)
    with pytest.raises(StoreUnavailable, match="full"):
        await write(store, Put("a", b""))
    monkeypatch.setattr(store._disk, "write", real)
    assert await store.get("a") is None
    assert (await write(store, Put("a", b""))).succeeded


async def test_a_failed_sync_closes_the_store_for_good(store: SqliteStore, monkeypatch) -> None:
    def broken(batch) -> None:
        raise sqlite3.OperationalError("disk I/O error")

    monkeypatch.setattr(store._disk, "write", broken)
    with pytest.raises(UnknownOutcome, match="disk I/O error"):
        await write(store, Put("a", b""))
    with pytest.raises(StoreUnavailable, match="disk I/O error"):
        await store.get("a")


async def test_a_watch_that_falls_behind_the_kept_history_gets_a_snapshot(
    store: SqliteStore, monkeypatch
) -> None:
    monkeypatch.setattr(sqlite, "HISTORY_REVISIONS_MAX", 10)
    watch = store.watch()
    await soon(watch)
    for number in range(25):
        last = await write(store, Put("a", b"%d" % number))
    assert len(store._history) < 20
    snapshot = await soon(watch)
    assert isinstance(snapshot, Snapshot)
    assert snapshot.revision == last.revision
    await watch.aclose()


async def test_a_compaction_ahead_of_the_store_is_refused(store: SqliteStore) -> None:
    with pytest.raises(StoreRefused, match="not reached"):
        await store.compact(1000)


async def test_reads_come_with_the_branch_that_was_done(store: SqliteStore) -> None:
    result = await store.txn(Txn(success=[Get("a"), Put("b", b"")]))
    assert result.reads == (None,)
