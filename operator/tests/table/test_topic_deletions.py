"""What becomes of topics whose Topic is gone: deletion seen, unseen, or created again."""

import pytest
from logfleet.resources.plan import ObservedTopic
from logfleet_operator import names

from .operation import Operation, blocked, cluster, fleet, ledger, token_in, topic
from .world import World

pytestmark = pytest.mark.asyncio


async def test_a_deleted_topic_goes_at_once() -> None:
    world, operation = await fleet(topic(), topic("weather"))
    operation.delete_topic("flights")
    await operation.round()
    assert sorted(world.topics) == sorted(ledger(world)) == ["weather"]


async def test_a_topic_deleted_while_no_operator_ran_goes_after_a_second_look() -> None:
    world, _ = await fleet(topic(), topic("weather"))
    world.remove("Topic", "flights")
    later = Operation(world)
    await later.round()
    await later.round()
    assert sorted(world.topics) == ["flights", "weather"]
    await later.until_at_rest()
    assert sorted(world.topics) == ["weather"]


async def test_deleted_and_made_again_it_is_empty_but_not_if_nobody_saw_the_deletion() -> None:
    world, operation = await fleet(topic())
    operation.delete_topic("flights")
    world.put(topic())
    await operation.until_at_rest()
    assert world.topics["flights"].topic_id == "id-2"
    assert world.ready("Topic", "flights") == ("True", "Ready")
    world.remove("Topic", "flights")
    world.put(topic())
    await Operation(world).until_at_rest()
    assert world.topics["flights"].topic_id == "id-2"


async def test_ten_times_made_and_deleted() -> None:
    world, operation = await fleet()
    for _ in range(10):
        world.put(topic())
        await operation.until_at_rest()
        assert world.ready("Topic", "flights") == ("True", "Ready")
        operation.delete_topic("flights")
        await operation.until_at_rest()
        assert world.topics == {}


async def test_a_topic_made_anew_by_somebody_else_is_not_deleted() -> None:
    world, operation = await fleet(topic())
    world.topics["flights"] = ObservedTopic("theirs", 1, 1, {})
    operation.delete_topic("flights")
    await operation.until_at_rest()
    assert sorted(world.topics) == ["flights"]
    assert ledger(world) == {}


