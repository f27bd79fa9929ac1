"""Registrations whose holders freeze or die, on a real etcd."""

import asyncio

import pytest
from logfleet.io.etcd.endpoints import Addresses
from logfleet.io.etcd.store import EtcdStore
from logfleet.metadata.keys import BrokerValue
from logfleet.node.cluster.metadata_follower import MetadataFollower
from logfleet.node.cluster.registration import Registrar, Registration, register

from e2e.harness.etcd import EtcdServer

pytestmark = pytest.mark.asyncio


async def test_the_id_of_a_dead_process_is_taken_over_after_its_lease(
    server: EtcdServer, store: EtcdStore
) -> None:
    dead = EtcdStore(Addresses.parse([server.endpoint]), "/logfleet/test/")
    old = await register(dead, 1, BrokerValue("old", ()), ttl_s=3)
    await dead.close()
    new = await register(store, 1, BrokerValue("new", ()), ttl_s=3)
    assert new.epoch > old.epoch


async def test_a_broker_cut_off_for_longer_than_its_lease_registers_anew(
    server: EtcdServer, store: EtcdStore
) -> None:
    calls: asyncio.Queue[Registration | str] = asyncio.Queue()
    follower = MetadataFollower(store)
    registrar = Registrar(
        store,
        follower,
        1,
        BrokerValue("one", ()),
        on_registered=calls.put_nowait,
        on_lost=calls.put_nowait,
        ttl_s=3,
    )
    tasks = [asyncio.ensure_future(each.run()) for each in (follower, registrar)]
    async with asyncio.timeout(30):
        first = await calls.get()
        assert isinstance(first, Registration)
        server.pause()
        assert await calls.get() == "the lease has ended"
        assert registrar.registration is None
        server.resume()
        second = await calls.get()
        assert isinstance(second, Registration)
        assert second.epoch > first.epoch
    for task in tasks:
        task.cancel()
    await asyncio.wait(tasks)
    await registrar.leave()
    assert await store.get("broker/1") is None


async def test_a_registration_that_outlived_an_outage_of_etcd_is_replaced_at_once(
    server: EtcdServer, store: EtcdStore
) -> None:
    calls: asyncio.Queue[Registration | str] = asyncio.Queue()
    follower = MetadataFollower(store)
    registrar = Registrar(
        store,
        follower,
        1,
        BrokerValue("one", ()),
        on_registered=calls.put_nowait,
        on_lost=calls.put_nowait,
        ttl_s=8,
    )
    tasks = [asyncio.ensure_future(each.run()) for each in (follower, registrar)]
    async with asyncio.timeout(40):
        first = await calls.get()
        assert isinstance(first, Registration)
        server.kill()
        assert await calls.get() == "the lease has ended"
        server.start()  # grants the lease its whole TTL anew
        back_s = asyncio.get_running_loop().time()
        second = await calls.get()
        assert isinstance(second, Registration)
        assert asyncio.get_running_loop().time() - back_s < first.lease.ttl_s
    for task in tasks:
        task.cancel()
    await asyncio.wait(tasks)
