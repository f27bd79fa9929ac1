"""Snapshots on disk: whole or missing, a limited number; restored only into an empty store."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio
from logfleet.io.sqlite import SqliteStore
from logfleet.metadata.kinds.cluster import CLUSTER_ID
from logfleet.metadata.kinds.topics import TOPIC
from logfleet.metadata.snapshot_file import DamagedSnapshot
from logfleet.metadata.store import Put, Txn
from logfleet.node.tools import metadata_snapshots
from logfleet.node.tools.metadata_snapshots import (
    EmptyStore,
    NotEmpty,
    read,
    restore,
    snapshots,
    take,
)

pytestmark = pytest.mark.asyncio


@pytest_asyncio.fixture
async def store(tmp_path: Path) -> AsyncIterator[SqliteStore]:
    opened = await SqliteStore.open(tmp_path / "store.db")
    await opened.txn(Txn((), (Put(CLUSTER_ID.prefix, b"abc"), Put(TOPIC.key("t"), b"{}"))))
    yield opened
    await opened.close()


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    made = tmp_path / "backup"
    made.mkdir()
    return made


async def test_the_newest_are_kept_and_other_files_are_let_be(
    store: SqliteStore, directory: Path
) -> None:
    (directory / "notes.txt").write_text("mine")
    for number in range(4):
        await store.txn(Txn((), (Put(TOPIC.key(f"t{number}"), b"{}"),)))
        last = await take(store, "fleet", directory, keep=2)
    assert len(snapshots(directory, "fleet")) == 2
    assert max(snapshots(directory, "fleet")) == last
    assert (directory / "notes.txt").exists()
    _, items = read(last)
    assert items[CLUSTER_ID.prefix] == b"abc"


async def test_two_clusters_with_one_directory_keep_their_own(
    store: SqliteStore, directory: Path
) -> None:
    """A name that begins as the other one does is another one, too."""
    one = await take(store, "air.one", directory, keep=1)
    two = await take(store, "air.one-2", directory, keep=1)
    assert snapshots(directory, "air.one") == [one]
    assert snapshots(directory, "air.one-2") == [two]


async def test_what_is_empty_takes_no_place(directory: Path, tmp_path: Path) -> None:
    """An etcd that lost its data, while the schedule goes on."""
    empty = await SqliteStore.open(tmp_path / "empty.db")
    with pytest.raises(EmptyStore, match="no snapshot is taken of what is empty"):
        await take(empty, "fleet", directory, keep=1)
    await empty.close()
    assert list(directory.iterdir()) == []


async def test_one_that_ends_in_the_middle_leaves_the_others_and_counts_for_nothing(
    store: SqliteStore, directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = await take(store, "fleet", directory, keep=1)
    await store.txn(Txn((), (Put(TOPIC.key("u"), b"{}"),)))

    def full(*_: object) -> bytes:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(metadata_snapshots, "encode", full)
    with pytest.raises(OSError, match="No space left"):
        await take(store, "fleet", directory, keep=1)
    monkeypatch.setattr(metadata_snapshots, "encode", lambda *_: b"half of it")
    with pytest.raises(DamagedSnapshot):
        await take(store, "fleet", directory, keep=1)
    assert snapshots(directory, "fleet") == [before]


async def test_it_is_restored_into_an_empty_store_and_into_no_other(
    store: SqliteStore, directory: Path, tmp_path: Path
) -> None:
    for number in range(200):
        await store.txn(Txn((), (Put(TOPIC.key(f"t{number}"), b"{}"),)))
    _, items = read(await take(store, "fleet", directory, keep=1))
    with pytest.raises(NotEmpty):
        await restore(store, items)
    empty = await SqliteStore.open(tmp_path / "empty.db")
    try:
        await empty.txn(Txn((), (Put(TOPIC.key("t0"), b"half"),)))
        assert await restore(empty, items) == len(items) + 1
        found = {item.key: item.value for item in (await empty.range("")).items}
        assert {key: found[key] for key in items} == items
        with pytest.raises(NotEmpty):
            await restore(empty, items)
    finally:
        await empty.close()
