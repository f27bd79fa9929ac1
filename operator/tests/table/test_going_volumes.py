"""A volume claim that somebody deleted stays with its pod: reported, and no roll takes the pod."""

from dataclasses import replace

import pytest

from .operation import SETTINGS, Operation, at_rest, cluster, told, why
from .world import World

pytestmark = pytest.mark.asyncio

GOING = "data-fleet-main-a-0"


def delete_claim(world: World, name: str) -> None:
    """What `kubectl delete pvc` does while a pod uses it (Storage Object in Use Protection)."""
    live = world.one("PersistentVolumeClaim", name)
    metadata = {**live["metadata"], "deletionTimestamp": "2026-01-01T00:00:00Z"}
    world.touch({**live, "metadata": metadata})


def delete_pod(world: World, name: str) -> None:
    """The claim that was kept goes with it."""
    world.remove("Pod", name)
    world.remove("PersistentVolumeClaim", f"data-{name}")


def uids(world: World, part: str) -> dict[str, str]:
    return {
        name: world.one("Pod", name)["metadata"]["uid"]
        for name in world.named("Pod")
        if part in name
    }


def warnings(world: World) -> list[str]:
    found: list[str] = world.one("Cluster", "fleet")["status"]["warnings"]
    return found


def changed(before: dict[str, str], after: dict[str, str]) -> set[str]:
    return {name for name, uid in after.items() if before[name] != uid}


async def rounds(operation: Operation, count: int) -> None:
    for _ in range(count):
        await operation.round()


async def test_a_claim_that_goes_with_its_pod_is_told_with_the_risk_and_what_to_do() -> None:
    world, operation = await at_rest()
    delete_claim(world, GOING)
    await operation.until_at_rest()
    assert world.ready("Cluster", "fleet") == ("True", "Ready")
    (said,) = warnings(world)
    assert f"PersistentVolumeClaim {GOING} is being deleted: its disk" in said
    assert "`logfleet may-i stop ID && kubectl delete pod fleet-main-a-0`" in said
    assert ("Warning", "ClusterWarning", said) in told(world, "Cluster")


async def test_a_roll_leaves_a_pod_whose_disk_would_go_and_says_so() -> None:
    world, operation = await at_rest()
    delete_claim(world, GOING)
    before = uids(world, "main")
    world.put(cluster(image="logfleet/broker:2"))
    await rounds(operation, 12)
    assert changed(before, uids(world, "main")) == {"fleet-main-b-0", "fleet-main-c-0"}
    assert "not replacing fleet-main-a-0: out of date, but the disk goes with the pod" in why(world)
    assert world.ready("Cluster", "fleet") == ("False", "Progressing")
    delete_pod(world, "fleet-main-a-0")
    await operation.until_at_rest()
    assert world.ready("Cluster", "fleet") == ("True", "Ready")
    assert warnings(world) == []


async def test_a_pod_that_cannot_run_keeps_its_disk_as_well() -> None:
    """It had records before its image was changed to one that cannot be pulled."""
    world, operation = await at_rest()
    world.broken_images = {"logfleet/broker:broken"}
    world.put(cluster(image="logfleet/broker:broken"))
    await operation.until_at_rest()
    delete_claim(world, GOING)
    before = uids(world, "main")
    world.put(cluster(image="logfleet/broker:2"))
    await rounds(operation, 12)
    assert changed(before, uids(world, "main")) == set(), (
        "the budget lets no other one go beside it"
    )
    delete_pod(world, "fleet-main-a-0")
    await operation.until_at_rest()
    assert world.ready("Cluster", "fleet") == ("True", "Ready")


async def test_a_member_of_etcd_whose_disk_would_go_stays_and_all_others_are_replaced() -> None:
    world, operation = await at_rest()
    delete_claim(world, "data-fleet-etcd-0")
    before = uids(world, "fleet")
    operation = Operation(world, replace(SETTINGS, etcd_image="etcd:2"))
    world.put(cluster(image="logfleet/broker:2"))
    await rounds(operation, 24)
    assert before.keys() - changed(before, uids(world, "fleet")) == {"fleet-etcd-0"}
    assert "not replacing fleet-etcd-0: out of date, but the disk goes with the pod" in why(world)
    (said,) = warnings(world)
    assert "while a majority of the other members is ready" in said


async def test_a_member_of_etcd_that_is_held_and_not_ready_holds_up_no_broker() -> None:
    world, _ = await at_rest()
    delete_claim(world, "data-fleet-etcd-0")
    world.idle_pods = {"fleet-etcd-0"}
    world.step()
    before = uids(world, "fleet")
    operation = Operation(world, replace(SETTINGS, etcd_image="etcd:2"))
    world.put(cluster(image="logfleet/broker:2"))
    await rounds(operation, 20)
    assert changed(before, uids(world, "fleet")) == {f"fleet-main-{zone}-0" for zone in "abc"}
    assert "not replacing fleet-etcd-0: out of date, but the disk goes with the pod" in why(world)
