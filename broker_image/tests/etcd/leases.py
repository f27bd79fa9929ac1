"""What tests do to leases, and wait for of them."""

import asyncio
import contextlib

import pytest
from logfleet.io.etcd.lease import EtcdLease
from logfleet.io.etcd.store import EtcdStore
from logfleet.metadata.store import Lease


async def kept_until(lease: Lease, deadline_s: float) -> None:
    """Return when the lease has been renewed so far."""
    async with asyncio.timeout(20):
        while lease.deadline_s <= deadline_s:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(lease.lost(), 0.05)
                pytest.fail("the lease is lost")


async def revoke_for_another(store: EtcdStore, lease_id: int) -> None:
    """End the lease of another store. Its holder learns that with the next renewal."""
    await store._revoke(EtcdLease(lease_id, 15, 0, revoke=store._revoke))
