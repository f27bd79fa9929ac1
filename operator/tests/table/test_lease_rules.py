"""Two operators and one Lease: who works, who takes over, and a suspended one writes nothing."""

from dataclasses import replace
from datetime import timedelta

import pytest
from logfleet_operator.admin import AdminUnavailable
from logfleet_operator.kube import KubeError, KubeUnavailable
from logfleet_operator.lease_holder import GuardedAdmins, GuardedKube, LeaseHolder, LeaseLost
from logfleet_operator.lease_rules import LEASE_S, RENEW_S, RETRY_S
from logfleet_operator.names import Manifest

from .operation import SETTINGS, Operation, at_rest, cluster
from .world import NAMESPACE, World

pytestmark = pytest.mark.asyncio
TAKEOVER_S_MAX = 20


def candidate(world: World, name: str, *, ahead_s: float = 0.0) -> LeaseHolder:
    """ahead_s: of its clocks."""
    return LeaseHolder(
        world,
        NAMESPACE,
        "operator",
        name,
        monotonic=lambda: world.now_s + ahead_s,
        now=lambda: world.now() + timedelta(seconds=ahead_s),
    )


def lease(world: World) -> Manifest:
    spec: Manifest = world.one("Lease", "operator")["spec"]
    return spec


async def test_one_works_and_the_other_stands_by() -> None:
    world = World()
    one, other = candidate(world, "one"), candidate(world, "other")
    assert (other.was_read, other.stands_by) == (False, False)
    assert await one.attempt()
    for _ in range(30):
        assert not await other.attempt()
        assert await one.attempt()
        assert (one.holds, other.holds) == (True, False)
        assert (one.stands_by, other.stands_by) == (False, True)
        world.now_s += RETRY_S
    assert lease(world)["holderIdentity"] == "one"
    assert lease(world)["leaseTransitions"] == 0


@pytest.mark.parametrize("ahead_s", [-3600.0, 0.0, 3600.0])
async def test_the_other_takes_over_from_one_that_died_whatever_its_clock_says(
    ahead_s: float,
) -> None:
    world = World()
    one, other = candidate(world, "one"), candidate(world, "other", ahead_s=ahead_s)
    assert await one.attempt()
    died = world.now_s
    while not await other.attempt():
        assert not (one.holds and other.holds)
        world.now_s += RETRY_S
    assert LEASE_S <= world.now_s - died <= TAKEOVER_S_MAX
    assert not one.holds
    assert lease(world)["leaseTransitions"] == 1


async def test_one_that_ends_gives_it_back_and_nobody_waits() -> None:
    world = World()
    one, other = candidate(world, "one"), candidate(world, "other")
    assert await one.attempt()
    assert not await other.attempt()
    await one.release()
    assert not one.holds
    assert await other.attempt()


async def test_of_two_that_find_it_free_at_once_one_gets_it() -> None:
    world = World()
    one, other = candidate(world, "one"), candidate(world, "other")

    def is_faster(number: int) -> None:
        """Another's write, between what `one` reads and writes."""
        if world.calls[number] == "get Lease operator" and not raced:
            raced.append(number)
            world.put({**live, "spec": {"holderIdentity": "other"}})

    assert await other.attempt()
    await other.release()
    raced: list[int] = []
    live = world.one("Lease", "operator")
    world.after_call = is_faster
    assert not await one.attempt()
    assert raced
    assert not one.holds
    assert lease(world)["holderIdentity"] == "other"


async def test_one_that_stood_still_writes_nothing_afterwards_and_ends() -> None:
    world, _ = await at_rest()
    one, other = candidate(world, "one"), candidate(world, "other")
    assert await one.attempt()
    assert not await other.attempt()
    kube, admins = GuardedKube(world, one), GuardedAdmins(world, one)
    world.now_s += LEASE_S  # it was stopped here, in the middle of its work
    assert await other.attempt()
    before = world.changes
    live = world.one("ConfigMap", "fleet-config")
    with pytest.raises(KubeUnavailable, match="is not held"):
        await kube.apply(live)
    with pytest.raises(KubeUnavailable, match="is not held"):
        await kube.evict_pod(NAMESPACE, "fleet-main-a-0", "uid")
    with pytest.raises(KubeUnavailable, match="is not held"):
        await kube.delete("Pod", NAMESPACE, "fleet-main-a-0", "uid")
    admin = await admins.open("any")
    with pytest.raises(AdminUnavailable, match="is not held"):
        await admin.perform([])
    assert world.changes == before
    assert await kube.get("ConfigMap", NAMESPACE, "fleet-config") == live
    with pytest.raises(LeaseLost):
        await one.keep()


async def test_a_holder_that_cannot_renew_stops_before_another_may_begin() -> None:
    assert RENEW_S + RETRY_S < LEASE_S
    world = World()
    one = candidate(world, "one")
    assert await one.attempt()
    world.now_s += RENEW_S
    assert not one.holds
    with pytest.raises(LeaseLost):
        async with one.guard():
            raise AssertionError("nothing may be written here")


async def test_one_that_may_not_use_the_lease_says_so_and_does_not_stand_by_for_ever() -> None:
    world = World()
    live = candidate(world, "other")
    assert await live.attempt()
    await live.release()
    world.refused["Lease", "operator"] = "patch of leases is not allowed"
    with pytest.raises(LeaseLost, match=r"may not use Lease operator in air: give .*rbac\.yaml"):
        await candidate(world, "one").acquire(lambda: None)


async def test_one_that_cannot_take_what_is_free_does_not_stand_by() -> None:
    world = World()
    other = candidate(world, "other")
    assert await other.attempt()
    await other.release()
    one = candidate(world, "one")
    world.refused["Lease", "operator"] = "no Lease is written in a namespace that ends"
    with pytest.raises(KubeError):
        await one.attempt()
    assert (one.was_read, one.stands_by) == (True, False)


async def test_a_second_operator_goes_on_with_the_roll_of_one_that_died() -> None:
    world, operation = await at_rest()
    one, other = candidate(world, "one"), candidate(world, "other")
    assert await one.attempt()
    world.put(cluster(image="logfleet/broker:2"))
    while not any(call.startswith("evict") for call in world.calls):
        await operation.round()
    while not await other.attempt():
        world.now_s += RETRY_S
    again = Operation(world, replace(SETTINGS, identity="other"))
    await again.until_at_rest()
    assert world.ready("Cluster", "fleet") == ("True", "Ready")
    evicted = [call for call in world.calls if call.startswith("evict")]
    assert evicted == [f"evict Pod fleet-main-{zone}-0" for zone in "abc"], "none of them twice"
