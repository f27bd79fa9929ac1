"""Which brokers are added and replaced, and when."""

import json
from datetime import timedelta

import pytest
from logfleet_operator import names
from logfleet_operator.clusters.observed import FRESH
from logfleet_operator.settings import Settings

from .operation import Operation, at_rest, cluster, pool, why
from .world import World

pytestmark = pytest.mark.asyncio


async def test_brokers_are_added_where_fewest_are_and_the_budget_follows() -> None:
    world, operation = await at_rest(**pool(replicas=2))
    assert "fleet-main-c" not in world.named("StatefulSet")
    world.put(cluster(**pool(replicas=4)))
    await operation.round()
    assert len([name for name in world.named("Pod") if "main" in name]) == 4
    assert world.one("PodDisruptionBudget", "fleet-brokers")["spec"]["minAvailable"] == 1
    await operation.until_at_rest()
    assert world.one("PodDisruptionBudget", "fleet-brokers")["spec"]["minAvailable"] == 3
    ranges = json.loads(world.one("ConfigMap", "fleet-record")["data"]["ranges"])
    assert [(given["zone"], given["base"], given["replicas"]) for given in ranges] == [
        ("a", 0, 2),
        ("b", 1000, 1),
        ("c", 2000, 1),
    ]


async def test_the_budget_follows_the_brokers_that_are_ready_while_one_is_not() -> None:
    world, operation = await at_rest(**pool(replicas=2))
    world.idle_pods = {"fleet-main-c-0"}
    world.put(cluster(**pool(replicas=4)))
    await operation.until_at_rest()
    assert world.ready("Cluster", "fleet") == ("False", "Progressing")
    # Three are ready: one more may be away, and no two.
    assert world.one("PodDisruptionBudget", "fleet-brokers")["spec"]["minAvailable"] == 2
    # What was reached is kept when brokers get lost.
    world.idle_pods = {"fleet-main-a-0", "fleet-main-b-0", "fleet-main-c-0"}
    await operation.until_at_rest()
    assert world.one("PodDisruptionBudget", "fleet-brokers")["spec"]["minAvailable"] == 2


async def test_a_roll_replaces_one_broker_at_a_time() -> None:
    world, operation = await at_rest()
    world.put(cluster(config={"num.partitions": 4}))
    absent = 0
    for _ in range(30):
        await operation.worker.resync()
        while (key := operation.worker.queue.take(world.now_s)) is not None:
            await operation.worker.work_on(key)
        pods = [name for name in world.named("Pod") if "main" in name]
        absent = max(absent, 3 - len(pods))
        world.step()
        world.now_s += 12
    assert absent == 1
    evicted = [call for call in world.calls if call.startswith("evict")]
    assert evicted == [f"evict Pod fleet-main-{zone}-0" for zone in "abc"]
    assert world.ready("Cluster", "fleet") == ("True", "Ready")


STEP_S = 4.0


async def evictions(world: World, operation: Operation, *, until: int) -> list[float]:
    """When pods were evicted, in small steps of time: `until` so many, or those of an hour."""
    times: list[float] = []
    begun = world.now_s
    while len(times) < until and world.now_s < begun + 3600:
        await operation.worker.resync()
        while (key := operation.worker.queue.take(world.now_s)) is not None:
            await operation.worker.work_on(key)
        count = sum(call.startswith("evict") for call in world.calls)
        times += [world.now_s] * (count - len(times))
        world.step()
        world.now_s += STEP_S
    return times


@pytest.mark.parametrize("ahead_s", [-600, -20, 0, 20, 600])
async def test_one_that_is_back_settles_for_half_a_minute_whatever_the_clocks_of_nodes_say(
    ahead_s: int,
) -> None:
    world, _ = await at_rest()
    operation = Operation(world, ahead=timedelta(seconds=ahead_s))
    world.put(cluster(config={"num.partitions": 4}))
    first, second, third = await evictions(world, operation, until=3)
    for wait in (second - first, third - second):
        assert FRESH.total_seconds() <= wait <= FRESH.total_seconds() + 4 * STEP_S


@pytest.mark.parametrize("ahead_s, waits", [(0, False), (-3600, True)])
async def test_an_operator_that_begins_in_a_roll_waits_for_half_a_minute_at_most(
    ahead_s: int,
    waits: bool,  # noqa: FBT001  # a column of the table
) -> None:
    """And not at all for one that has been ready for long, where the node's clock is not ahead."""
    world, operation = await at_rest()
    world.put(cluster(config={"num.partitions": 4}))
    await evictions(world, operation, until=1)
    world.step()
    world.now_s += FRESH.total_seconds()  # nobody operates meanwhile
    begun = world.now_s
    second = Operation(world, ahead=timedelta(seconds=ahead_s))
    _, after = await evictions(world, second, until=2)
    assert (after - begun >= FRESH.total_seconds()) == waits
    assert after - begun <= FRESH.total_seconds() + 2 * STEP_S


