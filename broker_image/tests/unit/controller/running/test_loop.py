import asyncio

import pytest
from logfleet.controller.brokers.unregistering import unregister
from logfleet.controller.changes.config_changes import (
    ConfigChange,
    ConfigOperation,
    alter_topic_configs,
)
from logfleet.controller.changes.election_writes import election_steps
from logfleet.controller.changes.store_writes import pack
from logfleet.controller.changes.topics import (
    NewPartitions,
    TopicCreation,
    confirm_deleted,
    create_partitions,
    delete_topic,
    unknown_topic,
)
from logfleet.controller.terms import slices as controller_slices
from logfleet.controller.terms.operations import NotControllerError, TermDecision
from logfleet.metadata.kinds.brokers import DIRECTORIES, FENCED, DirectoriesValue
from logfleet.metadata.kinds.cluster import CONTROLLER, RECEIPT, ControllerValue
from logfleet.metadata.kinds.topics import (
    DELETED,
    NO_LEADER,
    PARTITION,
    TOPIC,
    TOPIC_ID,
    DeletedValue,
    PartitionValue,
    TopicValue,
)
from logfleet.metadata.store import (
    TXN_BYTES_MAX,
    Put,
    StoreRefused,
    StoreUnavailable,
    Txn,
    exists,
)
from logfleet.telemetry.decisions import Kind
from logfleet.types import BrokerEpoch, LeaderEpoch, PartitionEpoch
from logfleet.wire import uuids
from logfleet.wire.refusal import Refusal

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

UUID = "AAECAwQFBgcICQoLDA0ODw"
pytestmark = pytest.mark.asyncio


async def test_the_only_broker_is_elected_and_makes_itself_active(store):
    async with running(store) as node:
        await start_broker(store, 1)
        await soon(
            node.follower.until(
                lambda image: image.brokers[1].is_active if image.brokers else False
            )
        )
        assert node.loop.is_controller
        assert node.follower.image.controller.broker == 1


async def test_topics_are_created_grown_altered_and_deleted(store):
    async with running(store) as node:
        await start_broker(store, 1)
        await node.elected()
        creation = await node.create("t", 300)
        assert isinstance(creation, TopicCreation)
        assert node.partition("t", 299).leader == 1, "an answer comes when the image shows it"

        def grow(image, epoch, layers):
            txns = create_partitions(image, epoch, NewPartitions("t", 301, 0), layers)
            assert isinstance(txns, tuple)
            return TermDecision(txns, 301)

        assert await soon(node.loop.submit(grow)) == 301
        assert node.partition("t", 300).leader == 1

        def alter(image, epoch, _):
            change = ConfigChange("min.insync.replicas", ConfigOperation.SET, "2")
            altered = alter_topic_configs(image, epoch, "t", [change])
            assert isinstance(altered, tuple)
            return TermDecision(altered, True)

        assert await soon(node.loop.submit(alter))
        await soon(node.follower.until(lambda image: image.topic("t").partitions[300].min_isr == 2))

        def delete(image, epoch, _):
            return TermDecision((delete_topic(epoch, image.topic("t")),), "gone")

        assert await soon(node.loop.submit(delete)) == "gone"
        assert node.follower.image.topic("t") is None
        assert len(node.follower.image.deleted) == 1


async def test_a_refusal_writes_nothing(store):
    async with running(store) as node:
        await start_broker(store, 1)
        await node.elected()
        await node.create("t")
        before = node.follower.image.revision
        answer = await node.create("t")
        assert isinstance(answer, Refusal)
        assert node.follower.image.revision == before


async def test_a_change_that_the_store_cannot_take_is_refused_and_not_begun(store):
    async with running(store) as node:
        await node.elected()
        small, large = Put("a", b""), Put("b", b"x" * TXN_BYTES_MAX)
        txns = (Txn(success=(small,)), Txn(success=(large,)))
        refusal = await soon(node.loop.submit(lambda *_: TermDecision(txns, None)))
        assert isinstance(refusal, Refusal)
        assert f"{TXN_BYTES_MAX} at most" in refusal.message
        assert (await store.range("a")).items == ()
        assert await soon(node.loop.submit(lambda *_: TermDecision(txns[:1], "done"))) == "done"


