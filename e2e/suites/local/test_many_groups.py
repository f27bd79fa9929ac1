"""Many consumer groups on one broker."""

import asyncio

import pytest

from e2e.bench.groups import CONFIG, GROUPS, SIZE, run
from e2e.harness.processes import Rig


@pytest.mark.timeout(900)
@pytest.mark.full
def test_a_thousand_groups_with_ten_thousand_members(rig: Rig) -> None:
    """They come to be, live, commit, rebalance, and go on where they were when their coordinator was killed."""
    broker = rig.broker(CONFIG)
    asyncio.run(run(broker, GROUPS, SIZE, quick=True))
    assert broker.metric("logfleet_group_members") == 10_000
    assert broker.metric("logfleet_group_offsets") == 10_000, "each member committed one"
