"""A controller that must learn how far logs reach before it elects; the test plays the brokers."""

import asyncio

import pytest
from logfleet.controller.changes.topics import TopicCreation
from logfleet.controller.terms import longest_logs
from logfleet.metadata.image import ClusterImage
from logfleet.metadata.kinds.brokers import BROKER, FENCED, BrokerValue
from logfleet.metadata.kinds.topics import NO_LEADER
from logfleet.replication.longest_log import SILENT
from logfleet.telemetry.decisions import Kind

from broker_image.tests.unit.controller.running.controller_rig import (
    Node,
    Store,
    recorded,
    running,
    soon,
    until,
    until_leader,
)

pytestmark = pytest.mark.asyncio
BROKERS = (1, 2, 3)


class Logs:
    """ends: (epoch, end offset) by broker, of all partitions. asked: brokers by partition."""

    def __init__(self, **ends: tuple[int, int]) -> None:
        self.ends = {int(name[1:]): end for name, end in ends.items()}
        self.asked: list[list[int]] = []
        self.answering = asyncio.Event()
        self.answering.set()

    async def ask(self, _image: ClusterImage, asked):
        self.asked += [[each.id for each in brokers] for brokers in asked.values()]
        await self.answering.wait()
        return {
            place: {(each.id, each.epoch): self.ends[each.id] for each in brokers}
            for place, brokers in asked.items()
        }


async def begin(node: Node, store: Store, partitions: int = 1) -> None:
    """Three brokers and a topic that all of them hold."""
    for each in BROKERS:
        await register(store, each)
    await node.elected()
    await soon(node.follower.until(lambda image: len(image.brokers) == 3 and are_active(image)))
    assert isinstance(await node.create("t", partitions, replicas=3), TopicCreation)


async def register(store: Store, broker_id: int, **said) -> None:
    value = BrokerValue(f"incarnation-{broker_id}", (), "a", **said)
    await store.write(BROKER.put(broker_id, value))


def are_active(image: ClusterImage) -> bool:
    return all(each.is_active for each in image.brokers.values())


async def lose_power(node: Node, store: Store) -> None:
    """Of all machines; each broker registers again and says that it may have lost records."""
    await store.write(*(BROKER.delete(each) for each in BROKERS))
    await soon(
        node.follower.until(lambda image: all(f.state == FENCED for f in image.fences.values()))
    )
    for each in BROKERS:
        await register(store, each, unclean=True)


async def test_after_a_power_loss_of_all_the_longest_log_leads(store):
    logs = Logs(b1=(3, 50), b2=(3, 70), b3=(2, 90))
    async with running(store, query_log_ends=logs.ask) as node:
        await begin(node, store)
        assert logs.asked == [], "nobody else is asked"
        await lose_power(node, store)
        state = await until_leader(node, "t", 2)
        assert state.recovering
        assert [sorted(each) for each in logs.asked] == [[1, 2, 3]]
        (decision,) = recorded(node.decisions, Kind.UNCLEAN_ELECTION)
        assert decision.cause.startswith(
            "no replica is sure to hold every record, and its log reaches"
        )


async def test_what_need_not_ask_waits_for_no_answer(store):
    logs = Logs(b1=(3, 50), b2=(3, 70), b3=(2, 90))
    logs.answering.clear()
    async with running(store, query_log_ends=logs.ask) as node:
        await begin(node, store)
        gone = next(each for each in BROKERS if each != node.partition("t").leader)
        await lose_power(node, store)
        await until(lambda: logs.asked)
        assert isinstance(await node.create("u", 3, replicas=2), TopicCreation)
        await store.write(BROKER.delete(gone))
        await soon(
            node.follower.until(
                lambda image: all(
                    each.has_leader and each.leader != gone for each in image.topic("u").partitions
                )
            )
        )
        assert node.partition("t").leader == NO_LEADER
        logs.answering.set()
        await soon(node.follower.until(lambda image: image.topic("t").partitions[0].has_leader))


async def test_a_last_leader_that_does_not_answer_is_asked_again(store, monkeypatch):
    monkeypatch.setattr(longest_logs, "AGAIN_MS", 10)
    logs = Logs(b1=SILENT, b2=SILENT, b3=SILENT)
    async with running(store, query_log_ends=logs.ask) as node:
        await begin(node, store)
        last = node.partition("t").leader
        await lose_power(node, store)
        await until(lambda: len(logs.asked) > 2)
        assert node.partition("t").leader == NO_LEADER
        longest = next(each for each in BROKERS if each != last)
        logs.ends |= {last: (3, 1), longest: (3, 2)}
        await until_leader(node, "t", longest)


async def test_a_broker_that_registered_again_meanwhile_is_asked_again(store, monkeypatch):
    monkeypatch.setattr(longest_logs, "AGAIN_MS", 10)
    logs = Logs(b1=(3, 50), b2=(3, 70), b3=(3, 60))
    logs.answering.clear()
    async with running(store, query_log_ends=logs.ask) as node:
        await begin(node, store)
        await lose_power(node, store)
        await until(lambda: logs.asked)
        await store.write(BROKER.delete(2))
        await register(store, 2, unclean=True)
        await soon(node.follower.until(lambda image: 2 in image.brokers and are_active(image)))
        logs.ends[2] = (3, 40)
        logs.answering.set()
        await until_leader(node, "t", 3)
        assert len(logs.asked) > 1


async def test_many_partitions_are_asked_for_at_once_and_all_of_them_led(store):
    logs = Logs(b1=(3, 50), b2=(3, 70), b3=(3, 60))
    asks = 0

    async def counted(image, asked):
        nonlocal asks
        asks += 1
        return await logs.ask(image, asked)

    async with running(store, query_log_ends=counted) as node:
        await begin(node, store, 250)
        await lose_power(node, store)
        await soon(
            node.follower.until(
                lambda image: all(each.leader == 2 for each in image.topic("t").partitions)
            )
        )
        assert asks <= 3
