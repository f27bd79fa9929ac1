"""A change can be undone if its brokers never ran: too many replicas, a wrong zone or pool."""

import json
from collections.abc import Callable
from typing import Any

import pytest
from logfleet_operator import names

from .disturbances import DISTURBANCES
from .operation import POOL, Operation, at_rest, cluster, pool
from .world import Death, Manifest, World

pytestmark = pytest.mark.asyncio

READY = ("True", "Ready")
FIRST = {f"fleet-main-{zone}-0" for zone in "abc"}


def room_for(world: World, *pods: str) -> None:
    """Only these pods of brokers get a node."""
    world.has_node = lambda name: "etcd" in name or name in pods


def ranges(world: World) -> list[tuple[str, str, int, int, int]]:
    listed = json.loads(world.one("ConfigMap", "fleet-record")["data"]["ranges"])
    return [
        tuple(each[key] for key in ("pool", "zone", "base", "replicas", "ran")) for each in listed
    ]


def brokers(world: World, kind: str) -> set[str]:
    return {
        name
        for name in world.named(kind)
        if "etcd" not in name and name.startswith(("fleet-", "data-"))
    }


MISTAKES: dict[str, dict[str, Any]] = {
    "a nought too many": pool(replicas=30),
    "a mistyped zone": {"zones": ["a", "b", "c", "typo"], **pool(replicas=4)},
    "a pool too many": {"pools": [POOL, {**POOL, "name": "extra"}]},
}


@pytest.mark.parametrize("mistake", MISTAKES)
async def test_a_mistake_that_never_ran_is_written_back_and_leaves_nothing(mistake: str) -> None:
    world, operation = await at_rest()
    before = {
        kind: brokers(world, kind)
        for kind in ("StatefulSet", "Pod", "PersistentVolumeClaim", "Service")
    }
    room_for(world, *FIRST)
    uids = {name: world.one("Pod", name)["metadata"]["uid"] for name in FIRST}
    world.put(cluster(**MISTAKES[mistake]))
    await operation.until_at_rest()
    assert world.ready("Cluster", "fleet")[0] == "False"
    assert brokers(world, "Pod") > before["Pod"]
    world.put(cluster())
    await operation.until_at_rest()
    assert world.ready("Cluster", "fleet") == READY
    assert {kind: brokers(world, kind) for kind in before} == before
    assert {name: world.one("Pod", name)["metadata"]["uid"] for name in FIRST} == uids
    assert ranges(world) == [
        ("main", zone, base, 1, 1) for zone, base in (("a", 0), ("b", 1000), ("c", 2000))
    ]
    assert world.one("PodDisruptionBudget", "fleet-brokers")["spec"]["minAvailable"] == 2


async def test_of_too_many_those_that_ran_are_emptied_first() -> None:
    world, operation = await at_rest()
    ran = FIRST | {"fleet-main-a-1", "fleet-main-b-1"}
    room_for(world, *ran)
    world.put(cluster(**pool(replicas=30)))
    await operation.until_at_rest()
    world.put(cluster())
    await operation.until_at_rest()
    assert world.ready("Cluster", "fleet") == READY
    assert brokers(world, "Pod") == FIRST
    assert sorted(world.replicas.forgotten) == [1, 1001]


async def test_what_ran_once_is_known_though_pod_set_and_claim_are_gone() -> None:
    world, operation = await at_rest(**pool(replicas=4))
    world.has_node = lambda name: name != "fleet-main-a-1"
    world.remove("Pod", "fleet-main-a-1")
    world.remove("PersistentVolumeClaim", "data-fleet-main-a-1")
    await operation.round()
    world.put(cluster())
    await operation.until_at_rest()
    assert world.replicas.forgotten == [1], "it may have had something"


async def test_a_record_of_an_older_operator_says_that_all_ran() -> None:
    world, operation = await at_rest()
    live = world.one("ConfigMap", "fleet-record")
    old = [
        {key: value for key, value in each.items() if key != "ran"}
        for each in json.loads(live["data"]["ranges"])
    ]
    world.touch(
        {
            **live,
            "metadata": {**live["metadata"]},
            "data": {**live["data"], "ranges": json.dumps(old)},
        }
    )
    for name in FIRST:
        world.remove("PersistentVolumeClaim", f"data-{name}")
    world.put(cluster(**pool(replicas=2)))
    await operation.until_at_rest()
    assert world.replicas.forgotten == [2000]


