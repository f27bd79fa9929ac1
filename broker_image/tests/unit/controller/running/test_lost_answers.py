"""Writes of a controller whose answers get lost, while leaders write to the same keys."""

import asyncio
from contextlib import aclosing

import pytest
from logfleet.controller.changes.topics import NewTopic, TopicCreation, create_topic
from logfleet.controller.terms.operations import TermDecision
from logfleet.metadata.image import ClusterImage, Partition
from logfleet.metadata.image_builder import ImageBuilder
from logfleet.metadata.kinds.cluster import CONTROLLER
from logfleet.metadata.kinds.configs import BROKER_CONFIG
from logfleet.metadata.kinds.topics import NO_LEADER, PARTITION
from logfleet.metadata.receipts import Receipt
from logfleet.metadata.store import Put, Snapshot
from logfleet.replication.partition_state import with_isr
from logfleet.telemetry.decisions import Kind
from structlog.testing import capture_logs

from broker_image.tests.unit.controller.running.controller_rig import (
    Node,
    Store,
    running,
    soon,
    start_broker,
    stop_broker,
    until,
)

pytestmark = pytest.mark.asyncio


async def _topic_of_three(node: Node, store: Store) -> dict[int, int]:
    """Topic t: broker 1 leads both partitions; broker 3 is not in sync with the first.

    Broker epochs by id.
    """
    epochs = {broker_id: await start_broker(store, broker_id) for broker_id in (1, 2, 3)}
    await node.elected()
    await soon(
        node.follower.until(
            lambda image: sum(each.is_active for each in image.brokers.values()) == 3
        )
    )
    new = NewTopic(
        "t",
        b"t" * 16,
        0,
        assignments=((0, (1, 2, 3)), (1, (1, 2, 3))),
        configs={"min.insync.replicas": "2"},
    )

    def decide(image, epoch, layers):
        creation = create_topic(image, epoch, new, layers)
        assert isinstance(creation, TopicCreation)
        return TermDecision(creation.txns, creation)

    await soon(node.loop.submit(decide))
    await leader_keeps(node, store, 0, 1, 2)
    return epochs


async def leader_keeps(
    node: Node, store: Store, index: int, *members: int, topic: str = "t"
) -> None:
    """The leader takes the others out of the ISR, by its own write."""
    found = node.follower.image.topic(topic)
    assert found is not None
    state = found.partitions[index]
    isr = [member for member in state.isr if member[0] in members]
    key = PARTITION.key((found.id, index))
    value = with_isr(state, isr) if set(isr) != set(state.isr) else state.changed()
    await store.write(Put(key, PARTITION.encode(value)))


async def images(store: Store) -> list[ClusterImage]:
    """The image of each revision since the first."""
    seen = [ClusterImage()]
    last = (await store.range("")).revision
    async with aclosing(store.watch("", after_revision=1)) as history:
        async for batch in history:
            assert not isinstance(batch, Snapshot)
            builder = ImageBuilder(seen[-1])
            for event in batch.events:
                builder.add(event)
            seen.append(builder.build(batch.revision)[0])
            if batch.revision == last:
                return seen
    raise AssertionError("the history ended")


