"""Admission webhooks and policies that change what the operator applies."""

import pytest
from logfleet_operator import names

from .operation import Operation, at_rest, cluster, why
from .world import Manifest, World

pytestmark = pytest.mark.asyncio

IMAGE = "spec.template.spec.containers[broker].image"


def mirror(live: Manifest) -> None:
    """What a webhook for a mirror of a registry does."""
    if live["kind"] == "StatefulSet":
        container = live["spec"]["template"]["spec"]["containers"][0]
        container["image"] = f"mirror.example/{container['image'].removeprefix('mirror.example/')}"


def images(world: World) -> set[str]:
    return {
        world.one("Pod", name)["spec"]["containers"][0]["image"]
        for name in world.named("Pod")
        if "main" in name
    }


def applied(world: World) -> list[str]:
    return [call for call in world.calls if call.startswith("apply")]


async def under(world: World) -> Operation:
    world.put(cluster())
    operation = Operation(world)
    await operation.until_at_rest()
    return operation


async def test_a_rewritten_field_is_told_and_keeps_no_cluster_from_being_ready() -> None:
    world = World()
    world.webhook = mirror
    operation = await under(world)
    assert world.ready("Cluster", "fleet") == ("True", "Ready")
    assert images(world) == {"mirror.example/logfleet/broker:1"}
    assert f"StatefulSet fleet-main-a ({IMAGE})" in why(world)
    world.put(cluster(image="logfleet/broker:2"))
    await operation.until_at_rest()
    assert world.ready("Cluster", "fleet") == ("True", "Ready")
    assert images(world) == {"mirror.example/logfleet/broker:2"}


async def test_what_came_back_rewritten_is_applied_once_a_minute() -> None:
    world = World()
    world.webhook = mirror
    operation = await under(world)
    world.calls.clear()
    for _ in range(16):  # a little more than four minutes
        await operation.round()
    sets = world.named("StatefulSet")
    assert sorted(applied(world)) == sorted(4 * [f"apply StatefulSet {name}" for name in sets])


async def test_what_a_webhook_rewrote_is_as_written_once_it_is_gone() -> None:
    world = World()
    world.webhook = mirror
    operation = await under(world)
    world.webhook = lambda _: None
    for _ in range(30):
        await operation.round()
    assert images(world) == {"logfleet/broker:1"}
    assert why(world) == "all brokers are ready"


async def test_what_another_changes_after_that_is_changed_back_at_once() -> None:
    world = World()
    world.webhook = mirror
    operation = await under(world)
    live = world.one("StatefulSet", "fleet-main-a")
    live["spec"]["template"]["spec"]["containers"][0]["image"] = "theirs"
    world.touch(live)
    await operation.round()
    image = world.one("StatefulSet", "fleet-main-a")["spec"]["template"]["spec"]["containers"][0]
    assert image["image"] == "mirror.example/logfleet/broker:1"


@pytest.mark.parametrize(
    "kind, name", [("ConfigMap", "fleet-record"), ("Service", "fleet-brokers")]
)
async def test_what_the_operator_must_read_again_may_not_be_rewritten(kind: str, name: str) -> None:
    def webhook(live: Manifest) -> None:
        if (live["kind"], live["metadata"]["name"]) == (kind, name):
            if kind == "ConfigMap":
                live["data"]["ranges"] = "[]"
            else:
                live["metadata"]["labels"].pop(names.CLUSTER_LABEL, None)

    world, operation = await at_rest()
    world.webhook = webhook
    world.remove(kind, name)
    await operation.until_at_rest()
    assert world.ready("Cluster", "fleet") == ("False", "Conflict")
    assert f"{kind} {name}" in why(world)
    world.calls.clear()
    await operation.round()
    assert applied(world) == [f"apply {kind} {name}"]
    world.webhook = lambda _: None
    await operation.until_at_rest()
    assert world.ready("Cluster", "fleet") == ("True", "Ready")


async def test_a_cap_on_replicas_is_a_conflict() -> None:
    def cap(live: Manifest) -> None:
        if live["kind"] == "StatefulSet" and "main" in live["metadata"]["name"]:
            live["spec"]["replicas"] = 1

    world = World()
    world.webhook = cap
    world.put(cluster(zones=[]))
    await Operation(world).until_at_rest()
    assert world.ready("Cluster", "fleet") == ("False", "Conflict")
    assert "StatefulSet fleet-main is stored with another spec.replicas" in why(world)
