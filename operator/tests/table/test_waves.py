"""Rolls by zone: what goes together, what the brokers allow, and changes in the middle."""

from collections.abc import Callable

import pytest
from logfleet_operator.clusters.may_i import MayIAnswer, ReplicaInfo, objection_of

from .lives import is_ready
from .operation import Operation, at_rest, cluster, pool, told, why
from .world import World

pytestmark = pytest.mark.asyncio

YES = MayIAnswer(may=True)


def no(*, can_heal: bool) -> MayIAnswer:
    return MayIAnswer(
        may=False, forbidden=[ReplicaInfo("t", 4, "too few", can_heal)], forbidden_count=1
    )


async def nine(answer: Callable[[frozenset[int]], MayIAnswer | None]) -> tuple[World, Operation]:
    world, operation = await at_rest(**pool(replicas=9))
    world.may_i = answer
    world.put(cluster(image="logfleet/broker:2", **pool(replicas=9)))
    return world, operation


async def waves(world: World, operation: Operation) -> list[set[str]]:
    """The pods that went between one step of the world and the next, until the roll is over."""
    found = []
    for _ in range(60):
        begun = len(world.calls)
        await operation.round()
        goings = ("evict Pod", "delete Pod")
        went = {call.split()[-1] for call in world.calls[begun:] if call.startswith(goings)}
        if went:
            found.append(went)
        if world.ready("Cluster", "fleet") == ("True", "Ready") and found:
            return found
    raise AssertionError(why(world))


def zone(name: str) -> set[str]:
    return {f"fleet-main-{name}-{ordinal}" for ordinal in range(3)}


async def test_nine_brokers_in_three_zones_roll_in_three_waves() -> None:
    world, operation = await nine(lambda _: YES)
    assert await waves(world, operation) == [zone("a"), zone("b"), zone("c")]
    assert world.taken_most == 3
    evicted = [call for call in world.calls if call.startswith("evict")]
    assert evicted == [f"evict Pod fleet-main-{each}-0" for each in "abc"], "the budget is heard"


async def test_as_many_go_together_as_the_brokers_allow() -> None:
    world, operation = await nine(lambda brokers: no(can_heal=True) if len(brokers) > 1 else YES)
    assert [len(wave) for wave in await waves(world, operation)] == [1] * 9
    assert world.taken_most == 1


async def test_a_topic_of_one_replica_forbids_several_and_not_one() -> None:
    world, operation = await nine(lambda _: no(can_heal=False))
    assert [len(wave) for wave in await waves(world, operation)] == [1] * 9


async def test_while_no_broker_can_be_asked_none_goes() -> None:
    world, operation = await nine(lambda _: None)
    for _ in range(10):
        await operation.round()
    assert world.taken_most == 0
    assert "waiting to replace fleet-main-a-0: no broker answers at port" in why(world)
    world.may_i = lambda _: YES
    assert await waves(world, operation) == [zone("a"), zone("b"), zone("c")]


async def test_what_an_answer_of_earlier_brokers_leaves_unnamed_counts_as_an_objection() -> None:
    few = no(can_heal=False)
    many = MayIAnswer(may=False, forbidden=few.forbidden, forbidden_count=21)
    assert objection_of(few, alone=True) == ""
    assert objection_of(few, alone=False) == "t-4: too few"
    assert objection_of(many, alone=True) == "t-4 and 19 more: too few"


async def test_any_number_of_partitions_that_no_waiting_cures_forbid_several_and_not_one() -> None:
    many = MayIAnswer(
        may=False, forbidden=no(can_heal=False).forbidden, forbidden_count=500, curable_count=0
    )
    assert objection_of(many, alone=True) == ""
    assert objection_of(many, alone=False) == "t-4 and 499 more: too few"
    curable = MayIAnswer(
        may=False, forbidden=no(can_heal=True).forbidden, forbidden_count=500, curable_count=1
    )
    assert objection_of(curable, alone=True) == "t-4: too few"


async def in_the_middle(spec_image: str) -> tuple[World, Operation]:
    """A broker of the first zone runs a new image and catches up; then the image changes."""
    world, operation = await nine(lambda _: YES)
    world.idle_pods = {"fleet-main-a-1"}
    for _ in range(6):
        await operation.round()
    assert not is_ready(world.one("Pod", "fleet-main-a-1"))
    world.may_i = lambda brokers: no(can_heal=True) if 1 in brokers else YES
    world.put(cluster(image=spec_image, **pool(replicas=9)))
    return world, operation