async def test_a_broker_that_returns_leads_again_in_a_new_term(store):
    async with running(store) as node:
        await start_broker(store, 1)
        await node.elected()
        await node.create("t")
        await stop_broker(store, 1)
        gone = await until_leader(node, "t", NO_LEADER)
        epoch = await start_broker(store, 1)
        back = await until_leader(node, "t", 1)
        assert (gone.leader_epoch, back.leader_epoch) == (1, 2)
        assert back.isr == ((1, epoch),)


async def test_another_broker_takes_over_and_ends_what_it_finds(store):
    async with running(store, 2) as second:
        async with running(store, 1) as first:
            await start_broker(store, 1)
            await soon(
                first.follower.until(
                    lambda image: image.controller is not None and bool(image.fences)
                )
            )
            leader = first if first.loop.is_controller else second
            await leader.create("t")
            winner = leader.follower.image.controller
        if winner.broker == 1:
            await stop_broker(store, 1)
        await second.elected()
        await stop_broker(store, 1)
        gone = await until_leader(second, "t", NO_LEADER)
        assert gone.leader_epoch == 1
        assert second.follower.image.controller.broker == 2


async def test_only_the_controller_takes_operations(store):
    node = Node(store, 1)
    with pytest.raises(NotControllerError):
        await node.create("t")


@pytest.mark.parametrize("loss", ["before", "after", "away"])
async def test_a_lost_answer_neither_loses_nor_doubles_an_operation(store, loss):
    async with running(store) as node:
        await start_broker(store, 1)
        await node.elected()
        await node.create("converged")
        store.losses = [loss]
        creation = await node.create("t", 2)
        assert isinstance(creation, TopicCreation)
        assert node.partition("t", 1).leader == 1
        assert store.losses == []
        assert len(node.follower.image.entries) == 2


@pytest.mark.parametrize("loss", ["before", "after"])
async def test_a_lost_answer_does_not_skip_a_leader_epoch(store, loss):
    async with running(store) as node:
        await start_broker(store, 1)
        await node.elected()
        await node.create("t")
        store.losses = ["", loss]  # the fence, then the election
        await stop_broker(store, 1)
        gone = await until_leader(node, "t", NO_LEADER)
        assert (gone.leader_epoch, gone.partition_epoch) == (1, 1)


async def _confirmed(node: Node, store: Store) -> None:
    """What a broker does once its image shows a deleted topic."""
    image = await soon(node.follower.until(lambda image: bool(image.deleted)))
    for deleted in image.deleted.values():
        await store.write(*confirm_deleted(deleted, 1).success)


@pytest.mark.parametrize("losses", [["after"], ["after", "before"], ["before"]])
async def test_a_deletion_without_answer_is_recognised_after_brokers_have_confirmed_it(
    store, losses
):
    async with running(store) as node:
        await start_broker(store, 1)
        await node.elected()
        await node.create("t")

        def delete(image, epoch, _):
            topic = image.topic("t")
            if topic is None:
                return unknown_topic()
            return TermDecision((delete_topic(epoch, topic),), "gone")

        store.losses = list(losses)
        confirming = asyncio.ensure_future(_confirmed(node, store))
        assert await soon(node.loop.submit(delete)) == "gone"
        assert node.follower.image.topic("t") is None
        await confirming


async def test_an_unregistration_without_answer_is_recognised(store):
    async with running(store) as node:
        await start_broker(store, 1)
        await node.elected()
        await soon(node.follower.until(lambda image: bool(image.fences)))
        await store.write(
            DELETED.put(uuids.from_text(UUID), DeletedValue("gone", (1, 2))),
            DIRECTORIES.put(1, DirectoriesValue(("a",))),
        )
        await stop_broker(store, 1)
        await soon(node.follower.until(lambda image: image.fences[1].state == FENCED))

        def forget(image, epoch, _):
            steps = unregister(image, 1)
            return steps if isinstance(steps, Refusal) else TermDecision(pack(epoch, steps), "gone")

        async def the_other_broker_confirms():
            image = await node.follower.until(lambda image: 1 not in image.fences)
            (deleted,) = image.deleted.values()
            await store.write(*confirm_deleted(deleted, 2).success)

        store.losses = ["after"]
        confirming = asyncio.ensure_future(the_other_broker_confirms())
        assert await soon(node.loop.submit(forget)) == "gone"
        await confirming