async def test_a_budget_that_forbids_an_eviction_is_obeyed() -> None:
    world, operation = await at_rest()
    world.disruptions_allowed = False
    world.put(cluster(image="logfleet/broker:2"))
    for _ in range(6):
        await operation.round()
    assert world.ready("Cluster", "fleet") == ("False", "Progressing")
    assert "replacing fleet-main-a-0" in why(world)
    assert broker_images(world) == {"logfleet/broker:1"}
    world.disruptions_allowed = True
    await operation.until_at_rest()
    assert broker_images(world) == {"logfleet/broker:2"}


async def test_a_second_budget_which_no_eviction_survives_is_told_until_it_goes() -> None:
    world, operation = await at_rest()
    theirs = {
        "kind": "PodDisruptionBudget",
        "metadata": {"name": "theirs"},
        "spec": {
            "minAvailable": 1,
            "selector": {"matchLabels": names.selector("fleet", names.BROKER)},
        },
    }
    world.put(theirs)
    world.put(cluster(image="logfleet/broker:2"))
    for _ in range(6):
        await operation.round()
    assert world.ready("Cluster", "fleet") == ("False", "Progressing")
    assert "more than one PodDisruptionBudget" in why(world)
    assert broker_images(world) == {"logfleet/broker:1"}
    world.remove("PodDisruptionBudget", "theirs")
    await operation.until_at_rest()
    assert world.ready("Cluster", "fleet") == ("True", "Ready")
    assert broker_images(world) == {"logfleet/broker:2"}


def broker_images(world: World) -> set[str]:
    return {
        world.one("Pod", name)["spec"]["containers"][0]["image"]
        for name in world.named("Pod")
        if "main" in name
    }


async def test_a_broken_image_stops_at_the_first_broker_and_the_fix_takes_over() -> None:
    world, operation = await at_rest()
    world.broken_images = {"broken"}
    world.put(cluster(image="broken"))
    for _ in range(10):
        await operation.round()
    images = [
        world.one("Pod", name)["spec"]["containers"][0]["image"]
        for name in world.named("Pod")
        if "main" in name
    ]
    assert sorted(images) == ["broken", "logfleet/broker:1", "logfleet/broker:1"]
    assert "fleet-main-a-0: ImagePullBackOff" in why(world)
    world.put(cluster(image="logfleet/broker:3"))
    await operation.until_at_rest()
    assert world.ready("Cluster", "fleet") == ("True", "Ready")


async def test_a_fleet_that_never_ran_is_replaced_at_once() -> None:
    world = World()
    world.broken_images = {"broken"}
    world.put(cluster(image="broken"))
    operation = Operation(world)
    for _ in range(6):
        await operation.round()
    world.put(cluster(image="logfleet/broker:3"))
    await operation.until_at_rest()
    assert world.ready("Cluster", "fleet") == ("True", "Ready")
    assert not any(call.startswith("evict") for call in world.calls)


async def test_brokers_without_a_lease_for_a_moment_are_still_replaced_one_at_a_time() -> None:
    metadata = {"managed": {"replicas": 1}}
    world, _ = await at_rest(metadata=metadata)
    # An operator of a newer version: etcd's only member goes first, and takes all leases along.
    settings = Settings(broker_image="logfleet/broker:1", etcd_image="etcd:2")
    world.put(cluster(metadata=metadata, image="logfleet/broker:2"))
    operation = Operation(world, settings)
    lost = False
    for _ in range(20):
        await operation.round()
        lost = lost or world.one("Cluster", "fleet")["status"]["readyReplicas"] == 0
    assert lost
    assert world.taken_most == 1
    assert world.ready("Cluster", "fleet") == ("True", "Ready")
    images = {
        world.one("Pod", name)["spec"]["containers"][0]["image"] for name in world.named("Pod")
    }
    assert images == {"etcd:2", "logfleet/broker:2"}


@pytest.mark.parametrize("replicas", [1, 2, 3])
async def test_a_fleet_that_runs_and_is_never_ready_is_replaced_one_by_one(replicas: int) -> None:
    world = World()
    world.idle_images = {"idle"}
    world.put(cluster(image="idle", **pool(replicas=replicas)))
    operation = Operation(world)
    for _ in range(6):
        await operation.round()
    assert world.ready("Cluster", "fleet") == ("False", "Progressing")
    world.put(cluster(image="logfleet/broker:3", **pool(replicas=replicas)))
    await operation.until_at_rest()
    assert world.ready("Cluster", "fleet") == ("True", "Ready")
    assert world.taken_most == 1
