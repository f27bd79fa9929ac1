"""What replaces brokers and what does not: live keys, unknown keys, other operator versions."""

from dataclasses import replace
from typing import Any

import pytest
from logfleet_operator import names

from .operation import SETTINGS, Operation, at_rest, cluster, pool, properties_of, told, why
from .world import NAMESPACE, World

pytestmark = pytest.mark.asyncio
READY = ("True", "Ready")


def brokers(world: World) -> dict[str, str]:
    return {
        name: world.one("Pod", name)["metadata"]["uid"]
        for name in world.named("Pod")
        if "main" in name
    }


def images(world: World) -> set[str]:
    return {world.one("Pod", name)["spec"]["containers"][0]["image"] for name in brokers(world)}


async def test_a_key_that_changes_while_brokers_run_replaces_none_and_can_be_taken_away() -> None:
    world, operation = await at_rest()
    before = brokers(world)
    world.put(cluster(config={"log.retention.ms": 1000, "min.insync.replicas": 1}))
    await operation.until_at_rest()
    assert world.ready("Cluster", "fleet") == READY
    assert world.dynamic_config == {"log.retention.ms": "1000", "min.insync.replicas": "1"}
    world.put(cluster(config={"min.insync.replicas": 2}))
    await operation.until_at_rest()
    assert world.dynamic_config == {"min.insync.replicas": "2"}
    assert brokers(world) == before
    changes = [note for _, reason, note in told(world, "Cluster") if reason == "ConfigChanged"]
    assert changes[0] == "log.retention.ms, min.insync.replicas"


async def test_a_key_is_set_at_once_though_its_spec_was_accepted_after_topics_were_looked_at() -> (
    None
):
    world, operation = await at_rest(config={"log.retention.ms": 1000})
    world.put(cluster(config={"log.retention.ms": 2000}))
    for reconcile in (operation.topics, operation.clusters, operation.topics):
        await reconcile.reconcile(NAMESPACE, "fleet")
    assert world.dynamic_config == {"log.retention.ms": "2000"}


async def test_a_key_that_brokers_read_when_they_start_replaces_each_once() -> None:
    world, operation = await at_rest()
    before = brokers(world)
    world.put(cluster(config={"num.partitions": 4}))
    await operation.until_at_rest()
    assert not set(before.values()) & set(brokers(world).values())
    properties = properties_of(world)
    assert "num.partitions=4" in properties
    assert world.dynamic_config == {}


async def test_an_unknown_key_is_a_warning_and_replaces_nothing() -> None:
    world, operation = await at_rest()
    before = brokers(world)
    world.put(cluster(config={"log.retention.mss": 1}))
    await operation.until_at_rest()
    assert world.ready("Cluster", "fleet") == READY
    assert brokers(world) == before
    said = "spec.config.log.retention.mss: brokers know no such key, it is ignored"
    assert world.one("Cluster", "fleet")["status"]["warnings"] == [said]
    assert [each for each in told(world, "Cluster") if each[0] == "Warning"] == [
        ("Warning", "ConfigWarning", said)
    ]


async def test_what_brokers_refuse_of_it_is_a_warning_until_it_is_corrected() -> None:
    world, operation = await at_rest()
    world.forbidden_keys = {"log.retention.ms"}
    world.put(cluster(config={"log.retention.ms": 1000}))
    await operation.until_at_rest()
    (said,) = world.one("Cluster", "fleet")["status"]["warnings"]
    assert "the brokers refuse it: INVALID_CONFIG: of no use here" in said
    world.put(cluster())
    await operation.until_at_rest()
    assert world.one("Cluster", "fleet")["status"]["warnings"] == []


async def test_of_a_spec_that_is_refused_nothing_is_set() -> None:
    world, operation = await at_rest()
    world.put(cluster(config={"log.retention.ms": 1000, "num.partitions": "many"}))
    await operation.until_at_rest()
    assert world.dynamic_config == {}


NEWER: dict[str, Any] = {"broker_image": "logfleet/broker:2"}


async def test_another_version_of_the_operator_replaces_no_broker_by_itself() -> None:
    """Strimzi rolls every cluster when it is upgraded (issues 2791, 2307)."""
    world, _ = await at_rest(**pool())
    before = brokers(world)
    newer = Operation(world, replace(SETTINGS, **NEWER))
    await newer.until_at_rest()
    assert brokers(world) == before
    assert world.ready("Cluster", "fleet") == READY
    world.put(cluster(**pool(replicas=4)))
    await newer.until_at_rest()
    assert brokers(world).items() > before.items(), "one more, and the others stay"


@pytest.mark.parametrize(
    "spec",
    [{"config": {"num.partitions": 4}}, {"image": "logfleet/broker:2"}, {}],
    ids=["config", "image", "annotation"],
)
async def test_its_way_of_making_pods_comes_with_the_next_change_or_when_asked_for(
    spec: dict[str, Any],
) -> None:
    world, _ = await at_rest()
    newer = Operation(world, replace(SETTINGS, **NEWER))
    await newer.until_at_rest()
    document = cluster(**spec)
    if not spec:
        document["metadata"]["annotations"] = {names.RENEW_ANNOTATION: "1"}
    world.put(document)
    await newer.until_at_rest()
    assert images(world) == {"logfleet/broker:2"}
    assert world.ready("Cluster", "fleet") == READY, why(world)


async def test_the_annotation_replaces_every_broker_once_also_without_another_version() -> None:
    world, operation = await at_rest()
    before = brokers(world)
    document = cluster()
    document["metadata"]["annotations"] = {names.RENEW_ANNOTATION: "2026-01-01"}
    world.put(document)
    await operation.until_at_rest()
    assert not set(before.values()) & set(brokers(world).values())
    evicted = [call for call in world.calls if call.startswith("evict")]
    assert evicted == [f"evict Pod fleet-main-{zone}-0" for zone in "abc"]


async def test_a_template_that_somebody_else_changed_is_put_back() -> None:
    world, operation = await at_rest()
    live = world.one("StatefulSet", "fleet-main-a")
    before = live["spec"]["template"]["spec"]["containers"][0]["image"]
    container = {**live["spec"]["template"]["spec"]["containers"][0], "image": "else"}
    pod = {**live["spec"]["template"]["spec"], "containers": [container]}
    spec = {**live["spec"], "template": {**live["spec"]["template"], "spec": pod}}
    world.touch({**live, "metadata": {**live["metadata"], "generation": 9}, "spec": spec})
    await operation.until_at_rest()
    found = world.one("StatefulSet", "fleet-main-a")["spec"]["template"]["spec"]
    assert found["containers"][0]["image"] == before