async def test_a_success_is_waited_for_however_late_the_watch_is(store, monkeypatch):
    monkeypatch.setattr("logfleet.controller.terms.term.CATCH_UP_MS_MAX", 1)
    async with running(store) as node:
        await start_broker(store, 1)
        await node.elected()
        await node.create("converged")
        store.flowing.clear()
        creating = asyncio.ensure_future(node.create("t"))
        await until(lambda: store.held)
        done, _ = await asyncio.wait([creating], timeout=0.1)
        assert not done, "the image does not show it yet"
        store.flowing.set()
        assert isinstance(await creating, TopicCreation)


async def test_a_lost_election_answer_is_not_the_end(store):
    store.losses = ["after"]
    async with running(store) as node:
        await node.elected()
        image = await soon(node.follower.until(lambda image: image.controller is not None))
        assert image.controller.broker == 1


async def test_an_idle_controller_resigns_and_stands_again(store):
    """KAFKA-13407: the key names this process, which does not notice."""
    value = CONTROLLER.encode(ControllerValue(1, "incarnation-1"))
    idle = await store.write(Put(CONTROLLER.prefix, value))
    async with running(store) as node:
        await node.elected()
        image = await soon(node.follower.until(lambda image: image.controller is not None))
        assert image.controller.epoch > idle


async def test_a_controller_that_lost_its_key_stops_answers_what_waits_and_stands_again(store):
    async with running(store) as node:
        await start_broker(store, 1)
        await node.elected()
        await node.create("t")
        first = node.follower.image.controller
        await store.write(CONTROLLER.delete(None))
        with pytest.raises(NotControllerError):
            await node.create("u")
        await soon(node.follower.until(lambda image: image.controller not in {None, first}))
        await node.elected()
        assert node.follower.image.topic("u") is None
        assert isinstance(await node.create("u"), TopicCreation)


async def test_what_a_lost_controller_left_half_made_is_removed(store):
    await store.write(
        TOPIC.put("half", TopicValue(UUID)),
        Put(TOPIC_ID.key(uuids.from_text(UUID)), b"half"),
        PARTITION.put(
            (uuids.from_text(UUID), 0),
            PartitionValue((1,), ((1, BrokerEpoch(1)),), 1, LeaderEpoch(0), PartitionEpoch(0), 1),
        ),
    )
    async with running(store) as node:
        await node.elected()
        await soon(node.follower.until(lambda image: bool(image.revision) and not image.unfinished))
        assert [item.key for item in (await store.range("")).items] == [
            CONTROLLER.prefix,
            RECEIPT.key((1, 0)),
        ]


async def test_an_operation_decided_too_late_is_decided_again(store):
    seen = []

    async with running(store) as node:
        await node.elected()

        def decide(image, epoch, _):
            seen.append(image.revision)
            compares = () if len(seen) > 2 else (exists("never/there"),)
            return TermDecision((Txn(compares, (Put("a", b"1"),)),), len(seen))

        async def disturb():
            while len(seen) < 3:
                await store.write(Put("noise", str(len(seen)).encode()))
                await asyncio.sleep(0)

        disturbing = asyncio.ensure_future(disturb())
        assert await soon(node.loop.submit(decide)) == 3
        await disturbing


async def test_an_operation_that_never_fits_is_given_up(store, monkeypatch):
    monkeypatch.setattr("logfleet.controller.terms.term.CATCH_UP_MS_MAX", 1)
    async with running(store) as node:
        await node.elected()
        answer = await soon(
            node.loop.submit(
                lambda _image, _epoch, _layers: TermDecision(
                    (Txn((exists("never/there"),), (Put("a", b"1"),)),), True
                )
            )
        )
        assert isinstance(answer, Refusal)
        assert answer.error.name == "REQUEST_TIMED_OUT"


