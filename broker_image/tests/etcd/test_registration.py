"""Registrations whose holders freeze or die, on a real etcd."""

import asyncio
from pathlib import Path

import pytest
from logfleet.io.clock import boot_s
from logfleet.io.etcd.endpoints import Addresses
from logfleet.io.etcd.store import EtcdStore
from logfleet.metadata.kinds.brokers import BrokerValue
from logfleet.node.cluster.registration.registrar import Registrar, Registration
from logfleet.store.loader import MetadataLoader

from broker_image.tests.contract.metadata_store import PATIENCE_S, until_absent
from broker_image.tests.etcd.leases import kept_until
from broker_image.tests.unit.node.world_rig import world
from e2e.harness.etcd import EtcdBinary, EtcdServer, etcd_cluster

pytestmark = pytest.mark.asyncio


async def test_the_id_of_a_dead_process_is_taken_over_after_its_lease(
    server: EtcdServer, store: EtcdStore
) -> None:
    dead = EtcdStore(Addresses.parse([server.endpoint]), "/logfleet/test/")
    broker = Registering(dead, "old")
    old = await broker.registered()
    await broker.stop()
    await dead.close()
    broker = Registering(store, "new")
    assert (await broker.registered()).epoch > old.epoch
    await broker.stop()


class Registering:
    """A broker that stays registered. calls: what its registrar has reported, oldest first."""

    def __init__(self, store: EtcdStore, incarnation: str = "one") -> None:
        self.calls: asyncio.Queue[Registration | str] = asyncio.Queue()
        self.registrar = Registrar(
            world(store),
            follower := MetadataLoader(store),
            1,
            BrokerValue(incarnation, ()),
            on_registered=self.calls.put_nowait,
            on_lost=self.calls.put_nowait,
            ttl_s=3,
        )
        self._tasks = [asyncio.ensure_future(each.run()) for each in (follower, self.registrar)]

    async def registered(self) -> Registration:
        async with asyncio.timeout(PATIENCE_S):
            call = await self.calls.get()
        assert isinstance(call, Registration)
        return call

    async def stop(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.wait(self._tasks)


async def test_a_broker_cut_off_for_longer_than_its_lease_registers_anew(
    binary: EtcdBinary, tmp_path: Path
) -> None:
    """Its only member freezes. The others end its lease; it learns that when it is back."""
    with etcd_cluster(binary, tmp_path, 3) as servers:
        mine, *others = (
            EtcdStore(Addresses.parse([server.endpoint]), "/logfleet/test/") for server in servers
        )
        broker = Registering(mine)
        first = await broker.registered()
        servers[0].pause()
        await until_absent(others[0], "broker/1")
        assert broker.calls.empty(), "while nobody answers, no lease has ended"
        servers[0].resume()
        async with asyncio.timeout(PATIENCE_S):
            assert await broker.calls.get() in ("the lease has ended", "the registration is gone")
        second = await broker.registered()
        assert second.epoch > first.epoch
        await broker.stop()
        await broker.registrar.unregister()
        assert await others[0].get("broker/1") is None
        for store in (mine, *others):
            await store.close()


async def test_a_registration_outlives_an_outage_of_etcd(
    server: EtcdServer, store: EtcdStore
) -> None:
    """A restarted etcd grants all leases their full time again (lessor.Promote)."""
    broker = Registering(store)
    registration = await broker.registered()
    server.kill()
    async with asyncio.timeout(PATIENCE_S):
        while boot_s() <= registration.lease.deadline_s:  # noqa: ASYNC110
            await asyncio.sleep(0.05)
    server.start()
    await kept_until(registration.lease, boot_s())
    assert broker.calls.empty()
    assert broker.registrar.registration is registration
    await broker.stop()
