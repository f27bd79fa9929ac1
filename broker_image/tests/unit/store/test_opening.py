import sys
from pathlib import Path

import pytest
from logfleet.config.broker import broker_config
from logfleet.io.etcd.store import EtcdStore
from logfleet.io.sqlite import SqliteStore
from logfleet.metadata.store import StoreLocked, StoreRefused
from logfleet.store.opening import EMBEDDED_FILE, open_store

pytestmark = pytest.mark.asyncio


async def test_without_a_word_it_is_embedded_beside_the_data(tmp_path: Path) -> None:
    config = broker_config({"log.dirs": f"{tmp_path}/one,{tmp_path}/two"})
    store = await open_store(config)
    assert isinstance(store, SqliteStore)
    assert (tmp_path / "one" / EMBEDDED_FILE).exists()
    await store.close()


ETCD = {"logfleet.metadata.store": "etcd", "node.id": "1"}


async def test_a_fleet_has_its_own_prefix_in_etcd() -> None:
    config = broker_config(
        {**ETCD, "logfleet.etcd.endpoints": "a:1,b:2", "logfleet.cluster.name": "prod"}
    )
    store = await open_store(config)
    assert isinstance(store, EtcdStore)
    assert store._codec.key("ctl") == b"/logfleet/prod/ctl"
    await store.close()


@pytest.mark.parametrize(
    "keys, why",
    [
        ({"logfleet.etcd.endpoints": "nowhere"}, "host:port"),
        ({"logfleet.etcd.endpoints": "https://a:1"}, "needs a CA"),
        (
            {
                "logfleet.etcd.endpoints": "a:1",
                "logfleet.etcd.ca.location": "/none/ca.crt",
                "logfleet.etcd.cert.location": "/none/crt",
                "logfleet.etcd.key.location": "/none/key",
            },
            "/none/ca.crt",
        ),
    ],
)
async def test_what_cannot_be_reached_is_reported_at_once(keys, why) -> None:
    with pytest.raises(StoreRefused, match=why):
        await open_store(broker_config({**ETCD, **keys}))


async def test_libraries_of_etcd_that_are_missing_are_one_sentence(monkeypatch) -> None:
    monkeypatch.setitem(sys.modules, "logfleet.io.etcd.endpoints", None)
    with pytest.raises(StoreRefused, match=r"pip install 'logfleet\[etcd\]'$"):
        await open_store(broker_config({**ETCD, "logfleet.etcd.endpoints": "a:1"}))


async def test_an_open_store_is_not_opened_twice(tmp_path: Path) -> None:
    config = broker_config({"log.dirs": str(tmp_path)})
    store = await open_store(config)
    with pytest.raises(StoreLocked):
        await open_store(config)
    await store.close()
