import asyncio

import msgspec
import pytest
import pytest_asyncio
from logfleet.io.sqlite import SqliteStore
from logfleet.metadata.image import ClusterImage
from logfleet.metadata.image_builder import CorruptMetadataError
from logfleet.metadata.kinds.brokers import BROKER
from logfleet.metadata.kinds.configs import BROKER_CONFIG
from logfleet.metadata.store import Put, Txn
from logfleet.store import loader as metadata_loader
from logfleet.store.loader import MetadataLoader

PATIENCE_S = 20
pytestmark = pytest.mark.asyncio


@pytest_asyncio.fixture
async def store(tmp_path):
    store = await SqliteStore.open(tmp_path / "metadata")
    yield store
    await store.close()


@pytest_asyncio.fixture
async def follower(store):
    follower = MetadataLoader(store)
    async with asyncio.TaskGroup() as tasks:
        task = tasks.create_task(follower.run())
        yield follower
        task.cancel()


async def configure(store: SqliteStore, number: int) -> int:
    value = msgspec.json.encode({"n": str(number)})
    return (await store.txn(Txn(success=[Put(BROKER_CONFIG.key(number), value)]))).revision


async def test_what_was_there_before_comes_as_one_change_of_everything(store, monkeypatch):
    monkeypatch.setattr(metadata_loader, "SLICE_KEYS", 2)
    for number in range(5):
        revision = await configure(store, number)
    follower = MetadataLoader(store)
    subscription = follower.subscribe()
    async with asyncio.timeout(PATIENCE_S), asyncio.TaskGroup() as tasks:
        task = tasks.create_task(follower.run())
        image, changes = await subscription.next()
        task.cancel()
    assert changes.everything
    assert image.revision == revision
    assert len(image.broker_configs) == 5


async def test_a_subscriber_gets_what_changed_since_its_last_check(store, follower):
    subscription = follower.subscribe()
    async with asyncio.timeout(PATIENCE_S):
        await subscription.next()
        await configure(store, 1)
        await follower.until_revision(await configure(store, 2))
        image, changes = await subscription.next()
    assert not changes.everything
    assert changes.broker_configs
    assert set(image.broker_configs) == {1, 2}
    assert image is follower.image


async def test_a_late_subscriber_begins_with_everything(store, follower):
    async with asyncio.timeout(PATIENCE_S):
        await follower.until_revision(await configure(store, 1))
        subscription = follower.subscribe()
        image, changes = await subscription.next()
        assert changes.everything
        assert image is follower.image
        follower.unsubscribe(subscription)
        await follower.until_revision(await configure(store, 2))
    waiting = asyncio.ensure_future(subscription.next())
    await asyncio.sleep(0)
    assert not waiting.done()
    waiting.cancel()


async def test_waiting_ends_with_the_image_that_was_waited_for(store, follower):
    def has_two(image: ClusterImage) -> bool:
        return 2 in image.broker_configs

    async with asyncio.timeout(PATIENCE_S):
        waiting = asyncio.ensure_future(follower.until(has_two))
        await follower.until_revision(await configure(store, 1))
        assert not waiting.done()
        await configure(store, 2)
        assert has_two(await waiting)
        assert has_two(await follower.until(has_two)), "what holds already needs no waiting"


async def test_a_cancelled_wait_leaves_nothing_behind(follower):
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0):
            await follower.until_revision(10**9)
    assert follower._waiters == {}


async def test_a_corrupt_value_ends_the_following(store):
    await store.txn(Txn(success=[Put(BROKER.key(1), b"{")]))
    async with asyncio.timeout(PATIENCE_S):
        with pytest.raises(CorruptMetadataError, match="broker/1"):
            await MetadataLoader(store).run()


async def test_following_ends_when_the_store_is_closed(store):
    follower = MetadataLoader(store)
    async with asyncio.timeout(PATIENCE_S), asyncio.TaskGroup() as tasks:
        tasks.create_task(follower.run())
        await follower.until(lambda image: image.revision > 0)
        await store.close()
