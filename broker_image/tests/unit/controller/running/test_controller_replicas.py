"""The controller and partitions of several replicas, as brokers come, vanish and leave."""

import asyncio
from contextlib import aclosing
from typing import cast

import msgspec
import pytest
from logfleet.controller.brokers import leaving
from logfleet.controller.changes.config_changes import (
    ConfigChange,
    ConfigOperation,
    alter_topic_configs,
)
from logfleet.controller.changes.election_writes import SETTLED_MS
from logfleet.controller.changes.topics import TopicCreation
from logfleet.controller.terms.operations import TermDecision
from logfleet.io.clock import now_ms
from logfleet.metadata.kinds.brokers import BROKER, FENCE, FENCED, BrokerValue
from logfleet.metadata.kinds.topics import NO_LEADER, PARTITION, PartitionValue
from logfleet.metadata.store import Put
from logfleet.replication.partition_state import with_isr
from logfleet.telemetry.decisions import Kind
from logfleet.types import BrokerEpoch
from logfleet.wire import uuids
from structlog.testing import capture_logs

from broker_image.tests.unit.controller.running.controller_rig import (
    Node,
    Store,
    recorded,
    running,
    soon,
    start_broker,
    stop_broker,
    until,
    until_leader,
)

OFTEN = {"leader.imbalance.check.interval.seconds": "0.001"}
pytestmark = pytest.mark.asyncio


async def _replicated(node: Node, store: Store, partitions: int, replicas: int = 2) -> None:
    """So many brokers, from 1 on, and a topic `t` that all of them hold."""
    for broker_id in range(1, replicas + 1):
        await start_broker(store, broker_id)
    await node.elected()
    await soon(
        node.follower.until(
            lambda image: sum(b.is_active for b in image.brokers.values()) == replicas
        )
    )
    assert isinstance(await node.create("t", partitions, replicas=replicas), TopicCreation)


async def test_elections_of_a_broker_that_died_do_not_wait_for_one_another(store):
    async with running(store) as node:
        await _replicated(node, store, 300)
        store.losses = ["", "late", "late"]  # the fence, then elections
        await stop_broker(store, 2)
        await until(lambda: store.unanswered == 2)
        store.answering.set()
        topic = await soon(
            node.follower.until(
                lambda image: all(state.leader == 1 for state in image.topic("t").partitions)
            )
        )
        assert {len(state.isr) for state in topic.topic("t").partitions} == {1}


async def test_an_election_that_came_too_late_holds_up_no_other(store):
    """A leader changed one partition meanwhile: its write is decided again, the others are done."""

    async def written(index: int) -> PartitionValue:
        item = await store.get(PARTITION.key((topic.id, index)))
        assert item is not None
        return msgspec.json.decode(item.value, type=PartitionValue)

    async with running(store) as node:
        await _replicated(node, store, 300)
        topic = node.follower.image.topic("t")
        assert topic is not None
        store.losses = ["late"]  # the fence
        await stop_broker(store, 2)
        await until(lambda: store.unanswered)
        await soon(node.follower.until(lambda image: image.fences[2].state == FENCED))
        store.flowing.clear()
        key = PARTITION.key((topic.id, 0))
        await store.write(Put(key, PARTITION.encode(topic.partitions[0].changed())))
        store.answering.set()
        while len((await written(299)).isr) == 2:  # noqa: ASYNC110  the store has no event
            await asyncio.sleep(0)
        assert len((await written(0)).isr) == 2
        store.flowing.set()
        await soon(
            node.follower.until(
                lambda image: all(len(each.isr) == 1 for each in image.topic("t").partitions)
            )
        )


async def test_a_broker_that_restarted_is_let_in_once_it_is_in_no_isr(store):
    async with running(store) as node:
        await _replicated(node, store, 150)
        before = node.follower.image.revision
        store.flowing.clear()
        await stop_broker(store, 2)
        epoch = await start_broker(store, 2)
        store.flowing.set()
        await soon(node.follower.until(lambda image: image.brokers[2].is_active))
        in_sync = set(range(150))
        async with aclosing(store.watch("", after_revision=before)) as history:
            async for batch in history:
                for event in batch.events:
                    if event.key.startswith(PARTITION.prefix):
                        state = msgspec.json.decode(event.value, type=PartitionValue)
                        if 2 not in dict(state.isr):
                            in_sync.discard(int(event.key.rpartition("/")[2]))
                    if event.key == FENCE.key(2) and str(epoch).encode() in event.value:
                        assert in_sync == set()
                        return


async def test_unclean_elections_are_counted(store):
    async with running(store) as node:
        await _replicated(node, store, 2)
        await stop_broker(store, 2)
        await soon(
            node.follower.until(lambda image: 2 not in image.topic("t").partitions[0].isr_ids)
        )
        await stop_broker(store, 1)
        await until_leader(node, "t", NO_LEADER)
        await start_broker(store, 2)

        def allow(image, epoch, _):
            change = ConfigChange("unclean.leader.election.enable", ConfigOperation.SET, "true")
            altered = alter_topic_configs(image, epoch, "t", [change])
            assert isinstance(altered, tuple)
            return TermDecision(altered, True)

        assert await soon(node.loop.submit(allow))
        await until_leader(node, "t", 2)
        await until(lambda: node.decisions.count(Kind.UNCLEAN_ELECTION) == 2)


