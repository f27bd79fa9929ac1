"""A broker whose transactions cannot end shows what they wait for."""

import asyncio
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from logfleet.node.metrics.transactions import transactions

from broker_image.tests.unit.node.handlers.conftest import Host
from broker_image.tests.unit.node.metrics.metric_values import metric_values
from broker_image.tests.unit.node.transactions.marker_rig import Rig


def shown(rig: Rig, *coordinators: tuple[int, int]) -> dict[str, float]:
    """What is shown. coordinators: their transactions without markers, and the uncompleted."""
    shards = [
        SimpleNamespace(coordinator=SimpleNamespace(unmarked=unmarked, uncompleted=uncompleted))
        for unmarked, uncompleted in coordinators
    ]
    room: Any = SimpleNamespace(
        markers=rig.sender, coordinators=SimpleNamespace(shards=lambda: iter(shards))
    )
    return {name: value for (name, _), value in metric_values(transactions(room)).items()}


@pytest.mark.asyncio
async def test_what_transactions_wait_for_is_shown(tmp_path: Path) -> None:
    host = Host(tmp_path / "data")
    rig = Rig(host)
    assert set(shown(rig).values()) == {0}
    host.know_topic("topic", {0: -1, 1: -1})
    rig.due("a", ("topic", 0), ("topic", 1))
    rig.due("b", ("topic", 0))
    await asyncio.sleep(0)
    assert shown(rig, (2, 4), (0, 0), (1, 1)) == {
        "logfleet_transactions_without_markers": 3,
        "logfleet_transaction_markers_leaderless": 3,
        "logfleet_transactions_uncompleted": 5,
    }
    host.close()
