"""A Cluster's version: first its image, then the feature level, which the brokers raise."""

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import pytest
from logfleet.controller.brokers.feature_level import FeatureLevel

from .disturbances import DISTURBANCES
from .operation import SETTINGS, Operation, at_rest, cluster, told, why
from .world import Death, World

pytestmark = pytest.mark.asyncio
NAMED = "Broker 2 only supports versions 1-1"


def images(world: World) -> set[str]:
    pods = (world.one("Pod", name) for name in world.named("Pod") if "main" in name)
    return {pod["spec"]["containers"][0]["image"] for pod in pods}


def levels(world: World) -> tuple[int, int]:
    status: dict[str, Any] = world.one("Cluster", "fleet")["status"]
    return status["featureLevel"], status["featureLevelPossible"]


async def of_level_1() -> tuple[World, Operation]:
    """A fleet whose brokers are of a version that can do level 1."""
    world = World()
    world.replicas.feature_level = FeatureLevel(1, 1)
    world.put(cluster())
    operation = Operation(world)
    await operation.until_at_rest()
    return world, operation


async def test_a_version_is_rolled_to_and_the_level_stays() -> None:
    world, operation = await of_level_1()
    world.put(cluster(version="0.2.0"))
    await operation.until_at_rest()
    assert images(world) == {"logfleet/broker:0.2.0"}
    world.replicas.feature_level = FeatureLevel(1, 2)
    await operation.until_at_rest()
    assert levels(world) == (1, 2)
    assert world.ready("Cluster", "fleet") == ("True", "Ready")
    world.put(cluster(version="0.1.0"))  # the way back is open
    await operation.until_at_rest()
    assert images(world) == {"logfleet/broker:0.1.0"}
    assert world.replicas.raises == []


async def test_an_image_counts_instead_of_the_version() -> None:
    world, operation = await at_rest(version="0.2.0")
    world.put(cluster(version="0.2.0", image="mine:1"))
    await operation.until_at_rest()
    assert images(world) == {"mine:1"}


def uids(world: World) -> dict[str, str]:
    return {name: world.one("Pod", name)["metadata"]["uid"] for name in world.named("Pod")}


async def test_an_operator_with_another_default_image_replaces_no_pod() -> None:
    """A member of etcd keeps the image of its gate until it is replaced for another reason."""
    world, _ = await at_rest()
    before = uids(world)
    newer = replace(SETTINGS, broker_image="logfleet/broker:2")
    await Operation(world, newer).until_at_rest()
    assert uids(world) == before
    assert world.ready("Cluster", "fleet") == ("True", "Ready")
    await Operation(world, replace(newer, etcd_image="etcd:2")).until_at_rest()
    assert world.ready("Cluster", "fleet") == ("True", "Ready")
    gates = {
        world.one("Pod", f"fleet-etcd-{ordinal}")["spec"]["initContainers"][0]["image"]
        for ordinal in range(3)
    }
    assert gates == {"logfleet/broker:2"}


async def test_a_level_waits_until_all_brokers_can_do_it_and_says_who_cannot() -> None:
    world, operation = await of_level_1()
    world.replicas.feature_level = FeatureLevel(1, 1, NAMED)
    world.put(cluster(featureLevel=2))
    for _ in range(3):
        await operation.round()
    assert world.ready("Cluster", "fleet") == ("False", "Progressing")
    assert f"feature level 2 waits: {NAMED}" in why(world)
    assert levels(world) == (1, 1)
    assert world.replicas.raises == []
    world.replicas.feature_level = FeatureLevel(1, 2)
    await operation.until_at_rest()
    assert levels(world) == (2, 2)
    assert world.ready("Cluster", "fleet") == ("True", "Ready")
    assert world.replicas.raises == [2]
    assert ("Normal", "FeatureLevelRaised", "to 2") in told(world, "Cluster")


async def test_the_level_is_raised_after_the_roll_not_before() -> None:
    world, operation = await of_level_1()
    world.replicas.feature_level = FeatureLevel(1, 2)
    world.put(cluster(version="0.2.0", featureLevel=2))
    while not world.replicas.raises:
        await operation.round()
    assert images(world) == {"logfleet/broker:0.2.0"}
    raised = next(n for n, call in enumerate(world.calls) if call.startswith("raise"))
    evicted = [n for n, call in enumerate(world.calls) if call.startswith("evict")]
    assert len(evicted) == 3
    assert max(evicted) < raised


async def test_a_spec_of_less_than_there_is_lowers_nothing_and_is_warned_of() -> None:
    world, _ = await at_rest(featureLevel=1)
    assert world.replicas.raises == []
    assert levels(world) == (2, 2)
    assert world.ready("Cluster", "fleet") == ("True", "Ready")
    (warning,) = world.one("Cluster", "fleet")["status"]["warnings"]
    assert "spec.featureLevel is 1, the brokers are at 2" in warning


async def test_while_no_broker_answers_what_was_told_last_stays() -> None:
    world, operation = await at_rest(featureLevel=2)
    world.replicas.answers = False
    await operation.until_at_rest()
    assert levels(world) == (2, 2)
    assert world.ready("Cluster", "fleet") == ("True", "Ready")
    world.put(cluster(featureLevel=3))
    await operation.round()
    assert world.ready("Cluster", "fleet") == ("False", "Progressing")
    assert "feature level 3 waits: no broker answers" in why(world)


async def upgraded(disturb: Callable[[World], None]) -> World:
    world, operation = await of_level_1()
    world.replicas.feature_level = FeatureLevel(1, 2)
    world.calls.clear()
    disturb(world)
    world.put(cluster(version="0.2.0", featureLevel=2))
    try:
        await operation.until_at_rest()
    except Death:
        world.after_call = lambda _: None
        await Operation(world).until_at_rest()
    return world


def _at(disturb: Callable[[World, int], None], number: int, world: World) -> None:
    disturb(world, number)


@pytest.mark.parametrize("disturb", DISTURBANCES)
async def test_an_operator_that_is_disturbed_at_any_write_ends_where_it_would(
    disturb: Callable[[World, int], None],
) -> None:
    expected = await upgraded(lambda _: None)
    assert levels(expected) == (2, 2)
    writes = [
        number
        for number, call in enumerate(expected.calls)
        if not call.startswith(("get", "list", "describe", "level of", "create Event"))
    ]
    assert any(expected.calls[number].startswith("raise") for number in writes)
    for number in writes:
        world = await upgraded(partial(_at, disturb, number))
        assert world.snapshot() == expected.snapshot(), expected.calls[number]
        assert world.replicas.feature_level == FeatureLevel(2, 2), expected.calls[number]
        assert world.taken_most == 1, expected.calls[number]