async def test_a_broker_that_would_leave_hands_over_what_it_leads(store):
    async with running(store) as node:
        await _replicated(node, store, 2)
        await store.write(BROKER.put(2, BrokerValue("incarnation-2", (), leaving=True)))
        image = await soon(node.follower.until(lambda image: leaving.may_exit(image, 2)))
        assert [state.leader for state in image.topic("t").partitions] == [1, 1]


@pytest.mark.parametrize("age_ms, is_preferred", [(2 * SETTLED_MS, True), (0, False)])
async def test_a_leaving_broker_hands_over_to_replaced_and_settled_ones(
    store, age_ms, is_preferred
):
    async with running(store) as node:
        await _replicated(node, store, 1, replicas=3)
        leader, first, second = node.partition("t").replicas
        replaced = second if is_preferred else first
        for broker_id, fields in (
            (replaced, {"since_ms": now_ms() - age_ms}),
            (leader, {"leaving": True}),
        ):
            value = BrokerValue(f"incarnation-{broker_id}", (), **fields)
            await store.write(BROKER.put(broker_id, value))
        await until_leader(node, "t", second)


async def test_a_broker_that_is_needed_is_kept_until_others_are_in_sync(store):
    async with running(store) as node:
        await _replicated(node, store, 1)
        await stop_broker(store, 2)
        await start_broker(store, 2)
        await soon(node.follower.until(lambda image: len(image.topic("t").partitions[0].isr) == 1))
        with capture_logs() as logs:
            value = BrokerValue("incarnation-1", (), leaving=True)
            await store.write(BROKER.put(1, value))
            await until(lambda: any(row["event"] == "broker_kept" for row in logs))
        assert node.follower.image.brokers[1].is_active
        (decision,) = recorded(node.decisions, Kind.REFUSAL)
        assert (decision.broker, decision.topic, decision.partition) == (1, "t", 0)
        topic = node.follower.image.topic("t")
        state, epoch = topic.partitions[0], node.follower.image.brokers[2].epoch
        key = PARTITION.key((topic.id, 0))
        await store.write(Put(key, PARTITION.encode(with_isr(state, [*state.isr, (2, epoch)]))))
        await soon(node.follower.until(lambda image: leaving.may_exit(image, 1)))
        await until_leader(node, "t", 2)
        assert recorded(node.decisions, Kind.DRAINING)[0].broker == 1
        (decision,) = recorded(node.decisions, Kind.ELECTION)
        assert decision.cause == "broker 1 leaves: broker 2, which is in sync, leads"


async def _moved_from_preferred(node, store) -> None:
    """Broker 1, which is the first replica of every other partition, died and is back in sync."""
    await _replicated(node, store, 60)
    await stop_broker(store, 1)
    await soon(
        node.follower.until(
            lambda image: all(state.leader == 2 for state in image.topic("t").partitions)
        )
    )
    epoch = await start_broker(store, 1)
    await soon(node.follower.until(lambda image: 1 in image.brokers and image.brokers[1].is_active))
    topic = node.follower.image.topic("t")
    assert topic is not None
    uuid = uuids.to_text(topic.id)
    for index, state in enumerate(topic.partitions):
        both = with_isr(state, [*state.isr, (1, BrokerEpoch(epoch))])
        await store.write(PARTITION.put((uuids.from_text(uuid), index), both))


async def test_preferred_replicas_lead_again_once_they_are_in_sync(store):
    async with running(store, static=OFTEN, settled_s=0.001) as node:
        await _moved_from_preferred(node, store)
        image = await soon(
            node.follower.until(
                lambda image: all(
                    state.leader == state.replicas[0] for state in image.topic("t").partitions
                )
            )
        )
        assert {state.leader for state in image.topic("t").partitions} == {1, 2}
        assert all(len(state.isr) == 2 for state in image.topic("t").partitions)
        cause = "preferred replicas lead again: broker 1, which is in sync, leads"
        assert recorded(node.decisions, Kind.ELECTION)[-1].cause == cause


async def test_elections_are_recorded_once_also_if_the_answer_of_the_store_was_lost(store):
    async with running(store) as node:
        await _replicated(node, store, 2)
        store.losses = ["", "after"]  # the fence, then the elections
        await stop_broker(store, 2)
        await soon(
            node.follower.until(
                lambda image: all(each.isr_ids == [1] for each in image.topic("t").partitions)
            )
        )
        await until(lambda: recorded(node.decisions, Kind.ELECTION))
        assert node.decisions.count(Kind.ELECTION, Kind.UNCLEAN_ELECTION) == 1, (
            "the other one was led by broker 1 already"
        )
        assert [each.broker for each in recorded(node.decisions, Kind.ISR_SHRINK)] == [2]


async def test_internal_topics_get_replicas_on_brokers_that_come(store):
    async with running(store) as node:
        await start_broker(store, 1)
        await node.elected()
        await soon(
            node.follower.until(lambda image: 1 in image.brokers and image.brokers[1].is_active)
        )
        assert isinstance(await node.create("__consumer_offsets", 3, replicas=1), TopicCreation)
        for broker_id in (2, 3, 4):
            await start_broker(store, broker_id)
        await soon(
            node.follower.until(
                lambda image: all(
                    len(state.replicas) == 3
                    for state in image.topic("__consumer_offsets").partitions
                )
            )
        )
        (first, *_) = recorded(node.decisions, Kind.REASSIGNMENT)
        assert first.topic == "__consumer_offsets"
        before, after = cast("list[list[int]]", first.facts["replicas"])
        assert (before, len(after)) == ([1], 2)
