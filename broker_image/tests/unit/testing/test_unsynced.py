import asyncio
import os
from pathlib import Path

import pytest
from logfleet.config.broker import broker_config
from logfleet.io.files import write_file
from logfleet.io.sqlite import SqliteStore
from logfleet.metadata.store import Put, Txn
from logfleet.testing.settings import broker_settings
from logfleet.testing.unsynced import UnsyncedFiles, open_unsynced_store

SYNCHRONOUS = "PRAGMA synchronous"


def test_files_do_not_wait_for_the_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def waits(descriptor: int) -> None:
        raise AssertionError(f"fsync({descriptor})")

    monkeypatch.setattr(os, "fsync", waits)
    files = UnsyncedFiles()
    write_file(files, str(tmp_path / "file"), b"text", durable=True)
    assert (tmp_path / "file").read_bytes() == b"text"


@pytest.mark.asyncio
async def test_a_store_does_not_wait_and_keeps_what_was_written(tmp_path: Path) -> None:
    config = broker_config(broker_settings(1, 9092, str(tmp_path)))
    store = await open_unsynced_store(config)
    assert isinstance(store, SqliteStore)
    loop = asyncio.get_running_loop()
    row = await loop.run_in_executor(store._pool, store._disk._connection.execute, SYNCHRONOUS)
    assert (await loop.run_in_executor(store._pool, row.fetchone)) == (0,)
    await store.txn(Txn((), (Put("/key", b"value"),)))
    await store.close()
    store = await open_unsynced_store(config)
    found = await store.get("/key")
    assert found is not None
    assert found.value == b"value"
    await store.close()