@pytest.mark.parametrize("believes_everything", [False, True])
async def test_a_leaders_write_of_the_same_bytes_is_not_taken_for_the_controllers_own(
    store, monkeypatch, believes_everything
):
    """believes_everything: the controller assumes that the attempt was applied.

    Then the next image shows that it was not. Broker 2 returns from a power cut before the sweep,
    whose first attempt gets no answer and is not applied. Meanwhile the leader removes its old
    registration from one of the two partitions by itself, as the controller would have.
    """
    async with running(store) as node:
        await _topic_of_three(node, store)
        if believes_everything:
            monkeypatch.setattr(Receipt, "settled", lambda *_, **__: True)
        store.flowing.clear()
        await stop_broker(store, 2)
        returned = await start_broker(store, 2, unclean=True)
        store.losses = ["late before"]
        store.flowing.set()
        await until(lambda: store.unanswered)
        await leader_keeps(node, store, 1, 1, 3)
        store.answering.set()
        await soon(node.follower.until(lambda image: image.brokers[2].is_active))
        admitted = next(
            image
            for image in await images(store)
            if 2 in image.brokers
            and image.brokers[2].epoch == returned
            and image.brokers[2].is_active
        )
        for partition in parts(admitted):
            assert 2 not in {*partition.isr_ids, *partition.elr}
        monkeypatch.undo()
        await leader_keeps(node, store, 0, 1)
        await stop_broker(store, 1)
        await soon(node.follower.until(lambda image: image.topic("t").partitions[1].leader == 3))
        assert node.partition("t", 0).leader == NO_LEADER, "broker 2 has lost records"
        assert node.decisions.count(Kind.UNCLEAN_ELECTION) == 0


async def test_no_broker_is_admitted_while_a_partition_has_its_last_registration(store):
    """A write of the sweep is too late for one partition: its leader has changed it meanwhile."""
    async with running(store) as node:
        await _topic_of_three(node, store)
        store.flowing.clear()
        await stop_broker(store, 2)
        returned = await start_broker(store, 2, unclean=True)
        store.losses = ["late before"]
        store.flowing.set()
        await until(lambda: store.unanswered)
        await leader_keeps(node, store, 1, 1, 2)
        store.answering.set()
        await soon(node.follower.until(lambda image: image.brokers[2].is_active))
        for image in await images(store):
            if 2 in image.brokers and image.brokers[2].epoch == returned:
                swept = all(2 not in {*each.isr_ids, *each.elr} for each in parts(image))
                assert swept or image.brokers[2].is_new


def parts(image: ClusterImage) -> list[Partition]:
    topic = image.topic("t")
    return [] if topic is None else list(topic.partitions)


async def test_answers_lost_side_by_side_are_each_known(store):
    async with running(store) as node:
        await _topic_of_three(node, store)
        assert isinstance(await node.create("many", 600, replicas=3), TopicCreation)
        store.losses = ["", *["after"] * 5]  # the fence, then elections
        with capture_logs() as logs:
            await stop_broker(store, 3)
            await soon(
                node.follower.until(
                    lambda image: all(
                        3 not in each.isr_ids for each in image.topic("many").partitions
                    )
                )
            )
            await node.create("later")
        events = [row["event"] for row in logs]
        assert events.count("metadata_write_repeated") == 5
        assert "decision_repeated" not in events


async def test_what_was_done_is_known_after_another_broker_has_controlled(store):
    async with running(store, 1) as first, running(store, 2) as second:
        await start_broker(store, 1)
        await until(lambda: first.loop.is_controller or second.loop.is_controller)
        old, new = (first, second) if first.loop.is_controller else (second, first)
        await soon(
            old.follower.until(lambda image: image.brokers[1].is_active if image.brokers else False)
        )
        store.losses = ["late after"]
        creating = asyncio.ensure_future(old.create("t"))
        await until(lambda: store.unanswered)
        await store.write(CONTROLLER.delete(None))
        await new.elected()
        for name in "abcdefghij":
            assert isinstance(await new.create(name), TopicCreation)
        store.answering.set()
        assert isinstance(await soon(creating), TopicCreation)


async def test_what_was_in_a_transaction_that_came_too_late_is_done_by_the_next(store):
    """Nothing happens to topic v that would make the controller check it again."""
    async with running(store) as node:
        await _topic_of_three(node, store)
        for name in ("u", "v"):
            assert isinstance(await node.create(name, 1, replicas=3), TopicCreation)
        store.losses = ["late before"]
        more = {"min.insync.replicas": "2"}
        await store.write(BROKER_CONFIG.put(None, more))
        await until(lambda: store.unanswered)
        await leader_keeps(node, store, 0, 1, 2, topic="u")
        store.answering.set()
        await soon(node.follower.until(lambda image: image.topic("v").partitions[0].min_isr == 2))
