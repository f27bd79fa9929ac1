"""A controller whose lease ends while a transaction of its is on its way."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import suppress

import pytest
import pytest_asyncio
from logfleet.controller.changes.topics import NewTopic, TopicCreation, create_topic
from logfleet.controller.running.loop import ControllerLoop
from logfleet.controller.terms.operations import TermDecision
from logfleet.io.clock import now_ms
from logfleet.io.etcd.endpoints import Addresses
from logfleet.io.etcd.store import EtcdStore
from logfleet.metadata.kinds.brokers import BROKER, BrokerValue
from logfleet.metadata.kinds.cluster import CONTROLLER, ControllerValue
from logfleet.metadata.kinds.topics import TOPIC
from logfleet.metadata.store import Put, Txn, TxnResult
from logfleet.store.loader import MetadataLoader
from logfleet.telemetry.decisions import Decisions
from logfleet.wire.refusal import Refusal

from broker_image.tests.contract.metadata_store import write
from broker_image.tests.etcd.leases import revoke_for_another
from broker_image.tests.unit.controller.running.controller_rig import nobody_answers, until
from e2e.harness.etcd import EtcdServer

PATIENCE_S = 60
pytestmark = pytest.mark.asyncio


class LateStore(EtcdStore):
    """done: set once the topic t has been written; that is answered once `answering` is set."""

    def __init__(self, server: EtcdServer) -> None:
        super().__init__(Addresses.parse([server.endpoint]), "/logfleet/test/")
        self.done = asyncio.Event()
        self.answering = asyncio.Event()

    async def txn(self, txn: Txn) -> TxnResult:
        result = await super().txn(txn)
        if any(isinstance(each, Put) and each.key == TOPIC.key("t") for each in txn.success):
            self.done.set()
            await self.answering.wait()
        return result


@pytest_asyncio.fixture
async def late(server: EtcdServer) -> AsyncIterator[LateStore]:
    store = LateStore(server)
    yield store
    await store.close()


async def test_a_topic_that_was_made_as_the_lease_ended_is_answered_as_made(
    server: EtcdServer, late: LateStore
) -> None:
    follower = MetadataLoader(late)
    loop = ControllerLoop(
        late,
        follower,
        ControllerValue(1, "incarnation"),
        {},
        Decisions(1, now_ms),
        query_log_ends=nobody_answers,
    )
    await write(late, BROKER.put(1, BrokerValue("incarnation", ())))
    tasks = [asyncio.ensure_future(follower.run()), asyncio.ensure_future(loop.run())]

    def decide(image, epoch, layers):
        creation = create_topic(image, epoch, NewTopic("t", bytes(range(16)), 0, 1), layers)
        return creation if isinstance(creation, Refusal) else TermDecision(creation.txns, creation)

    async with asyncio.timeout(PATIENCE_S):
        await follower.until(lambda image: any(each.is_active for each in image.brokers.values()))
        creating = asyncio.ensure_future(loop.submit(decide))
        await late.done.wait()
        held = await late.get(CONTROLLER.prefix)
        assert held is not None
        await revoke_for_another(late, held.lease)
        await until(lambda: not loop.is_controller)
        late.answering.set()
        assert isinstance(await creating, TopicCreation)
        await until(lambda: loop.is_controller)
        assert isinstance(await loop.submit(decide), Refusal), "it exists, and once only"
    for task in tasks:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task
