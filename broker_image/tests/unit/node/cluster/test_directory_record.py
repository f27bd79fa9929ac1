import asyncio
from pathlib import Path

import pytest
import pytest_asyncio
from logfleet.io.sqlite import SqliteStore
from logfleet.metadata.image import ClusterImage, Directories
from logfleet.metadata.kinds.brokers import BROKER, DIRECTORIES, BrokerValue, DirectoriesValue
from logfleet.metadata.store import Put, StoreUnavailable, Txn, TxnResult
from logfleet.node.cluster import directory_record
from logfleet.node.cluster.directory_record import DirectoryRecord
from logfleet.replication.missing_directories import LogDirectories
from logfleet.types import BrokerEpoch

from broker_image.tests.unit.node.world_rig import world

pytestmark = pytest.mark.asyncio
HERE = LogDirectories(frozenset({"here"}))


@pytest_asyncio.fixture
async def store(tmp_path: Path):
    store = await SqliteStore.open(tmp_path / "m.db")
    yield store
    await store.close()


async def registered(store: SqliteStore) -> int:
    """The broker epoch."""
    value = BROKER.encode(BrokerValue("i", ()))
    return (await store.txn(Txn(success=[Put(BROKER.key(1), value)]))).revision


async def held(store: SqliteStore) -> bytes | None:
    item = await store.get(DIRECTORIES.key(1))
    return None if item is None else item.value


async def test_it_is_written_once_and_added_to(store) -> None:
    epoch = await registered(store)
    record = DirectoryRecord(world(store), 1, HERE)
    assert await record.keep(ClusterImage(), BrokerEpoch(epoch), ())
    assert await held(store) == b'{"ids":["here"]}'
    revision = (await store.get(DIRECTORIES.key(1))).mod_revision
    there = ClusterImage(directories={1: Directories(frozenset({"here"}), revision)})
    assert await record.keep(there, BrokerEpoch(epoch), ())
    other = DirectoryRecord(world(store), 1, LogDirectories(frozenset({"another"})))
    assert other.missing(there) == {"here"}
    assert await other.keep(there, BrokerEpoch(epoch), ())
    assert await held(store) == b'{"ids":["another","here"]}'


async def test_what_was_written_since_the_image_is_kept(store) -> None:
    epoch = await registered(store)
    value = DIRECTORIES.encode(DirectoriesValue(("theirs", "gone")))
    await store.txn(Txn(success=[Put(DIRECTORIES.key(1), value)]))
    assert await DirectoryRecord(world(store), 1, HERE).keep(
        ClusterImage(), BrokerEpoch(epoch), ["gone"]
    )
    assert await held(store) == b'{"ids":["here","theirs"]}'


async def test_a_registration_that_is_over_writes_nothing(store) -> None:
    epoch = await registered(store)
    await store.txn(Txn(success=[BROKER.delete(1)]))
    assert not await DirectoryRecord(world(store), 1, HERE).keep(
        ClusterImage(), BrokerEpoch(epoch), ()
    )
    await registered(store)
    assert not await DirectoryRecord(world(store), 1, HERE).keep(
        ClusterImage(), BrokerEpoch(epoch), ()
    )
    assert await held(store) is None


async def nobody_answers(txn: Txn) -> TxnResult:
    raise StoreUnavailable("nobody answers")


async def test_a_store_that_does_not_answer_is_asked_again_with_a_later_image(
    store, monkeypatch
) -> None:
    epoch = await registered(store)
    record = DirectoryRecord(world(store), 1, HERE)
    with monkeypatch.context() as away:
        away.setattr(directory_record, "SETTLE_S_MAX", 0.05)
        away.setattr(store, "txn", nobody_answers)
        async with asyncio.timeout(20):
            assert not await record.keep(ClusterImage(), BrokerEpoch(epoch), ())
    assert record.is_refused
    assert await record.keep(ClusterImage(), BrokerEpoch(epoch), ())
    assert not record.is_refused
