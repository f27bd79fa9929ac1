"""Volumes grow, or cannot, or do not; a refused size stops nothing else."""

import copy
from collections.abc import Mapping
from typing import Any

import pytest

from .operation import Operation, at_rest, cluster, pool, told, why
from .world import World

pytestmark = pytest.mark.asyncio

READY = ("True", "Ready")
REFUSED = ("False", "NotSupported")
WAITS = ("False", "Progressing")


def pods(world: World) -> list[str]:
    return [name for name in world.named("Pod") if "etcd" not in name]


def let_grow(world: World) -> None:
    world.touch({**world.objects["StorageClass", "", "zonal"], "allowVolumeExpansion": True})


def status(world: World) -> dict[str, Any]:
    found: dict[str, Any] = world.one("Cluster", "fleet")["status"]
    return found


def images(world: World) -> set[str]:
    return {world.one("Pod", name)["spec"]["containers"][0]["image"] for name in pods(world)}


async def rounds(operation: Operation, count: int = 4) -> None:
    """Of what is waited for there is no rest."""
    for _ in range(count):
        await operation.round()


def tell_of_claims(world: World, *conditions: Mapping[str, str]) -> None:
    """What resizer and kubelets write into the claims' status."""
    for name in world.named("PersistentVolumeClaim"):
        if "etcd" not in name:
            live = world.one("PersistentVolumeClaim", name)
            said = {**live["status"], "conditions": list(conditions)}
            world.touch({**live, "metadata": {**live["metadata"]}, "status": said})


def sizes(world: World) -> set[str]:
    return {
        world.one("PersistentVolumeClaim", name)["spec"]["resources"]["requests"]["storage"]
        for name in world.named("PersistentVolumeClaim")
        if "etcd" not in name
    }


async def test_volumes_grow_and_no_pod_goes() -> None:
    world, operation = await at_rest(**pool())
    world.touch({**world.objects["StorageClass", "", "zonal"], "allowVolumeExpansion": True})
    before = {name: world.one("Pod", name)["metadata"]["uid"] for name in pods(world)}
    world.put(cluster(**pool(storage={"size": "9Gi"})))
    await operation.until_at_rest()
    assert sizes(world) == {"9Gi"}
    assert world.ready("Cluster", "fleet") == READY
    assert {name: world.one("Pod", name)["metadata"]["uid"] for name in pods(world)} == before
    world.put(cluster(**pool(replicas=4, storage={"size": "9Gi"})))
    await operation.until_at_rest()
    assert (sizes(world), len(pods(world))) == ({"9Gi"}, 4)
    world.put(cluster(**pool(storage={"size": "9Gi"})))
    await operation.until_at_rest()
    assert (sizes(world), len(pods(world))) == ({"9Gi"}, 3), "a mark does not make them small again"


async def test_volumes_that_cannot_grow_are_told_and_the_way_back_is_open() -> None:
    world, operation = await at_rest(**pool())
    world.put(cluster(**pool(storage={"size": "9Gi"})))
    await operation.until_at_rest()
    assert world.ready("Cluster", "fleet") == REFUSED
    assert "does not allow volumes to grow (allowVolumeExpansion); write 2Gi" in why(world)
    assert status(world)["pools"] == [{"name": "main", "size": "2Gi"}], (
        "which the CRD compares with"
    )
    world.put(cluster(**pool()))
    await operation.until_at_rest()
    assert world.ready("Cluster", "fleet") == READY
    assert sizes(world) == {"2Gi"}
    world.put(cluster(**pool(storage={"size": "1Gi"})))
    await operation.until_at_rest()
    assert "its volumes have 2Gi of class (the default one): they only grow" in why(world)


async def test_a_size_that_cannot_be_had_keeps_no_image_from_being_rolled_to() -> None:
    world, operation = await at_rest(**pool())
    world.put(cluster(**pool(storage={"size": "9Gi"}), image="logfleet/broker:2"))
    await operation.until_at_rest()
    assert images(world) == {"logfleet/broker:2"}
    assert world.ready("Cluster", "fleet") == REFUSED
    assert status(world)["conditions"][1]["reason"] == "Refused"
    assert why(world).startswith("spec.pools[main].storage.size: StorageClass")


async def test_a_size_that_cannot_be_had_is_told_beside_what_is_under_way() -> None:
    world, operation = await at_rest(**pool())
    world.broken_images = {"logfleet/broker:broken"}
    world.put(cluster(**pool(storage={"size": "9Gi"}), image="logfleet/broker:broken"))
    await operation.until_at_rest()
    assert world.ready("Cluster", "fleet") == REFUSED
    assert "spec.pools[main].storage.size" in why(world)
    assert "waiting for fleet-main-a-0" in why(world)
    assert status(world)["conditions"][1]["reason"] == "ReplacingPods"


async def test_a_size_that_cannot_be_had_keeps_no_broker_from_leaving_or_coming() -> None:
    world, operation = await at_rest(**pool(replicas=6))
    world.replicas.counts = dict.fromkeys((0, 1, 1000, 1001, 2000, 2001), 10)
    world.put(cluster(**pool(replicas=3, storage={"size": "9Gi"})))
    await operation.until_at_rest()
    assert len(pods(world)) == 3
    assert sorted(world.replicas.forgotten) == [1, 1001, 2001]
    world.put(cluster(**pool(replicas=4, storage={"size": "9Gi"})))
    world.replicas.counts |= {1: 0}
    await operation.until_at_rest()
    assert len(pods(world)) == 4
    assert max(world.replicas.counts.values()) - min(world.replicas.counts.values()) <= 1
    assert world.ready("Cluster", "fleet") == REFUSED
    assert status(world)["spreading"] is False


