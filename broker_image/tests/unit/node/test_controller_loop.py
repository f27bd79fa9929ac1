import asyncio
from collections.abc import Awaitable, Callable
from contextlib import asynccontextmanager
from typing import TypeVar

import pytest
import pytest_asyncio
from logfleet.control.config_changes import ConfigChange, ConfigOperation, alter_topic_configs
from logfleet.control.topics import (
    NewPartitions,
    NewTopic,
    TopicCreation,
    create_partitions,
    create_topic,
    delete_topic,
)
from logfleet.control.transactions import Refusal
from logfleet.io.sqlite import SqliteStore
from logfleet.metadata import keys
from logfleet.metadata.image import Partition
from logfleet.metadata.keys import BrokerValue, ControllerValue, PartitionValue
from logfleet.metadata.store import (
    TXN_BYTES_MAX,
    Delete,
    Operation,
    Put,
    StoreRefused,
    StoreUnavailable,
    Txn,
    TxnResult,
    UnknownOutcome,
    exists,
)
from logfleet.node.controller_loop import ControllerLoop
from logfleet.node.controller_term import Decision, NotControllerError
from logfleet.node.metadata_follower import MetadataFollower

PATIENCE_S = 20
pytestmark = pytest.mark.asyncio
T = TypeVar("T")


async def soon(awaitable: Awaitable[T]) -> T:
    async with asyncio.timeout(PATIENCE_S):
        return await awaitable


async def until(condition: Callable[[], object]) -> None:
    async with asyncio.timeout(PATIENCE_S):
        while not condition():  # noqa: ASYNC110  what is waited for has no event
            await asyncio.sleep(0)


class Store(SqliteStore):
    """The embedded store, with answers that get lost: `losses` says of each coming txn what happens to it."""

    def __init__(self, *arguments) -> None:
        super().__init__(*arguments)
        self.losses: list[str] = []
        self.compacted: list[int] = []
        self.compact_errors = 0

    async def txn(self, txn: Txn) -> TxnResult:
        match self.losses.pop(0) if self.losses else "":
            case "before":
                raise UnknownOutcome("not done, but who knows")
            case "after":
                await super().txn(txn)
                raise UnknownOutcome("done, but who knows")
            case "away":
                raise StoreUnavailable("away")
            case "refused":
                raise StoreRefused("permission denied")
        return await super().txn(txn)

    async def write(self, *operations: Operation) -> int:
        """What others do; answered always."""
        return (await super().txn(Txn(success=operations))).revision

    async def compact(self, revision: int) -> None:
        if self.compact_errors:
            self.compact_errors -= 1
            raise StoreUnavailable("away")
        self.compacted.append(revision)


@pytest_asyncio.fixture
async def store(tmp_path):
    store = await Store.open(tmp_path / "metadata")
    yield store
    await store.close()


class Node:
    def __init__(self, store: Store, broker_id: int, **options) -> None:
        self.follower = MetadataFollower(store)
        value = ControllerValue(broker_id, f"incarnation-{broker_id}")
        self.loop = ControllerLoop(store, self.follower, value, {}, **options)

    async def elected(self) -> None:
        await until(lambda: self.loop.is_controller)

    async def create(self, name: str, partitions: int = 1) -> TopicCreation | Refusal:
        new = NewTopic(name, name.encode().ljust(16, b"-"), 0, partitions)

        def decide(image, epoch, layers):
            creation = create_topic(image, epoch, new, layers)
            return creation if isinstance(creation, Refusal) else Decision(creation.txns, creation)

        return await soon(self.loop.submit(decide))

    def partition(self, name: str, index: int = 0):
        topic = self.follower.image.topic(name)
        assert topic is not None
        return topic.partitions[index]


@asynccontextmanager
async def running(store: Store, broker_id: int = 1, **options):
    node = Node(store, broker_id, **options)
    async with asyncio.TaskGroup() as tasks:
        follow = tasks.create_task(node.follower.run())
        control = tasks.create_task(node.loop.run())
        yield node
        control.cancel()
        await asyncio.wait([control])
        follow.cancel()


async def start_broker(store: Store, broker_id: int) -> int:
    value = keys.encode(BrokerValue(f"incarnation-{broker_id}", ()))
    return await store.write(Put(keys.broker(broker_id), value))


async def stop_broker(store: Store, broker_id: int) -> None:
    await store.write(Delete(keys.broker(broker_id)))