@pytest.mark.parametrize("mode, forgotten", [("Immediate", []), ("WaitForFirstConsumer", [3])])
async def test_a_volume_that_did_not_wait_for_its_pod_says_nothing(
    mode: str, forgotten: list[int]
) -> None:
    world = World()
    world.remove_cluster_wide("StorageClass", "zonal")
    world.add_storage_class("other", mode)
    world.put(cluster(zones=[]))
    operation = Operation(world)
    await operation.until_at_rest()
    world.has_node = lambda name: name in {f"fleet-main-{ordinal}" for ordinal in range(3)}
    world.put(cluster(zones=[], **pool(replicas=4)))
    await operation.until_at_rest()
    claim = world.one("PersistentVolumeClaim", "data-fleet-main-3")
    spec = {**claim["spec"], "volumeName": "v", "storageClassName": "other"}
    status = {"capacity": spec["resources"]["requests"]}
    world.touch({**claim, "metadata": {**claim["metadata"]}, "spec": spec, "status": status})
    world.put(cluster(zones=[]))
    await operation.until_at_rest()
    assert world.replicas.forgotten == forgotten


@pytest.mark.parametrize("disturb", DISTURBANCES[:2])
async def test_written_back_it_ends_the_same_though_the_operator_is_disturbed_anywhere(
    disturb: Callable[[World, int], None],
) -> None:
    async def tell(number: int | None) -> World:
        world, operation = await at_rest()
        room_for(world, *FIRST)
        begun = len(world.calls)
        if number is not None:
            disturb(world, begun + number)
        for spec in ({"zones": ["a", "b", "c", "typo"], **pool(replicas=9)}, {}):
            world.put(cluster(**spec))
            try:
                await operation.until_at_rest()
            except Death:
                world.after_call = lambda _: None
                operation = Operation(world)
                await operation.until_at_rest()
        world.calls = world.calls[begun:]
        return world

    expected = await tell(None)
    wanted = expected.snapshot()
    writes = [
        number
        for number, call in enumerate(expected.calls)
        if not call.startswith(("get", "list", "describe", "create Event"))
    ]
    assert len(writes) > 20
    assert "delete StatefulSet fleet-main-typo" in expected.calls
    for number in writes:
        world = await tell(number)
        assert world.snapshot() == wanted, f"after call {number}: {expected.calls[number]}"


async def test_a_zone_that_no_member_of_etcd_runs_in_can_be_taken_away() -> None:
    """A typo in the first version of a Cluster is in the placement of etcd, too."""
    world = World()
    world.node_of = lambda name: f"node-of-{name}"
    for ordinal, zone in enumerate("abc"):
        world.add_node(f"node-of-fleet-etcd-{ordinal}", zone)
    world.put(cluster(zones=["a", "b", "c", "typo"]))
    operation = Operation(world)
    await operation.until_at_rest()
    assert world.ready("Cluster", "fleet") == READY
    world.put(cluster())
    await operation.until_at_rest()
    assert world.ready("Cluster", "fleet") == READY
    spec = world.one("StatefulSet", "fleet-etcd")["spec"]["template"]["spec"]
    assert '"values": ["a", "b", "c"]' in json.dumps(spec["affinity"])


def leave_volumes(world: World, *names_of_etcd: str) -> None:
    """Of a Cluster that was deleted."""
    for name in names_of_etcd:
        labels = names.labels("fleet", names.ETCD)
        claim: Manifest = {
            "kind": "PersistentVolumeClaim",
            "metadata": {"name": f"data-{name}", "labels": labels},
            "spec": {"volumeName": "left", "resources": {"requests": {"storage": "1Gi"}}},
            "status": {"capacity": {"storage": "1Gi"}},
        }
        world.put(claim)


async def test_a_cluster_made_anew_where_nothing_ever_ran_begins_anew() -> None:
    """Its first version had volumes for etcd and an image that could not be pulled."""
    members = {f"fleet-etcd-{ordinal}" for ordinal in range(3)}
    world = World()
    leave_volumes(world, *members)
    world.empty_members = set(members)
    world.put(cluster())
    operation = Operation(world)
    for _ in range(3):
        await operation.round()
    assert world.one("ConfigMap", "fleet-record")["data"]["etcd"] == "bootstrapping"
    world.empty_members = set()  # the gate lets them start
    await operation.until_at_rest()
    assert world.ready("Cluster", "fleet") == READY
    assert world.one("ConfigMap", "fleet-record")["data"]["etcd"] == "established"


@pytest.mark.parametrize("state", ["established", "resuming"])
async def test_etcd_never_begins_anew_where_brokers_may_have_data(state: str) -> None:
    world, operation = await at_rest()
    live = world.one("ConfigMap", "fleet-record")
    world.touch({**live, "metadata": {**live["metadata"]}, "data": {**live["data"], "etcd": state}})
    world.empty_members = {f"fleet-etcd-{ordinal}" for ordinal in range(3)}
    world.step()
    await operation.until_at_rest()
    assert world.one("ConfigMap", "fleet-record")["data"]["etcd"] == state
