"""A Rebalance is proposed, approved, carried out, stopped; its operator may die at any moment."""

from typing import Any

import pytest

from .disturbances import DISTURBANCES
from .operation import Operation, at_rest, cluster, rebalance
from .world import Death, World

pytestmark = pytest.mark.asyncio
UNEVEN = {0: 20, 1000: 2, 2000: 2}


def status(world: World, name: str = "even-out") -> dict[str, Any]:
    found: dict[str, Any] = world.one("Rebalance", name)["status"]
    return found


def is_even(world: World) -> bool:
    return max(world.replicas.counts.values()) - min(world.replicas.counts.values()) <= 1


async def uneven(**spec: Any) -> tuple[World, Operation]:
    world, operation = await at_rest(**spec)
    world.replicas.counts = dict(UNEVEN)
    return world, operation


async def test_it_is_proposed_and_nothing_moves_until_it_is_approved() -> None:
    world, operation = await uneven()
    world.put(rebalance())
    await operation.until_at_rest()
    assert world.replicas.counts == UNEVEN
    told = status(world)
    assert (told["phase"], told["proposal"]["moves"], told["proposal"]["unmet"]) == (
        "Proposed",
        12,
        [],
    )
    assert told["proposal"]["bytes"] == 12 * 64 << 20
    assert told["proposal"]["skewBefore"].startswith("bytes 150%")
    assert world.ready("Rebalance", "even-out") == ("False", "WaitingForApproval")
    world.put(rebalance(approved=True))
    await operation.until_at_rest()
    assert is_even(world)
    assert status(world)["phase"] == "Done"
    assert status(world)["progress"]["bytesLeft"] == 0
    assert world.ready("Rebalance", "even-out") == ("True", "Ready")


async def test_it_begins_by_itself_if_that_is_asked_for_and_tells_how_far_it_is() -> None:
    world, operation = await uneven()
    world.put(rebalance(approval="Auto", throttle="1Mi"))
    await operation.round()
    told = status(world)
    assert (told["phase"], world.ready("Rebalance", "even-out")) == (
        "Running",
        ("False", "Progressing"),
    )
    assert told["progress"]["underWay"] == 2
    assert (
        told["progress"]["bytesMoved"] + told["progress"]["bytesLeft"] == told["proposal"]["bytes"]
    )
    assert told["progress"]["minutesLeft"] >= 1
    await operation.until_at_rest()
    assert is_even(world)
    assert 1 << 20 in world.replicas.throttles


async def test_it_is_stopped_at_any_moment_and_does_not_go_on() -> None:
    world, operation = await uneven()
    world.put(rebalance(approval="Auto"))
    await operation.round()
    world.put(rebalance(approval="Auto", stop=True))
    await operation.until_at_rest()
    assert world.replicas.called_back == 1
    assert status(world)["phase"] == "Stopped"
    assert not is_even(world)
    assert world.ready("Rebalance", "even-out") == ("False", "Stopped")
    world.put(rebalance("never", stop=True))
    await operation.until_at_rest()
    assert (status(world, "never")["phase"], world.replicas.called_back) == ("Stopped", 1)


@pytest.mark.parametrize(
    "document, reason",
    [
        (cluster(paused=True), "paused"),
        (cluster(config={"a.b": 1}), ""),
        (None, "there is no Cluster"),
    ],
)
async def test_it_waits_for_its_cluster_with_a_reason(document, reason) -> None:
    world, operation = await uneven()
    if document is None:
        world.remove("Cluster", "fleet")
    else:
        world.put(document)
    world.put(rebalance(approval="Auto"))
    await operation.until_at_rest()
    if reason:
        assert status(world)["phase"] == "Pending"
        assert reason in status(world)["why"]
        world.put(cluster())
        await operation.until_at_rest()
    assert status(world)["phase"] == "Done", "a Warning keeps nobody waiting"


async def test_of_two_the_older_one_is_carried_out_first() -> None:
    world, operation = await uneven()
    world.put(rebalance("first", approval="Auto"))
    world.now_s += 5
    world.put(rebalance("second", approval="Auto"))
    world.put(rebalance("asks"))
    await operation.round()
    phases = [status(world, name)["phase"] for name in ("first", "second", "asks")]
    assert phases == ["Running", "Pending", "Proposed"]
    assert status(world, "second")["why"] == "waiting: Rebalance first comes first"
    await operation.until_at_rest()
    assert [status(world, name)["phase"] for name in ("first", "second")] == ["Done", "Done"]


