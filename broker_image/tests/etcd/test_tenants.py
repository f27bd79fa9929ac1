"""An etcd that others use too: they write under another prefix all the time, and each of their writes takes a revision."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import pytest
import pytest_asyncio
from logfleet.io.etcd.endpoints import Addresses
from logfleet.io.etcd.store import EtcdStore
from logfleet.metadata.kinds.cluster import CLUSTER_ID
from logfleet.metadata.store import Put
from logfleet.store.loader import MetadataLoader

from broker_image.tests.contract.metadata_store import PATIENCE_S, MetadataStoreContract, write
from e2e.harness.etcd import SPEED, EtcdBinary, EtcdServer, etcd_members

pytestmark = pytest.mark.asyncio
PAUSE_S = 0.002
PROGRESS = "--experimental-watch-progress-notify-interval=100ms"


def connect(server: EtcdServer, prefix: str) -> EtcdStore:
    return EtcdStore(Addresses.parse([server.endpoint]), prefix)


@asynccontextmanager
async def neighbour(server: EtcdServer) -> AsyncIterator[None]:
    """It writes until the end."""
    store = connect(server, "/logfleet/neighbour/")

    async def writing() -> None:
        while True:
            await write(store, Put("a", b""))
            await asyncio.sleep(PAUSE_S)

    await write(store, Put("a", b""))
    task = asyncio.ensure_future(writing())
    yield
    assert not task.done()
    task.cancel()
    with suppress(asyncio.CancelledError):
        await task
    await store.close()


class TestBesideANeighbour(MetadataStoreContract):
    @pytest_asyncio.fixture
    async def store(self, server: EtcdServer) -> AsyncIterator[EtcdStore]:
        async with neighbour(server):
            store = connect(server, "/logfleet/test/")
            yield store
            await store.close()


@pytest.fixture
def telling(binary: EtcdBinary, tmp_path: Path) -> Iterator[EtcdServer]:
    """An etcd that sends progress notices often, not every ten minutes."""
    (server,) = etcd_members(binary, tmp_path, 1, speed=[*SPEED, PROGRESS])
    server.start()
    yield server
    server.close()


async def test_a_follower_reaches_the_revisions_of_others_by_progress_notices(
    telling: EtcdServer,
) -> None:
    ours, theirs = connect(telling, "/logfleet/test/"), connect(telling, "/logfleet/neighbour/")
    await write(ours, Put(CLUSTER_ID.prefix, b"id"))
    follower = MetadataLoader(ours)
    following = asyncio.ensure_future(follower.run())
    async with asyncio.timeout(PATIENCE_S):
        before = await follower.until(lambda image: image.cluster_id == "id")
        last = await write(theirs, Put("a", b""))
        image = await follower.until(lambda image: image.revision >= last.revision)
        assert image.revision > before.revision
        assert image.cluster_id == "id"
    following.cancel()
    with suppress(asyncio.CancelledError):
        await following
    await ours.close()
    await theirs.close()
