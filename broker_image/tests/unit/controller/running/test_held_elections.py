"""A controller whose brokers lose their registrations all at once, and register again."""

from collections import Counter
from contextlib import aclosing

import msgspec
import pytest
from logfleet.controller.brokers import vanishing
from logfleet.controller.changes.topics import TopicCreation
from logfleet.controller.terms import convergence
from logfleet.controller.terms.operations import TermDecision
from logfleet.metadata.image import ClusterImage
from logfleet.metadata.kinds.brokers import BROKER, FENCED, BrokerValue
from logfleet.metadata.kinds.topics import NO_LEADER, PARTITION, PartitionValue
from logfleet.telemetry.decisions import Kind
from structlog.testing import capture_logs

from broker_image.tests.unit.controller.running.controller_rig import (
    Node,
    Store,
    recorded,
    running,
    soon,
    until,
)

pytestmark = pytest.mark.asyncio
BROKERS = range(1, 7)
RACKS = {each: "abc"[each % 3] for each in BROKERS}
PARTITIONS = 30


async def register(store: Store, *broker_ids: int) -> int:
    """The revision of the last one."""
    revision = 0
    for each in broker_ids:
        value = BrokerValue(f"incarnation-{each}", (), RACKS[each])
        revision = await store.write(BROKER.put(each, value))
    return revision


async def begin(node: Node, store: Store) -> int:
    """Six brokers in three zones are active, with a topic; the store's revision then."""
    await register(store, *BROKERS)
    await node.elected()
    await soon(node.follower.until(all_active))
    assert isinstance(await node.create("t", PARTITIONS, replicas=3), TopicCreation)
    return node.follower.image.revision


def all_active(image: ClusterImage) -> bool:
    return sum(each.is_active for each in image.brokers.values()) == len(BROKERS)


def all_led(image: ClusterImage) -> bool:
    topic = image.topic("t")
    return topic is not None and all(each.has_leader for each in topic.partitions)


async def converged(node: Node) -> None:
    """The controller has done for the present image what it does, or holds it."""
    await soon(node.loop.submit(lambda *_: TermDecision((), None)))


async def end(node: Node, store: Store, *broker_ids: int) -> None:
    """Their leases end at the same time."""
    revision = await store.write(*(BROKER.delete(each) for each in broker_ids))
    await soon(node.follower.until_revision(revision))
    await converged(node)


async def elections(store: Store, after_revision: int, last_revision: int) -> Counter[int]:
    """By partition, how often it got another leader."""
    led, epochs = Counter[int](), dict.fromkeys(range(PARTITIONS), 0)
    async with aclosing(store.watch("", after_revision=after_revision)) as history:
        async for batch in history:
            for event in batch.events:
                if event.key.startswith(PARTITION.prefix):
                    state = msgspec.json.decode(event.value, type=PartitionValue)
                    index = int(event.key.rpartition("/")[2])
                    led[index] += state.leader != NO_LEADER and state.leader_epoch > epochs[index]
                    epochs[index] = state.leader_epoch
            if batch.revision >= last_revision:
                return led
    raise AssertionError("the history ended")


async def all_end_and_come_back(node: Node, store: Store) -> Counter[int]:
    """Two thirds lose their leases first, then the rest; then they register one by one."""
    before = await begin(node, store)
    await end(node, store, 1, 2, 4, 5)
    await end(node, store, 3, 6)
    for each in BROKERS:
        revision = await register(store, each)
        await soon(node.follower.until_revision(revision))
        await converged(node)
    image = await soon(node.follower.until(lambda image: all_active(image) and all_led(image)))
    return await elections(store, before, image.revision)


async def test_each_partition_is_elected_once_when_all_lost_their_leases_and_come_back(store):
    async with running(store) as node:
        with capture_logs() as logs:
            led = await all_end_and_come_back(node, store)
        assert led == dict.fromkeys(range(PARTITIONS), 1)
        leaders = Counter(each.leader for each in node.follower.image.topic("t").partitions)
        assert set(leaders) == set(BROKERS), "not all with who was back first"
        (decision,) = recorded(node.decisions, Kind.ELECTIONS_HELD)
        assert decision.cause.startswith("4 of 6 brokers lost their registrations in 2 zones")
        assert [row["event"] for row in logs].count("elections_held") == 1


async def test_without_a_hold_they_are_elected_twice(store, monkeypatch):
    monkeypatch.setattr(convergence, "hold", lambda *_: None)
    async with running(store) as node:
        led = await all_end_and_come_back(node, store)
        assert set(led.values()) == {1, 2}


async def test_who_does_not_come_back_is_waited_for_only_so_long(store, monkeypatch):
    monkeypatch.setattr(vanishing, "HELD_MS_MAX", 50)
    async with running(store) as node:
        await begin(node, store)
        await end(node, store, 1, 2, 4, 5)
        assert recorded(node.decisions, Kind.ELECTIONS_HELD)
        image = await soon(
            node.follower.until(
                lambda image: all(image.fences[each].state == FENCED for each in (1, 2, 4, 5))
            )
        )
        assert 3 in image.brokers
        await converged(node)
        for state in node.follower.image.topic("t").partitions:
            assert state.leader in {3, 6, NO_LEADER}
            assert state.has_leader == bool({3, 6} & set(state.replicas))


@pytest.mark.parametrize("gone", [(1,), (1, 4)], ids=["a broker", "a zone"])
async def test_the_death_of_a_broker_or_of_a_zone_is_acted_on_at_once(store, gone):
    async with running(store) as node:
        await begin(node, store)
        await end(node, store, *gone)
        assert not recorded(node.decisions, Kind.ELECTIONS_HELD)
        image = node.follower.image
        assert all(image.fences[each].state == FENCED for each in gone)
        assert all(each.leader not in gone for each in image.topic("t").partitions)
        assert all_led(image)


async def test_administrators_are_served_while_elections_are_held(store):
    async with running(store) as node:
        await begin(node, store)
        await end(node, store, 1, 2, 4, 5)
        assert isinstance(await node.create("u", 1, replicas=2), TopicCreation)
        assert {3, 6} == set(node.partition("u").replicas)
        assert not any(each.state == FENCED for each in node.follower.image.fences.values())
        await register(store, 1, 2, 4, 5)
        await soon(node.follower.until(all_active))


async def test_who_vanishes_while_another_one_is_fenced_is_seen_before_anything_is_elected(store):
    """Leases that end within milliseconds come in several images."""
    async with running(store) as node:
        before = await begin(node, store)
        store.losses = ["late"]  # the fence of the first
        await store.write(BROKER.delete(1))
        await until(lambda: store.unanswered)
        revision = await store.write(*(BROKER.delete(each) for each in BROKERS[1:]))
        await soon(node.follower.until_revision(revision))
        store.answering.set()
        await converged(node)
        await register(store, *BROKERS)
        image = await soon(node.follower.until(lambda image: all_active(image) and all_led(image)))
        led = await elections(store, before, image.revision)
        assert led == dict.fromkeys(range(PARTITIONS), 1)
