"""An etcd member that lost its volume is repaired while a majority is ready, and blocks nothing."""

import pytest
from logfleet_operator.clusters import etcd

from .disturbances import die_after
from .operation import Operation, at_rest, cluster, told, why
from .world import Death, World

pytestmark = pytest.mark.asyncio
READY = ("True", "Ready")
MIB = 1 << 20


def admitted(world: World) -> str:
    return str(world.one("ConfigMap", "fleet-record")["data"][etcd.ADMITTED_KEY])


async def losing(*ordinals: int) -> tuple[World, Operation]:
    """The members come back with empty volumes."""
    world, operation = await at_rest()
    world.empty_members = {f"fleet-etcd-{ordinal}" for ordinal in ordinals}
    for name in world.empty_members:
        world.remove("Pod", name)
    world.step()
    return world, operation


def changes(world: World) -> list[str]:
    return [call for call in world.calls if call.startswith(("remove member", "add member"))]


async def test_it_is_removed_added_and_let_in_once() -> None:
    world, operation = await losing(1)
    await operation.until_at_rest()
    assert world.ready("Cluster", "fleet") == READY, why(world)
    assert changes(world) == [
        "remove member 1",
        "add member https://fleet-etcd-1.fleet-etcd.air.svc:2380",
    ]
    assert [(each.id, each.name) for each in world.etcd.listed] == [
        ("0", "fleet-etcd-0"),
        ("2", "fleet-etcd-2"),
        ("10", "fleet-etcd-1"),
    ]
    assert admitted(world) == "", "nobody is let in without data any more"
    assert ("Normal", "MemberRemoved", "fleet-etcd-1 lost its data") in told(world, "Cluster")


async def test_one_that_loses_its_volume_again_is_healed_again() -> None:
    world, operation = await losing(1)
    await operation.until_at_rest()
    world.empty_members = {"fleet-etcd-1"}
    world.remove("Pod", "fleet-etcd-1")
    await operation.until_at_rest()
    assert world.ready("Cluster", "fleet") == READY
    assert len(changes(world)) == 4


async def test_without_a_majority_nothing_is_removed_and_status_tells_it() -> None:
    world, operation = await losing(1, 2)
    await operation.until_at_rest()
    assert changes(world) == []
    assert "fleet-etcd-1 lost its data and may not vote again" in why(world)


@pytest.mark.parametrize("trouble", ["unavailable", "refused"])
async def test_while_it_cannot_be_healed_brokers_are_replaced_all_the_same(trouble: str) -> None:
    """etcd refuses changes until a majority was connected for 5 s (unhealthy cluster)."""
    world, operation = await losing(1)
    setattr(world.etcd, trouble, "etcdserver: unhealthy cluster")
    world.put(cluster(image="logfleet/broker:2"))
    for _ in range(20):
        await operation.round()
    images = {
        world.one("Pod", name)["spec"]["containers"][0]["image"]
        for name in world.named("Pod")
        if "main" in name
    }
    assert images == {"logfleet/broker:2"}
    assert "fleet-etcd-1 lost its data" in why(world)
    setattr(world.etcd, trouble, "")
    await operation.until_at_rest()
    assert world.ready("Cluster", "fleet") == READY


async def test_an_operator_that_dies_after_any_call_heals_it_all_the_same() -> None:
    """No member is removed twice, and none is let in under its old id (`EtcdCluster.join`)."""
    world, operation = await losing(1)
    begun = len(world.calls)
    await operation.until_at_rest()
    calls = world.calls[begun:]
    first = next(n for n, call in enumerate(calls) if call.startswith("remove member"))
    for number in range(first, first + 12):
        world, operation = await losing(1)
        die_after(world, len(world.calls) + number)
        with pytest.raises(Death):
            await operation.until_at_rest()
        await Operation(world).until_at_rest()
        assert world.ready("Cluster", "fleet") == READY, calls[number]
        removed = [call for call in changes(world) if call.startswith("remove")]
        assert removed == ["remove member 1"], calls[number]


async def looked_after(world: World, operation: Operation) -> list[str]:
    """What was done about etcd's size in ten minutes, one round after another."""
    begun = len(world.calls)
    for _ in range(60):
        await operation.round()
    return [call for call in world.calls[begun:] if call.startswith(("defragment", "disarm"))]


async def test_members_are_defragmented_one_by_one_and_the_leader_last() -> None:
    world, operation = await at_rest()
    world.etcd.sizes = dict.fromkeys(range(3), (200 * MIB, 20 * MIB))
    assert await looked_after(world, operation) == [
        f"defragment https://fleet-etcd-{number}.fleet-etcd.air.svc:2379" for number in (1, 2, 0)
    ]


async def test_one_that_is_away_keeps_the_others_from_being_defragmented() -> None:
    world, operation = await at_rest()
    world.etcd.sizes = dict.fromkeys(range(3), (200 * MIB, 20 * MIB))
    world.idle_pods = {"fleet-etcd-1"}
    assert await looked_after(world, operation) == []


async def test_no_space_is_told_and_ended_once_there_is_some() -> None:
    world, operation = await at_rest()
    quota = 819  # four fifths of the volume of 1Gi
    world.etcd.sizes = dict.fromkeys(range(3), (quota * MIB, 800 * MIB))
    world.etcd.no_space = True
    assert await looked_after(world, operation) == []
    (said,) = world.one("Cluster", "fleet")["status"]["warnings"]
    assert said.startswith("etcd uses 800 MiB of its 819 MiB and takes no writes (alarm NOSPACE)")
    world.etcd.sizes = dict.fromkeys(range(3), (quota * MIB, 20 * MIB))
    assert (await looked_after(world, operation))[-1] == "disarm"
    for _ in range(30):
        await operation.round()
    assert world.one("Cluster", "fleet")["status"]["warnings"] == []