def _broken(_image, _epoch, _layers):
    raise AssertionError("a rule was forgotten")


def _too_large(_image, _epoch, _layers):
    small, large = Put("small", b"1"), Put("large", bytes(TXN_BYTES_MAX))
    return TermDecision((Txn(success=(small,)), Txn(success=(large,))), True)


@pytest.mark.parametrize("operation", [_broken, _too_large])
async def test_an_operation_that_cannot_be_done_fails_alone(store, operation):
    async with running(store) as node:
        await start_broker(store, 1)
        await node.elected()
        answer = await soon(node.loop.submit(operation))
        assert isinstance(answer, Refusal)
        assert answer.error.name == "UNKNOWN_SERVER_ERROR"
        assert await store.get("small") is None, "what cannot be done whole is not begun"
        assert isinstance(await node.create("t"), TopicCreation)


async def test_an_operation_that_the_store_refuses_fails_alone(store):
    async with running(store) as node:
        await start_broker(store, 1)
        await node.elected()
        await node.create("converged")
        epoch = node.follower.image.controller.epoch
        store.losses = ["refused"]
        answer = await node.create("t")
        assert isinstance(answer, Refusal)
        assert (answer.error.name, "permission denied" in answer.message) == (
            "UNKNOWN_SERVER_ERROR",
            True,
        )
        assert isinstance(await node.create("t"), TopicCreation)
        assert node.follower.image.controller.epoch == epoch


@pytest.mark.parametrize("refused", [["refused"], ["", "refused"]])
async def test_a_controller_whose_store_refuses_its_writes_stands_again(
    store, monkeypatch, refused
):
    """The claim of the controller's key, or the broker's fence: serving records needs neither."""
    monkeypatch.setattr("logfleet.controller.terms.candidate.PAUSE_MS", 1)
    await start_broker(store, 1)
    store.losses = refused
    async with running(store) as node:
        await soon(node.follower.until(lambda image: bool(image.fences)))
        assert store.losses == []
        assert isinstance(await node.create("t"), TopicCreation)


async def test_an_abandoned_operation_is_skipped(store):
    async with running(store) as node:
        await start_broker(store, 1)
        await node.elected()
        store.losses = ["away"]
        first = asyncio.ensure_future(node.create("a"))
        second = asyncio.ensure_future(node.create("b"))
        await asyncio.sleep(0)
        second.cancel()
        assert isinstance(await soon(first), TopicCreation)
        assert isinstance(await node.create("c"), TopicCreation)
        assert node.follower.image.topic("b") is None


async def test_many_partitions_are_handled_in_slices(store, monkeypatch):
    """Between two of them the loop does something else, also where there is nothing to elect."""
    monkeypatch.setattr(controller_slices, "SLICE_PARTITIONS", 4)
    slices: list[list[str]] = [[]]

    def recorded(image, topic, layers, **options):
        if not slices[-1]:
            asyncio.get_running_loop().call_soon(slices.append, [])
        slices[-1].append(topic.name)
        return election_steps(image, topic, layers, **options)

    names = [f"t{number}" for number in range(4)]
    async with running(store) as node:
        await start_broker(store, 1)
        await node.elected()
        for name in names:
            await node.create(name, 2)
        monkeypatch.setattr(controller_slices, "election_steps", recorded)
        await start_broker(store, 2)
        await until(lambda: {name for each in slices for name in each} == set(names))
        await stop_broker(store, 1)
        for name in names:
            await until_leader(node, name, NO_LEADER)
    assert max(map(len, slices)) == 2


async def test_the_controller_compacts_what_is_old_and_lives_on_if_it_cannot(store):
    store.compact_errors = [StoreUnavailable("away"), StoreRefused("permission denied")]
    async with running(store, history_s=0.001) as node:
        await node.elected()
        await until(lambda: store.compacted)
        assert node.loop.is_controller
        assert len(recorded(node.decisions, Kind.CONTROLLER_ELECTED)) == 1