async def until_leader(node: Node, name: str, leader: int) -> Partition:
    def holds(image):
        topic = image.topic(name)
        return topic is not None and topic.partitions[0].leader == leader

    await soon(node.follower.until(holds))
    partition: Partition = node.partition(name)
    return partition


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
            return Decision(txns, 301)

        assert await soon(node.loop.submit(grow)) == 301
        assert node.partition("t", 300).leader == 1

        def alter(image, epoch, _):
            change = ConfigChange("min.insync.replicas", ConfigOperation.SET, "2")
            altered = alter_topic_configs(image, epoch, "t", [change])
            assert isinstance(altered, tuple)
            return Decision(altered, True)

        assert await soon(node.loop.submit(alter))
        await soon(node.follower.until(lambda image: image.topic("t").partitions[300].min_isr == 2))

        def delete(image, epoch, _):
            return Decision((delete_topic(epoch, image.topic("t")),), "gone")

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


async def test_a_broker_that_returns_leads_again_in_a_new_term(store):
    async with running(store) as node:
        await start_broker(store, 1)
        await node.elected()
        await node.create("t")
        await stop_broker(store, 1)
        gone = await until_leader(node, "t", keys.NO_LEADER)
        epoch = await start_broker(store, 1)
        back = await until_leader(node, "t", 1)
        assert (gone.leader_epoch, back.leader_epoch) == (1, 2)
        assert back.isr == ((1, epoch),)


async def test_another_broker_takes_over_and_settles_what_it_finds(store):
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
        gone = await until_leader(second, "t", keys.NO_LEADER)
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
        await node.create("settled")
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
        gone = await until_leader(node, "t", keys.NO_LEADER)
        assert (gone.leader_epoch, gone.partition_epoch) == (1, 1)


async def test_a_lost_election_answer_is_not_the_end(store):
    store.losses = ["after"]
    async with running(store) as node:
        await node.elected()
        image = await soon(node.follower.until(lambda image: image.controller is not None))
        assert image.controller.broker == 1


async def test_an_idle_controller_resigns_and_stands_again(store):
    """KAFKA-13407: the key names this process, but nobody in it knows."""
    value = keys.encode(ControllerValue(1, "incarnation-1"))
    idle = await store.write(Put(keys.CONTROLLER, value))
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
        await store.write(Delete(keys.CONTROLLER))
        with pytest.raises(NotControllerError):
            await node.create("u")
        await soon(node.follower.until(lambda image: image.controller not in {None, first}))
        await node.elected()
        assert node.follower.image.topic("u") is None
        assert isinstance(await node.create("u"), TopicCreation)


async def test_what_a_lost_controller_left_half_made_is_removed(store):
    uuid = "AAECAwQFBgcICQoLDA0ODw"
    await store.write(
        Put(keys.topic("half"), keys.encode(keys.TopicValue(uuid))),
        Put(keys.topic_id(uuid), b"half"),
        Put(
            keys.partition(uuid, 0),
            keys.encode(PartitionValue((1,), ((1, 1),), 1, 0, 0, 1)),
        ),
    )
    async with running(store) as node:
        await node.elected()
        await soon(node.follower.until(lambda image: bool(image.revision) and not image.unfinished))
        assert [item.key for item in (await store.range("")).items] == [keys.CONTROLLER]


async def test_an_operation_decided_too_late_is_decided_anew(store):
    seen = []

    async with running(store) as node:
        await node.elected()

        def decide(image, epoch, _):
            seen.append(image.revision)
            compares = () if len(seen) > 2 else (exists("never/there"),)
            return Decision((Txn(compares, (Put("a", b"1"),)),), len(seen))

        async def disturb():
            while len(seen) < 3:
                await store.write(Put("noise", str(len(seen)).encode()))
                await asyncio.sleep(0)

        disturbing = asyncio.ensure_future(disturb())
        assert await soon(node.loop.submit(decide)) == 3
        await disturbing


async def test_an_operation_that_never_fits_is_given_up(store, monkeypatch):
    monkeypatch.setattr("logfleet.node.controller_term.CATCH_UP_S_MAX", 0.001)
    async with running(store) as node:
        await node.elected()
        answer = await soon(
            node.loop.submit(
                lambda _image, _epoch, _layers: Decision(
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
    return Decision((Txn(success=(small,)), Txn(success=(large,))), True)


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
        await node.create("settled")
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
    """The claim of the controller's key, or the fence of the broker: nobody needs either to serve records."""
    monkeypatch.setattr("logfleet.node.controller_loop.PAUSE_S_MAX", 0.001)
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


async def test_many_partitions_are_elected_in_slices(store, monkeypatch):
    monkeypatch.setattr("logfleet.node.controller_term.ELECTION_PARTITIONS", 2)
    async with running(store) as node:
        await start_broker(store, 1)
        await node.elected()
        for number in range(5):
            await node.create(f"t{number}")
        await stop_broker(store, 1)
        for number in range(5):
            await until_leader(node, f"t{number}", keys.NO_LEADER)


async def test_the_controller_compacts_what_is_old_and_lives_on_if_it_cannot(store):
    store.compact_errors = 1
    async with running(store, history_s=0.001) as node:
        await node.elected()
        await until(lambda: store.compacted)
        assert node.loop.is_controller