async def test_it_waits_while_no_broker_answers() -> None:
    world, operation = await uneven()
    world.replicas.answers = False
    world.put(rebalance(approval="Auto"))
    await operation.until_at_rest()
    assert (status(world)["phase"], "no broker does it" in status(world)["why"]) == (
        "Pending",
        True,
    )
    world.replicas.answers = True
    await operation.until_at_rest()
    assert status(world)["phase"] == "Done"


async def test_it_goes_by_itself_after_its_end_if_that_is_asked_for() -> None:
    world, operation = await uneven()
    world.put(rebalance(approval="Auto", ttlSecondsAfterFinished=60))
    await operation.until_at_rest()
    world.now_s += 60
    await operation.until_at_rest()
    assert world.named("Rebalance") == []
    assert is_even(world)


async def test_a_mistake_is_told_by_its_field() -> None:
    world, operation = await uneven()
    world.put(rebalance(throttle="fast"))
    await operation.until_at_rest()
    assert world.ready("Rebalance", "even-out") == ("False", "Invalid")
    assert "spec.throttle" in status(world)["why"]


@pytest.mark.parametrize("disturb", DISTURBANCES[:2])
async def test_whatever_call_the_operator_dies_at_it_comes_to_its_end(disturb) -> None:
    async def carried_out(number: int | None) -> World:
        world, operation = await uneven()
        world.put(rebalance(approval="Auto"))
        if number is not None:
            disturb(world, len(world.calls) + number)
        try:
            await operation.until_at_rest()
        except Death:
            world.after_call = world.before_call = lambda _: None
            await Operation(world).until_at_rest()
        return world

    begun = len((await uneven())[0].calls)
    quiet = await carried_out(None)
    calls = [
        number
        for number, call in enumerate(quiet.calls[begun:])
        if not call.startswith(("get", "list", "describe"))
    ]
    assert len(calls) > 10
    for number in calls:
        world = await carried_out(number)
        assert is_even(world), quiet.calls[begun + number]
        assert status(world)["phase"] == "Done"


async def test_a_rebalance_whose_approval_is_taken_back_is_called_back_by_stop() -> None:
    world, operation = await at_rest()
    world.replicas.counts = {0: 20, 1000: 2, 2000: 2}
    world.put(rebalance(approved=True))
    await operation.round()
    assert world.one("Rebalance", "even-out")["status"]["phase"] == "Running"
    world.put(rebalance(approved=False))
    await operation.round()
    world.put(rebalance(approved=False, stop=True))
    await operation.until_at_rest()
    status = world.one("Rebalance", "even-out")["status"]
    assert (status["phase"], status["why"]) == ("Stopped", "what was under way was called back")
    assert world.replicas.called_back == 1


async def test_an_older_rebalance_that_is_wrong_keeps_no_other_waiting() -> None:
    world, operation = await at_rest()
    world.replicas.counts = {0: 20, 1000: 2, 2000: 2}
    world.put(rebalance("first", approval="Auto", throttle="fast"))
    world.now_s += 5
    world.put(rebalance("second", approval="Auto"))
    await operation.until_at_rest()
    status = world.one("Rebalance", "second")["status"]
    assert (status["phase"], status["why"]) == ("Done", "all is where it should be")


async def test_a_rebalance_of_a_cluster_that_is_wrong_is_stopped_or_says_why_not() -> None:
    world, operation = await at_rest()
    world.replicas.counts = {0: 20, 1000: 2, 2000: 2}
    world.put(rebalance(approval="Auto"))
    await operation.round()
    world.put(cluster(image=""))
    world.put(cluster(scaling={"throttle": "fast"}))
    await operation.round()
    world.put(rebalance(approval="Auto", stop=True))
    for _ in range(6):
        await operation.round()
    status = world.one("Rebalance", "even-out")["status"]
    assert world.replicas.called_back or "scaling" in status["why"], status
