"""The configuration a broker restarts with: its file changes with its pod, not before."""

import copy
from typing import Any

import pytest
from logfleet_operator import names
from logfleet_operator.clusters.may_i import MayIAnswer
from logfleet_operator.clusters.pods import config_of

from .operation import Operation, at_rest, cluster, pool, properties_of, why
from .world import World

pytestmark = pytest.mark.asyncio
READY = ("True", "Ready")
BROKERS = [f"fleet-main-{zone}-0" for zone in "abc"]


def yes(_: frozenset[int]) -> MayIAnswer:
    return MayIAnswer(may=True)


def files(world: World) -> dict[str, tuple[str, str]]:
    """Broker -> its configuration, and the port that its start script reads."""
    found = {}
    for name in BROKERS:
        zone = "abc".index(name.split("-")[2])
        ports = world.one("ConfigMap", "fleet-config")["data"]
        found[name] = properties_of(world, "Pod", name), ports.get(f"external.{zone * 1000}", "")
    return found


def configs(world: World) -> list[str]:
    return [name for name in world.named("ConfigMap") if name.startswith("fleet-config")]


async def some_rounds(operation: Operation) -> None:
    for _ in range(6):
        await operation.round()


LISTENERS = cluster()["spec"]["listeners"]
CHANGES: dict[str, dict[str, Any]] = {
    "a key": {"config": {"num.partitions": 4}},
    "a listener less": {"listeners": LISTENERS[:1]},
    "a listener of another name": {"listeners": [LISTENERS[0], {**LISTENERS[1], "name": "wide"}]},
}


@pytest.mark.parametrize("what", CHANGES)
async def test_files_stay_as_they_are_until_the_brokers_pod_is_replaced(what: str) -> None:
    world, operation = await at_rest()
    before = files(world)
    world.may_i = lambda _: None  # nobody answers: nobody may go
    world.put(cluster(**CHANGES[what]))
    await some_rounds(operation)
    assert files(world) == before
    assert world.ready("Cluster", "fleet") == ("False", "Progressing")
    assert "waiting to replace fleet-main-a-0" in why(world)
    world.may_i = yes
    await operation.until_at_rest()
    assert world.ready("Cluster", "fleet") == READY
    assert all(files(world)[name] != before[name] for name in BROKERS)
    used = {config_of(world.one("Pod", name)["spec"]) for name in BROKERS}
    assert len(used) == 1
    assert configs(world) == sorted({"fleet-config", *used}), "what nobody starts with is gone"


async def test_in_the_middle_of_a_roll_each_has_the_file_of_its_own_pod() -> None:
    world, operation = await at_rest()
    world.may_i = lambda brokers: MayIAnswer(may=True) if brokers == {0} else None
    world.put(cluster(config={"num.partitions": 4}))
    await some_rounds(operation)
    has = ["num.partitions=4" in properties_of(world, "Pod", name) for name in BROKERS]
    assert has == [True, False, False]
    assert len(configs(world)) == 3
    world.put(cluster())
    world.may_i = yes
    await operation.until_at_rest()
    assert "num.partitions=4" not in properties_of(world, "Pod", "fleet-main-a-0")
    assert len(configs(world)) == 2


async def test_edits_while_nobody_may_be_replaced_leave_no_files_that_nobody_starts_with() -> None:
    world, operation = await at_rest()
    world.may_i = lambda _: None
    for partitions in range(2, 8):
        world.put(cluster(config={"num.partitions": partitions}))
        await some_rounds(operation)
    used = {config_of(world.one("Pod", name)["spec"]) for name in BROKERS}
    wanted = config_of(world.one("StatefulSet", "fleet-main-a")["spec"]["template"]["spec"])
    assert configs(world) == sorted({"fleet-config", *used, wanted})
    assert "num.partitions=7" in properties_of(world)


async def test_more_brokers_get_ports_and_no_other_file_changes() -> None:
    world, operation = await at_rest(**pool())
    before, uids = (
        files(world),
        {name: world.one("Pod", name)["metadata"]["uid"] for name in BROKERS},
    )
    world.put(cluster(**pool(replicas=6)))
    await operation.until_at_rest()
    assert world.ready("Cluster", "fleet") == READY
    assert files(world) == before
    assert "external.2001" in world.one("ConfigMap", "fleet-config")["data"]
    assert {name: world.one("Pod", name)["metadata"]["uid"] for name in BROKERS} == uids


def as_by_an_operator_of_before(world: World) -> None:
    """It kept all files in one ConfigMap."""

    def older(template: dict[str, Any]) -> dict[str, Any]:
        template = copy.deepcopy(template)
        volumes = template["spec"]["volumes"]
        kept = [each for each in volumes if each["name"] not in {"config", "ports"}]
        file = {"name": "config", "configMap": {"name": "fleet-config"}}
        template["spec"]["volumes"] = [file, *kept]
        template["metadata"]["annotations"][names.MADE_ANNOTATION] = "older"
        return template

    config = copy.deepcopy(world.one("ConfigMap", "fleet-config"))
    config["data"]["server.properties"] = "written.by=an older one\n"
    world.touch(config)
    for name in configs(world)[1:]:
        world.remove("ConfigMap", name)
    for zone in "abc":
        live = copy.deepcopy(world.one("StatefulSet", f"fleet-main-{zone}"))
        live["spec"]["template"] = older(live["spec"]["template"])
        live["metadata"]["generation"] += 1
        world.touch(live)
        world.remove("Pod", f"fleet-main-{zone}-0")
    world.step()
    world.step()


async def test_an_operator_that_comes_later_changes_no_file_of_pods_that_it_does_not_replace() -> (
    None
):
    world, _ = await at_rest()
    as_by_an_operator_of_before(world)
    before, uids = (
        files(world),
        {name: world.one("Pod", name)["metadata"]["uid"] for name in BROKERS},
    )
    assert before["fleet-main-a-0"][0] == "written.by=an older one\n"
    operation = Operation(world)
    await operation.until_at_rest()
    assert world.ready("Cluster", "fleet") == READY
    assert files(world) == before
    assert {name: world.one("Pod", name)["metadata"]["uid"] for name in BROKERS} == uids
    world.put(cluster(config={"num.partitions": 4}))
    await operation.until_at_rest()
    assert world.ready("Cluster", "fleet") == READY
    assert all("num.partitions=4" in text for text, _ in files(world).values())
    assert "server.properties" not in world.one("ConfigMap", "fleet-config")["data"]
    assert len(configs(world)) == 2


async def test_no_pod_is_to_start_with_a_file_that_cannot_be_made() -> None:
    world, operation = await at_rest()
    world.refused = {("ConfigMap", "fleet-config"): "exceeded quota"}
    world.put(cluster(**pool(replicas=6), image="logfleet/broker:2"))
    await some_rounds(operation)
    assert len([name for name in world.named("Pod") if "main" in name]) == 3
    assert "waiting for ConfigMap fleet-config" in why(world)
    assert "Kubernetes refuses ConfigMap fleet-config: exceeded quota" in why(world)
    world.refused = {}
    await operation.until_at_rest()
    assert world.ready("Cluster", "fleet") == READY
