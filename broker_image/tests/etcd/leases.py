"""What tests wait for of a lease."""

import asyncio
import contextlib

import pytest
from logfleet.metadata.store import Lease


async def kept_until(lease: Lease, deadline_s: float) -> None:
    """Return when the lease has been renewed so far."""
    async with asyncio.timeout(20):
        while lease.deadline_s <= deadline_s:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(lease.lost(), 0.05)
                pytest.fail("the lease is lost")
