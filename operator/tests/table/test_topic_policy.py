"""Whether a topic goes or stays when its Topic is deleted: what the Topic said last."""

from collections.abc import Callable
from typing import Any

import pytest

from .operation import Operation, cluster, fleet, ledger, topic
from .world import World

pytestmark = pytest.mark.asyncio


async def test_a_retained_topic_stays_and_is_forgotten() -> None:
    world, operation = await fleet(topic(deletionPolicy="Retain"))
    operation.delete_topic("flights")
    await operation.until_at_rest()
    assert sorted(world.topics) == ["flights"]
    assert ledger(world) == {}


@pytest.mark.parametrize("refused", [{"config": {"a": ["b"]}}, {"partitions": 1}])
async def test_a_refused_topic_is_retained_too(refused: dict[str, Any]) -> None:
    world, operation = await fleet(topic())
    world.put(topic(deletionPolicy="Retain", **refused))
    await operation.until_at_rest()
    assert world.ready("Topic", "flights")[0] == "False"
    operation.delete_topic("flights")
    await operation.until_at_rest()
    assert sorted(world.topics) == ["flights"]
    assert ledger(world) == {}


async def test_a_topic_that_is_retained_and_deleted_at_once_stays() -> None:
    world, operation = await fleet(topic())
    world.put(topic(deletionPolicy="Retain"))
    operation.delete_topic("flights")
    await operation.until_at_rest()
    assert sorted(world.topics) == ["flights"]
    assert ledger(world) == {}


async def test_a_policy_that_no_pass_has_seen_retains_a_topic_but_deletes_none() -> None:
    world, operation = await fleet(topic(deletionPolicy="Retain"))
    world.put(topic(deletionPolicy="Delete"))
    operation.delete_topic("flights")
    await operation.until_at_rest()
    assert sorted(world.topics) == ["flights"]


async def test_last_words_that_come_in_the_middle_of_a_pass_are_for_the_next() -> None:
    world, operation = await fleet(topic())
    world.put(topic(deletionPolicy="Retain"))
    last = world.one("Topic", "flights")
    world.remove("Topic", "flights")

    def tell(number: int) -> None:
        if world.calls[number] == "get Namespace air":
            world.after_call = lambda _: None
            operation.feed.topic("DELETED", last)

    world.after_call = tell
    await operation.until_at_rest()
    assert sorted(world.topics) == ["flights"]
    assert ledger(world) == {}


def is_paused(world: World) -> None:
    world.put(cluster(paused=True))


def is_not_valid(world: World) -> None:
    world.put(cluster(metadata={}))


def is_not_reachable(world: World) -> None:
    world.unreachable = True


def has_no_ready_broker(world: World) -> None:
    world.broken_images = {"logfleet/broker:1"}


IDLE = [is_paused, is_not_valid, is_not_reachable, has_no_ready_broker]


async def some_rounds(operation: Operation) -> None:
    """Brokers that do not answer are asked for ever: this never comes to rest."""
    for _ in range(4):
        await operation.round()


def works_again(world: World) -> None:
    world.unreachable = False
    world.broken_images = set()
    world.put(cluster())


async def retained_while(idle: Callable[[World], None]) -> tuple[World, Operation]:
    """A fleet in which no pass acts, and a Topic that has just been changed to Retain."""
    world, operation = await fleet(topic())
    idle(world)
    await some_rounds(operation)
    world.put(topic(deletionPolicy="Retain"))
    return world, operation


@pytest.mark.parametrize("idle", IDLE)
async def test_what_a_topic_says_of_its_end_counts_also_while_nothing_is_done(
    idle: Callable[[World], None],
) -> None:
    world, operation = await retained_while(idle)
    await some_rounds(operation)
    world.remove("Topic", "flights")
    works_again(world)
    await Operation(world).until_at_rest()
    assert sorted(world.topics) == ["flights"]
    assert ledger(world) == {}


@pytest.mark.parametrize("idle", IDLE)
async def test_its_last_word_is_written_down_also_while_nothing_is_done(
    idle: Callable[[World], None],
) -> None:
    world, operation = await retained_while(idle)
    operation.delete_topic("flights")
    await some_rounds(operation)
    works_again(world)
    await Operation(world).until_at_rest()
    assert sorted(world.topics) == ["flights"]
    assert ledger(world) == {}
