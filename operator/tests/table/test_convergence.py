"""The operator may die after any call, or lose any answer: what comes out is the same."""

import asyncio
from collections.abc import Callable
from dataclasses import replace

import pytest

from .disturbances import DISTURBANCES, die_after
from .operation import SETTINGS, Operation, cluster, topic
from .world import Death, Manifest, World

# Of the calls: each part is a test, so that several workers share them.
PARTS = 4


def fleet(brokers: int, image: str) -> Manifest:
    return cluster(
        zones=["a", "b"],
        pools=[{"name": "main", "replicas": brokers, "storage": {"size": "2Gi"}}],
        metadata={"managed": {"replicas": 1}},
        image=image,
    )


def they_come(world: World, _: Operation) -> None:
    world.put(fleet(2, "logfleet/broker:1"))
    world.put(topic("flights"))
    world.put(topic("weather", partitions=2))
    world.put(topic("kept", deletionPolicy="Retain"))


def they_change(world: World, operation: Operation) -> None:
    world.put(topic("flights", partitions=8, config={"retention.ms": 1000}))
    operation.delete_topic("weather")
    operation.delete_topic("kept")
    world.put(fleet(3, "logfleet/broker:2"))


# The operator of the second act is a newer one, which replaces etcd's only member first: all leases
# of brokers end with it, just when all of them are out of date.
ACTS = ((they_come, SETTINGS), (they_change, replace(SETTINGS, etcd_image="etcd:2")))


async def tell(world: World) -> None:
    """Person and operator act in turn; an operator that dies is started again, knowing nothing."""
    for act, settings in ACTS:
        operation = Operation(world, settings)
        act(world, operation)
        try:
            await operation.until_at_rest()
        except Death:
            world.after_call = lambda _: None
            operation = Operation(world, settings)
            await operation.until_at_rest()


async def undisturbed() -> World:
    world = World()
    await tell(world)
    return world


@pytest.fixture(scope="module")
def expected() -> World:
    return asyncio.run(undisturbed())


def test_the_story_ends_well(expected: World) -> None:
    assert expected.ready("Cluster", "fleet") == ("True", "Ready")
    assert expected.ready("Topic", "flights") == ("True", "Ready")
    assert sorted(expected.topics) == ["flights", "kept"]
    assert expected.topics["flights"].partitions == 8
    assert expected.topics["flights"].config == {"retention.ms": "1000"}
    brokers = [name for name in expected.named("Pod") if "main" in name]
    assert brokers == ["fleet-main-a-0", "fleet-main-a-1", "fleet-main-b-0"]
    for name in brokers:
        assert expected.one("Pod", name)["spec"]["containers"][0]["image"] == "logfleet/broker:2"


@pytest.mark.parametrize("part", range(PARTS))
@pytest.mark.parametrize("disturb", DISTURBANCES)
def test_any_single_disturbance_changes_nothing_in_the_end(
    disturb: Callable[[World, int], None], part: int, expected: World
) -> None:
    writes = [
        number
        for number, call in enumerate(expected.calls)
        if not call.startswith(("get", "list", "describe", "create Event"))
    ]
    wanted = expected.snapshot()
    assert len(writes) > 40
    for number in writes[
        part::PARTS
    ]:  # readings change nothing: to die at one is to die at the write before
        world = World()
        disturb(world, number)
        asyncio.run(tell(world))
        assert world.snapshot() == wanted, f"after call {number}: {expected.calls[number]}"
        assert world.taken_most == 1, f"after call {number}: {expected.calls[number]}"


def test_no_pod_restarts_twice_when_the_operator_dies_in_a_roll(expected: World) -> None:
    goings = ("evict Pod", "delete Pod")
    numbers = [number for number, call in enumerate(expected.calls) if call.startswith(goings)]
    assert len(numbers) == 3
    for number in numbers:
        world = World()
        die_after(world, number)
        asyncio.run(tell(world))
        gone = [call.split()[-1] for call in world.calls if call.startswith(goings)]
        assert sorted(gone) == ["fleet-etcd-0", "fleet-main-a-0", "fleet-main-b-0"]