async def test_deleting_the_cluster_deletes_no_topic() -> None:
    world, operation = await fleet(topic())
    world.one("Cluster", "fleet")["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    operation.delete_topic("flights")
    await operation.until_at_rest()
    assert sorted(world.topics) == ["flights"]


@pytest.mark.parametrize(
    "kind, name", [("Namespace", "air"), ("CustomResourceDefinition", "topics.logfleet.dev")]
)
async def test_nothing_is_deleted_while_its_surroundings_go(kind: str, name: str) -> None:
    world, operation = await fleet(topic())
    world.objects[kind, "", name]["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    operation.delete_topic("flights")
    await operation.until_at_rest()
    assert sorted(world.topics) == ["flights"]


@pytest.mark.parametrize("restarted", [False, True])
async def test_a_reinstalled_crd_deletes_no_topic_and_new_resources_take_them_over(
    *,
    restarted: bool,
) -> None:
    world, operation = await fleet(topic())
    operation.delete_topic("flights")
    world.objects["CustomResourceDefinition", "", "topics.logfleet.dev"]["metadata"]["uid"] = "new"
    await operation.until_at_rest()
    assert sorted(world.topics) == ["flights"]
    assert "make Topics for them again" in world.one("Cluster", "fleet")["status"]["why"]
    world.put(topic())
    await (Operation(world) if restarted else operation).until_at_rest()
    assert world.topics["flights"].topic_id == "id-1"
    assert world.ready("Topic", "flights") == ("True", "Ready")


@pytest.mark.parametrize("count", [1, 10, 500])
async def test_deletions_that_were_seen_are_carried_out_however_many(count: int) -> None:
    names_of = [f"topic-{number}" for number in range(count)]
    world, operation = await fleet(topic("stays"), *(topic(name) for name in names_of))
    for name in names_of:
        operation.delete_topic(name)
    await operation.until_at_rest()
    assert sorted(world.topics) == ["stays"]
    assert blocked(world) == ""


async def test_a_reading_ahead_of_the_watch_holds_nothing() -> None:
    """`kubectl delete lft --all`: a pass misses all of them, and only two events have come."""
    names_of = [f"topic-{number}" for number in range(10)]
    world, operation = await fleet(*(topic(name) for name in names_of))
    last = {name: world.one("Topic", name) for name in names_of}
    for name in names_of:
        world.remove("Topic", name)
    for name in names_of[:2]:
        operation.feed.topic("DELETED", last[name])
    await operation.topics.reconcile("air", "fleet")
    assert sorted(world.topics) == names_of[2:]
    for name in names_of[2:]:
        operation.feed.topic("DELETED", last[name])
    await operation.until_at_rest()
    assert sorted(world.topics) == []
    assert blocked(world) == ""


async def test_many_topics_that_nobody_saw_go_wait_for_a_confirmation() -> None:
    names_of = [f"topic-{number}" for number in range(6)]
    world, operation = await fleet(*(topic(name) for name in names_of))
    for name in names_of[:4]:
        world.remove("Topic", name)
    await operation.until_at_rest()
    assert sorted(world.topics) == names_of
    sentence = blocked(world)
    assert sentence.startswith("Topics gone at once: 4 (topic-0, topic-1, topic-2 ...)")
    token = token_in(sentence)
    wrong = cluster()
    wrong["metadata"]["annotations"] = {names.CONFIRM_ANNOTATION: "yes"}
    world.put(wrong)
    await operation.until_at_rest()
    assert sorted(world.topics) == names_of
    right = cluster()
    right["metadata"]["annotations"] = {names.CONFIRM_ANNOTATION: token}
    world.put(right)
    await operation.until_at_rest()
    assert sorted(world.topics) == names_of[4:]
    assert blocked(world) == ""


def topic_ids(world: World) -> dict[str, str]:
    return {name: found.topic_id for name, found in world.topics.items()}


async def gone_at_once(count: int) -> tuple[World, Operation]:
    """A fleet whose `count` Topics were deleted unseen, and that waits for a confirmation."""
    names_of = [f"topic-{number}" for number in range(count)]
    world, operation = await fleet(*(topic(name) for name in names_of))
    for name in names_of:
        world.remove("Topic", name)
    await operation.until_at_rest()
    assert blocked(world)
    return world, operation


@pytest.mark.parametrize("count", [4, 6])
async def test_topics_made_again_while_their_deletion_waits_keep_their_records(count: int) -> None:
    world, operation = await gone_at_once(count)
    assert "make them again to keep the topics" in blocked(world)
    before = topic_ids(world)
    for name in before:
        world.put(topic(name))
        await operation.round()
    await operation.until_at_rest()
    assert topic_ids(world) == before
    assert [world.ready("Topic", name) for name in before] == [("True", "Ready")] * count
    assert blocked(world) == ""


async def test_topics_made_again_before_anybody_looked_do_not_doom_the_others() -> None:
    world, operation = await fleet(*(topic(f"topic-{number}") for number in range(4)))
    before = topic_ids(world)
    for name in before:
        world.remove("Topic", name)
    await operation.round()
    await operation.round()
    world.put(topic("topic-0"))
    await operation.until_at_rest()
    assert topic_ids(world) == before
    assert blocked(world).startswith("Topics gone at once: 3 (topic-1, topic-2, topic-3)")


async def test_those_not_made_again_wait_for_a_confirmation_of_their_own() -> None:
    world, _ = await gone_at_once(4)
    before = topic_ids(world)
    for name in ("topic-0", "topic-1", "topic-2"):
        world.put(topic(name))
    operation = Operation(world)
    await operation.until_at_rest()
    assert topic_ids(world) == before
    sentence = blocked(world)
    assert sentence.startswith("Topics gone at once: 1 (topic-3): their topics stay")
    document = cluster()
    document["metadata"]["annotations"] = {names.CONFIRM_ANNOTATION: token_in(sentence)}
    world.put(document)
    await operation.until_at_rest()
    assert sorted(world.topics) == ["topic-0", "topic-1", "topic-2"]
    operation.delete_topic("topic-0")
    await operation.until_at_rest()
    assert sorted(world.topics) == ["topic-1", "topic-2"]
    assert blocked(world) == ""


async def test_a_topic_that_brokers_do_not_delete_is_told_in_the_clusters_status() -> None:
    world, operation = await fleet(topic())
    world.forbidden_topics = {"flights": "deletion is disabled"}
    operation.delete_topic("flights")
    await operation.until_at_rest()
    assert "deletion is disabled" in blocked(world)
    assert world.ready("Cluster", "fleet") == ("True", "Ready")
    world.forbidden_topics = {}
    await operation.until_at_rest()
    assert world.topics == {}
    assert blocked(world) == ""
