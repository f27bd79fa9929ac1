"""A Topic that changes is looked at by itself, as far as the others cannot matter; else all are."""

import pytest

from .disturbances import die_after
from .operation import Operation, cluster, fleet, ledger, topic
from .world import Death, World

pytestmark = pytest.mark.asyncio


async def work(operation: Operation) -> list[str]:
    """What is due is done, nothing is looked at besides; the calls that this took."""
    begun = len(operation.world.calls)
    while (key := operation.worker.queue.take(operation.world.now_s)) is not None:
        await operation.worker.work_on(key)
    return operation.world.calls[begun:]


def tell(operation: Operation, kind: str, name: str = "flights", rivals: int = 0) -> None:
    operation.feed.topic(kind, operation.world.one("Topic", name), rivals=rivals)


async def test_a_change_is_made_and_told_without_looking_at_the_others() -> None:
    world, operation = await fleet(topic(), topic("other"))
    world.put(topic(config={"retention.ms": 7}))
    tell(operation, "MODIFIED")
    calls = await work(operation)
    assert "list Topic" not in calls
    assert world.topics["flights"].config == {"retention.ms": "7"}
    assert world.ready("Topic", "flights") == ("True", "Ready")
    assert world.one("Topic", "flights")["status"]["observedGeneration"] == 2


async def test_a_new_one_has_its_line_before_its_topic() -> None:
    world, operation = await fleet(topic())
    world.put(topic("new", deletionPolicy="Retain"))
    tell(operation, "ADDED", "new")
    calls = await work(operation)
    assert "list Topic" not in calls
    assert ledger(world)["new"]["policy"] == "Retain"
    written = next(number for number, call in enumerate(calls) if "apply ConfigMap" in call)
    assert written < calls.index("CreateTopic new")
    assert world.ready("Topic", "new") == ("True", "Ready")


async def test_what_its_own_status_brings_about_is_not_looked_at() -> None:
    _world, operation = await fleet(topic())
    tell(operation, "MODIFIED")
    assert await work(operation) == []


async def test_one_whose_name_others_want_is_looked_at_with_them() -> None:
    world, operation = await fleet(topic())
    world.put(topic("rival", topicName="flights"))
    tell(operation, "ADDED", "rival", rivals=1)
    assert "list Topic" in await work(operation)
    assert world.ready("Topic", "rival") == ("False", "Conflict")


async def test_one_whose_name_is_anothers_by_the_ledger_is_looked_at_with_them() -> None:
    """The index of the watches had not heard of the other one."""
    world, operation = await fleet(topic())
    world.put(topic("rival", topicName="flights"))
    tell(operation, "ADDED", "rival")
    await work(operation)
    assert world.ready("Topic", "rival") == ("False", "Conflict")
    assert world.ready("Topic", "flights") == ("True", "Ready")


async def test_an_event_that_comes_late_deletes_nothing() -> None:
    world, operation = await fleet(topic(), topic("other"))
    tell(operation, "ADDED")
    world.remove("Topic", "flights")
    await work(operation)
    assert set(world.topics) == {"flights", "other"}, "nobody saw it go"


async def test_an_operator_that_has_seen_nothing_yet_deletes_nothing_for_one_event() -> None:
    world, _ = await fleet(topic(), topic("other"))
    world.put(topic("other", config={"retention.ms": 7}))
    operation = Operation(world)
    tell(operation, "MODIFIED", "other")
    await work(operation)
    assert set(ledger(world)) == set(world.topics) == {"flights", "other"}
    assert world.topics["other"].config == {"retention.ms": "7"}


@pytest.mark.parametrize("document, reason", [(cluster(paused=True), "paused"), (None, "")])
async def test_one_that_waits_for_its_cluster_is_told_so(document, reason) -> None:
    world, operation = await fleet(topic())
    if document is None:
        world.remove("Cluster", "fleet")
    else:
        world.put(document)
    world.put(topic(config={"retention.ms": 7}))
    tell(operation, "MODIFIED")
    await work(operation)
    assert world.topics["flights"].config == {}
    assert world.ready("Topic", "flights")[0] == "False"
    assert reason in world.one("Topic", "flights")["status"]["why"]


async def test_a_mistake_is_told() -> None:
    world, operation = await fleet(topic())
    world.put(topic(partitions=6, replicas=0))
    tell(operation, "MODIFIED")
    await work(operation)
    assert world.ready("Topic", "flights") == ("False", "Invalid")


async def test_what_a_broker_refuses_is_told() -> None:
    world, operation = await fleet(topic())
    world.forbidden_topics["flights"] = "it is forbidden"
    world.put(topic(partitions=9))
    tell(operation, "MODIFIED")
    await work(operation)
    assert world.ready("Topic", "flights") == ("False", "Invalid")


async def test_whatever_call_the_operator_dies_at_the_change_is_made() -> None:
    async def changed(number: int | None) -> World:
        world, operation = await fleet(topic())
        world.put(topic(partitions=9, deletionPolicy="Retain"))
        world.put(topic("new"))
        if number is not None:
            die_after(world, len(world.calls) + number)
        try:
            tell(operation, "MODIFIED")
            tell(operation, "ADDED", "new")
            await work(operation)
        except Death:
            world.after_call = lambda _: None
            await Operation(world).until_at_rest()
        return world

    begun = len((await fleet(topic()))[0].calls)
    quiet = await changed(None)
    assert len(quiet.calls) - begun > 8
    for number in range(len(quiet.calls) - begun):
        world = await changed(number)
        assert (world.topics["flights"].partitions, ledger(world)["flights"]["policy"]) == (
            9,
            "Retain",
        )
        assert world.ready("Topic", "new") == ("True", "Ready")
