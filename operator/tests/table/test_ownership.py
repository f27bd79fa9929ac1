"""Two releases of the operator see one Cluster: one manages it, the other reports why not."""

from dataclasses import replace
from typing import Any

import pytest
from logfleet_operator.kube import KubeError
from logfleet_operator.lease_holder import LeaseHolder
from logfleet_operator.ownership import HANDOVER_S

from .operation import ROUND_S, SETTINGS, Operation, cluster, rebalance, told, topic
from .world import NAMESPACE, World

pytestmark = pytest.mark.asyncio
OLD = replace(SETTINGS, lease_namespace="old", identity="old-0")
NEW = replace(
    OLD,
    lease_namespace="new",
    identity="new-0",
    broker_image="logfleet/broker:2",
    etcd_image="etcd:2",
)


class Release:
    """An operator whose process lives: it renews its Lease before each round."""

    def __init__(self, world: World, settings: Any) -> None:
        self.operation = Operation(world, settings)
        self.lease = LeaseHolder(
            world,
            settings.lease_namespace,
            settings.lease,
            settings.identity,
            monotonic=world.clock,
            now=world.now,
        )

    async def round(self) -> None:
        assert await self.lease.attempt()
        await self.operation.round()


def operator_of(world: World) -> str:
    return str(world.one("Cluster", "fleet")["status"]["operator"])


def versions(world: World) -> dict[tuple[str, str, str], str]:
    """Of all objects but the Leases."""
    return {
        key: live["metadata"]["resourceVersion"]
        for key, live in world.objects.items()
        if key[0] != "Lease"
    }


async def both(rounds: int = 12) -> tuple[World, Release, Release]:
    world = World()
    world.put(cluster())
    old, new = Release(world, OLD), Release(world, NEW)
    for _ in range(rounds):
        await old.round()
        await new.round()
    return world, old, new


async def test_the_first_looks_after_it_and_nothing_goes_to_and_fro() -> None:
    world, old, new = await both()
    assert world.ready("Cluster", "fleet") == ("True", "Ready")
    assert operator_of(world) == "old/logfleet-operator"
    before = versions(world)
    for _ in range(20):
        await new.round()
        await old.round()
    assert versions(world) == before


async def test_the_other_says_why_it_waits_once() -> None:
    world, old, new = await both()
    assert str(new.operation.ownership) == (
        "other operators look after 1 Clusters: air/fleet by old/logfleet-operator"
    )
    assert str(old.operation.ownership) == ""
    notes = [note for _, reason, note in told(world, "Cluster") if reason == "AnotherOperator"]
    assert len(notes) == 1
    assert notes[0].startswith("the operator of Lease old/logfleet-operator looks after this")


async def test_topics_and_rebalances_are_left_to_the_one_that_has_the_cluster() -> None:
    world, old, new = await both()
    world.put(topic())
    world.put(rebalance())
    for _ in range(5):
        await new.round()
    assert "status" not in world.one("Topic", "flights")
    assert "status" not in world.one("Rebalance", "even-out")
    assert world.topics == {}
    for _ in range(5):
        await old.round()
    assert world.ready("Topic", "flights") == ("True", "Ready")
    assert world.ready("Rebalance", "even-out") == ("False", "WaitingForApproval")


async def test_a_release_that_is_upgraded_keeps_its_clusters() -> None:
    world, old, new = await both()
    assert await old.lease.attempt()
    await old.lease.release()
    away_since = world.now_s
    while world.now_s < away_since + HANDOVER_S / 2:
        await new.round()
    upgraded = Release(world, replace(OLD, identity="old-1", broker_image="logfleet/broker:3"))
    for _ in range(40):
        await upgraded.round()
        await new.round()
    assert operator_of(world) == "old/logfleet-operator"
    assert str(new.operation.ownership)


async def test_a_release_that_is_gone_is_followed_by_the_other_after_its_time() -> None:
    world, _, new = await both()
    gone_since = world.now_s
    while operator_of(world) != "new/logfleet-operator":
        await new.round()
    assert HANDOVER_S <= world.now_s - gone_since <= HANDOVER_S + 60
    for _ in range(20):
        await new.round()
    assert world.ready("Cluster", "fleet") == ("True", "Ready")
    assert str(new.operation.ownership) == ""
    spec = world.one("StatefulSet", "fleet-etcd")["spec"]["template"]["spec"]
    assert spec["containers"][0]["image"] == "etcd:2"


async def test_a_lease_that_was_deleted_is_waited_for_no_longer() -> None:
    world, _, new = await both()
    del world.objects["Lease", "old", "logfleet-operator"]
    gone_since = world.now_s
    while operator_of(world) != "new/logfleet-operator":
        await new.round()
    assert world.now_s - gone_since <= 4 * ROUND_S


async def test_a_lease_that_is_deleted_beside_a_release_that_works_hands_nothing_over() -> None:
    world, old, new = await both()
    del world.objects["Lease", "old", "logfleet-operator"]
    await new.round()
    for _ in range(10):
        await old.round()
        await new.round()
    assert operator_of(world) == "old/logfleet-operator"


async def test_a_lease_that_may_not_be_read_counts_as_used() -> None:
    world, _, new = await both()

    def forbid(number: int) -> None:
        if world.calls[number] == "get Lease logfleet-operator" and reading:
            raise KubeError(403, "Forbidden", "leases are not yours")

    reading = True
    world.before_call = forbid
    world.now_s += 2 * HANDOVER_S
    for _ in range(3):
        await new.operation.round()
    assert operator_of(world) == "old/logfleet-operator"


async def test_of_two_that_find_it_free_one_gets_it() -> None:
    world = World()
    live = world.put(cluster())
    old, new = Release(world, OLD), Release(world, NEW)
    taken = await old.operation.ownership.take(live)
    assert taken is not None
    with pytest.raises(KubeError) as refused:
        await new.operation.ownership.take(live)
    assert refused.value.status == 409
    assert operator_of(world) == "old/logfleet-operator"


async def test_a_cluster_of_an_operator_that_wrote_none_is_taken_over_as_it_is() -> None:
    world = World()
    world.put(cluster())
    before = Operation(world)  # of a version, or a start, without such a word in the status
    await before.until_at_rest()
    uids = {name: world.one("Pod", name)["metadata"]["uid"] for name in world.named("Pod")}
    release = Release(world, OLD)
    for _ in range(10):
        await release.round()
    assert operator_of(world) == "old/logfleet-operator"
    assert uids == {name: world.one("Pod", name)["metadata"]["uid"] for name in world.named("Pod")}
    assert world.one("Cluster", "fleet")["metadata"]["namespace"] == NAMESPACE
