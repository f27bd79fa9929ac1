"""Where members of etcd run when a Cluster's zones change."""

import json
from typing import Any

import pytest

from .operation import SETTINGS, Operation, at_rest, cluster, pool, why
from .world import World

pytestmark = pytest.mark.asyncio


@pytest.mark.parametrize("zones", [["a"], ["a", "b"]])
async def test_members_of_etcd_stay_where_their_volumes_are_when_zones_are_added(
    zones: list[str],
) -> None:
    world, operation = await at_rest(zones=zones)
    before = placement(world)
    world.put(cluster(zones=["a", "b", "c"], **pool(replicas=4)))
    await operation.until_at_rest()
    assert world.ready("Cluster", "fleet") == ("True", "Ready")
    assert placement(world) == before
    assert not any(call.startswith("evict Pod fleet-etcd") for call in world.calls)


async def test_a_zone_that_may_hold_a_volume_of_etcd_is_not_taken_away() -> None:
    world, operation = await at_rest(**pool(zones=["a", "b"]))
    before = placement(world)
    assert "podAntiAffinity" in before
    for zones, ready in (
        (["a", "b"], ("False", "NotSupported")),
        (["a", "b", "c", "typo"], ("True", "Ready")),
        (["a", "b", "c"], ("True", "Ready")),
    ):
        world.put(cluster(zones=zones, **pool(zones=["a", "b"])))
        await operation.until_at_rest()
        assert world.ready("Cluster", "fleet") == ready
        assert ("volumes of etcd may be in zone c" in why(world)) == (ready[0] == "False")
        assert placement(world) == before


async def test_zones_are_corrected_while_etcd_has_not_begun() -> None:
    world = World()
    world.broken_images = {SETTINGS.etcd_image}
    world.put(cluster(zones=["a", "b", "typo"], **pool(zones=["a", "b"])))
    operation = Operation(world)
    await operation.until_at_rest()
    world.broken_images = set()
    world.put(cluster(zones=["a", "b", "c"], **pool(zones=["a", "b"])))
    await operation.until_at_rest()
    assert world.ready("Cluster", "fleet") == ("True", "Ready")
    assert '["a", "b", "c"]' in json.dumps(placement(world))


async def test_etcd_made_again_around_its_volumes_is_not_forced_apart() -> None:
    world, operation = await at_rest(zones=["a"])
    world.remove("Cluster", "fleet")
    world.step()
    world.put(cluster(zones=["a", "b", "c"]))
    await operation.until_at_rest()
    assert world.ready("Cluster", "fleet") == ("True", "Ready")
    assert "podAntiAffinity" not in placement(world)


def placement(world: World) -> dict[str, Any]:
    """The affinity of etcd's members."""
    spec = world.one("StatefulSet", "fleet-etcd")["spec"]["template"]["spec"]
    return dict(spec["affinity"])