async def test_a_size_that_cannot_be_had_keeps_no_feature_level_from_being_raised() -> None:
    world, operation = await at_rest(**pool(), featureLevel=2)
    world.replicas.feature_level = type(world.replicas.feature_level)(2, 3)
    world.put(cluster(**pool(storage={"size": "9Gi"}), featureLevel=3))
    await operation.until_at_rest()
    assert world.replicas.raises == [3]
    assert world.ready("Cluster", "fleet") == REFUSED


async def test_volumes_that_nobody_grows_are_told_with_what_can_be_done() -> None:
    world, operation = await at_rest(**pool())
    let_grow(world)
    world.resizes = False
    world.put(cluster(**pool(storage={"size": "20Ti"})))
    await rounds(operation)
    assert sizes(world) == {"20Ti"}
    assert world.ready("Cluster", "fleet") == WAITS
    assert status(world)["conditions"][1]["reason"] == "GrowingVolumes"
    assert "data-fleet-main-a-0 has 2Gi of 20Ti (asked for at 2026-01-01T" in why(world)
    assert status(world)["warnings"] == [], "it takes a while"
    await rounds(operation, 20)
    first, *_ = status(world)["warnings"]
    assert "nothing has begun to grow it" in first
    assert "write a size above 2Gi that its StorageClass can give" in first
    assert ("Warning", "ClusterWarning", first) in told(world, "Cluster")
    assert status(world)["pools"] == [{"name": "main", "size": "2Gi"}]


@pytest.mark.parametrize(
    "conditions, sentence",
    [
        (
            {"type": "ControllerResizeError", "message": "quota exceeded"},
            (
                "(ControllerResizeError since 2026-01-01T00:09:00Z: quota exceeded); mend that, or "
                "write"
            ),
        ),
        (
            {"type": "FileSystemResizePending", "message": "waiting for a pod"},
            (
                "have its pod start again: `logfleet may-i stop ID && kubectl delete pod "
                "fleet-main-a-0`"
            ),
        ),
    ],
)
async def test_what_a_claim_says_of_its_resize_is_told(
    conditions: dict[str, str], sentence: str
) -> None:
    world, operation = await at_rest(**pool())
    let_grow(world)
    world.resizes = False
    world.put(cluster(**pool(storage={"size": "9Gi"})))
    await rounds(operation, 2)
    tell_of_claims(
        world, {**conditions, "status": "True", "lastTransitionTime": "2026-01-01T00:09:00Z"}
    )
    await rounds(operation, 24)
    assert conditions["message"] in why(world)
    assert sentence in status(world)["warnings"][0]
    world.resizes = True
    await operation.until_at_rest()
    assert world.ready("Cluster", "fleet") == READY
    assert status(world)["warnings"] == []


async def test_volumes_that_nobody_grows_keep_no_image_from_being_rolled_to() -> None:
    world, operation = await at_rest(**pool())
    let_grow(world)
    world.resizes = False
    world.put(cluster(**pool(storage={"size": "20Ti"}), image="logfleet/broker:2"))
    await rounds(operation, 20)
    assert images(world) == {"logfleet/broker:2"}
    assert world.ready("Cluster", "fleet") == WAITS


async def test_a_size_that_nobody_gave_is_taken_back_as_far_as_kubernetes_lets() -> None:
    world, operation = await at_rest(**pool())
    let_grow(world)
    world.resizes = False
    world.put(cluster(**pool(storage={"size": "20Ti"})))
    await rounds(operation)
    world.put(cluster(**pool()))
    await operation.until_at_rest()
    assert world.ready("Cluster", "fleet") == READY, "it has what is written"
    assert "still asks for 20Ti" in status(world)["warnings"][0]
    assert "a size above 2Gi only" in status(world)["warnings"][0]
    world.put(cluster(**pool(storage={"size": "3Gi"})))
    await rounds(operation)
    assert sizes(world) == {"3Gi"}
    world.resizes = True
    await operation.until_at_rest()
    assert world.ready("Cluster", "fleet") == READY
    assert status(world)["warnings"] == []
    assert status(world)["pools"] == [{"name": "main", "size": "3Gi"}]


def grown_by_hand(world: World) -> None:
    """What `kubectl edit pvc` and a resizer do."""
    for name in world.named("PersistentVolumeClaim"):
        if "etcd" not in name:
            live = copy.deepcopy(world.one("PersistentVolumeClaim", name))
            live["spec"]["resources"]["requests"]["storage"] = "9Gi"
            live["status"]["capacity"]["storage"] = "9Gi"
            world.touch(live)


@pytest.mark.parametrize("knows_what_was_accepted", [True, False])
async def test_volumes_that_a_person_made_larger_than_the_spec_are_no_fault_of_it(
    *,
    knows_what_was_accepted: bool,
) -> None:
    world, _ = await at_rest(**pool())
    grown_by_hand(world)
    if not knows_what_was_accepted:  # the record of an operator of before
        record = copy.deepcopy(world.one("ConfigMap", "fleet-record"))
        del record["data"]["accepted"]
        world.touch(record)
    world.remove("Service", "fleet-bootstrap")
    operation = Operation(world)
    await operation.until_at_rest()
    assert world.ready("Cluster", "fleet") == READY
    assert "fleet-bootstrap" in world.named("Service")
    world.put(cluster(**pool(), image="logfleet/broker:2"))
    await operation.until_at_rest()
    assert images(world) == {"logfleet/broker:2"}
    assert sizes(world) == {"9Gi"}
