from pathlib import Path

import msgspec
import pytest
import pytest_asyncio
from logfleet import __version__
from logfleet.io.sqlite import SqliteStore
from logfleet.metadata.kinds.cluster import FEATURES, FeaturesValue
from logfleet.node.cluster.joining import join_cluster, new_cluster_id
from logfleet.node.cluster.registration.errors import WrongCluster
from logfleet.wire import uuids

pytestmark = pytest.mark.asyncio


@pytest_asyncio.fixture
async def store(tmp_path: Path):
    store = await SqliteStore.open(tmp_path / "m.db")
    yield store
    await store.close()


async def test_the_first_broker_names_the_cluster_and_the_others_take_its_name(store) -> None:
    first = await join_cluster(store, None)
    assert len(first) == 22
    assert await join_cluster(store, None) == first
    assert await join_cluster(store, first) == first


async def test_cluster_ids_are_kafkas() -> None:
    ids = {new_cluster_id() for _ in range(500)}
    assert len(ids) == 500
    assert not any(each.startswith("-") for each in ids)
    assert all(len(uuids.from_text(each)) == 16 for each in ids)


async def test_data_of_another_cluster_is_refused_and_nothing_is_written(store) -> None:
    mine = await join_cluster(store, None)
    before = await store.range("")
    with pytest.raises(WrongCluster, match=f"cluster other, the metadata store to {mine}"):
        await join_cluster(store, "other")
    assert await store.range("") == before


async def test_a_store_that_lost_its_cluster_gets_no_new_one_from_a_broker_with_data(store) -> None:
    with pytest.raises(WrongCluster, match="knows no cluster"):
        await join_cluster(store, "mine")
    assert (await store.range("")).items == ()


async def level(store) -> FeaturesValue | None:
    held = await store.get(FEATURES.prefix)
    return None if held is None else msgspec.json.decode(held.value, type=FeaturesValue)


async def test_a_new_cluster_begins_with_the_level_of_the_broker_that_makes_it(store) -> None:
    await join_cluster(store, None, level=2)
    assert await level(store) == FeaturesValue(2, __version__)
    assert await join_cluster(store, None, level=3)
    assert await level(store) == FeaturesValue(2, __version__)