async def test_one_that_catches_up_is_not_replaced_again_while_its_partitions_need_it() -> None:
    """It is in sync with some of them, though not with all."""
    world, operation = await in_the_middle("logfleet/broker:3")
    uid = world.one("Pod", "fleet-main-a-1")["metadata"]["uid"]
    world.serves = frozenset(range(3000))
    for _ in range(10):
        await operation.round()
    assert world.one("Pod", "fleet-main-a-1")["metadata"]["uid"] == uid
    assert "waiting to replace fleet-main-a-1: t-4: too few" in why(world)


async def test_one_that_is_fenced_is_replaced_whatever_its_partitions_lack() -> None:
    world, operation = await in_the_middle("logfleet/broker:3")
    uid = world.one("Pod", "fleet-main-a-1")["metadata"]["uid"]
    world.serves = frozenset(range(3000)) - {1}
    for _ in range(3):
        await operation.round()
    assert world.one("Pod", "fleet-main-a-1")["metadata"]["uid"] != uid


async def test_what_lacks_replicas_is_waited_for_and_named() -> None:
    """However long: other operators gave up after minutes, or went on (Strimzi 12649, 6690)."""
    world, operation = await nine(lambda _: no(can_heal=True))
    for _ in range(40):
        await operation.round()
    assert world.taken_most == 0
    assert "waiting to replace fleet-main-a-0: t-4: too few" in why(world)
    world.may_i = lambda _: YES
    assert await waves(world, operation) == [zone("a"), zone("b"), zone("c")]


async def test_a_wave_of_which_the_budget_forbids_the_first_stays_whole() -> None:
    world, operation = await nine(lambda _: YES)
    world.disruptions_allowed = False
    for _ in range(5):
        await operation.round()
    assert world.taken_most == 0
    assert not any(call.startswith("delete Pod") for call in world.calls)


async def test_a_zone_is_finished_before_the_next_begins() -> None:
    world, operation = await nine(lambda _: YES)
    world.has_node = lambda name: name != "fleet-main-a-1"
    for _ in range(20):
        await operation.round()
    gone = {
        call.split()[-1] for call in world.calls if call.startswith(("evict Pod", "delete Pod"))
    }
    assert gone == zone("a")
    assert "waiting for fleet-main-a-1; will replace fleet-main-b-0 next" in why(world)


async def test_an_edit_in_the_middle_of_a_roll_counts_at_once_and_leaves_nothing_behind() -> None:
    world, operation = await nine(lambda _: YES)
    world.broken_images = {"broken"}
    world.put(cluster(image="broken", **pool(replicas=9)))
    for _ in range(6):
        await operation.round()
    stuck = {each.partition(":")[0] for each in world.one("Cluster", "fleet")["status"]["troubles"]}
    assert stuck == zone("a"), "no zone but the first"
    begun = len(world.calls)
    world.put(cluster(image="logfleet/broker:3", **pool(replicas=9)))
    await operation.clusters.reconcile("air", "fleet")
    assert any(call.startswith("apply StatefulSet fleet-main-a") for call in world.calls[begun:])
    assert await waves(world, operation) == [zone("a"), zone("b"), zone("c")]
    assert "PodsCannotRun" in [reason for _, reason, _ in told(world, "Cluster")]


async def test_a_second_operator_in_the_middle_of_a_wave_replaces_no_pod_twice() -> None:
    world, operation = await nine(lambda _: YES)
    while not any(call.startswith("evict") for call in world.calls):
        await operation.round()
    again = await waves(world, Operation(world))
    assert again == [zone("b"), zone("c")]


def uids(world: World) -> dict[str, str]:
    return {name: world.one("Pod", name)["metadata"]["uid"] for name in world.named("Pod")}


async def test_a_node_that_is_only_cordoned_keeps_its_broker_while_a_new_one_finds_no_node() -> (
    None
):
    """`kubectl cordon`, and then more brokers than there is room for."""
    world = World()
    world.node_of = lambda name: f"node-of-{name}"
    world.put(cluster(**pool(replicas=3)))
    operation = Operation(world)
    await operation.until_at_rest()
    was = uids(world)
    world.add_node("node-of-fleet-main-a-0", "a")
    live = world.objects["Node", "", "node-of-fleet-main-a-0"]
    live["spec"] = {"unschedulable": True}
    world.has_node = lambda name: name != "fleet-main-a-1"
    world.put(cluster(**pool(replicas=6)))
    for _ in range(6):
        await operation.round()
    assert {name: uid for name, uid in was.items() if uids(world).get(name) != uid} == {}
