"""A broker asks others how far their logs reach; those are brokers of a few lines."""

import asyncio
from contextlib import AsyncExitStack

import msgspec
import pytest
import pytest_asyncio
from logfleet.config.broker import broker_config
from logfleet.controller.running import log_ends
from logfleet.controller.running.log_ends import DEBUGGING_REPLICA_ID, LogEndsClient
from logfleet.controller.terms import log_ends_query
from logfleet.metadata.image import Broker, ClusterImage, Topic
from logfleet.metadata.kinds.brokers import ACTIVE, BrokerValue, Endpoint
from logfleet.metadata.shards import ShardedMap
from logfleet.replication.longest_log import SILENT
from logfleet.types import BrokerEpoch
from logfleet.wire.errors import ErrorCode
from logfleet.wire.messages import OffsetForLeaderEpochRequest, OffsetForLeaderEpochResponse

from broker_image.tests.unit.client.fake_broker import FakeBroker

pytestmark = pytest.mark.asyncio
T, U = bytes([1]) * 16, bytes([2]) * 16
_Topic = OffsetForLeaderEpochResponse.OffsetForLeaderTopicResult
_Row = OffsetForLeaderEpochResponse.EpochEndOffset
Place = tuple[str, int]


class Replicas(FakeBroker):
    """ends: (epoch, end offset) of its logs. later: how many requests find its partitions led."""

    def __init__(self, ends: dict[Place, tuple[int, int]], later: int = 0) -> None:
        super().__init__()
        self.answers[OffsetForLeaderEpochRequest] = self._answer
        self._ends = ends
        self._later = later

    @property
    def asked(self) -> list[OffsetForLeaderEpochRequest]:
        return self.of(OffsetForLeaderEpochRequest)

    def _answer(self, request: OffsetForLeaderEpochRequest) -> OffsetForLeaderEpochResponse:
        topics = [
            _Topic(
                topic=t.topic, partitions=[self._row(t.topic, p.partition) for p in t.partitions]
            )
            for t in request.topics
        ]
        return OffsetForLeaderEpochResponse(topics=topics)

    def _row(self, topic: str, index: int) -> _Row:
        if len(self.asked) <= self._later:
            return _Row(partition=index, error_code=ErrorCode.NOT_LEADER_OR_FOLLOWER)
        epoch, end = self._ends[topic, index]
        return _Row(partition=index, leader_epoch=epoch, end_offset=end)


class Silent(FakeBroker):
    """Takes the question and never answers."""

    def __init__(self) -> None:
        super().__init__()
        self.answers[OffsetForLeaderEpochRequest] = self._wait

    async def _wait(self, _request: OffsetForLeaderEpochRequest) -> None:
        await asyncio.Event().wait()


@pytest_asyncio.fixture
async def started():
    """Start brokers, with ids from 1 on; their image."""
    stack = AsyncExitStack()

    async def start(*several: FakeBroker | None) -> ClusterImage:
        brokers = {}
        for broker_id, each in enumerate(several, 1):
            listeners = (Endpoint("PLAINTEXT", "127.0.0.1", 1),)
            if each is not None:
                await stack.enter_async_context(each.running())
                listeners = (Endpoint("PLAINTEXT", "127.0.0.1", each.port),)
            value = BrokerValue("i", listeners)
            brokers[broker_id] = Broker(broker_id, BrokerEpoch(10 * broker_id), value, ACTIVE)
        entries = ShardedMap[bytes, Topic]()
        topics = {
            each: Topic(each, name, revision=1, ready_revision=1) for each, name in NAMES.items()
        }
        return ClusterImage(brokers=brokers, entries=entries.updated(topics))

    async with stack:
        yield start


NAMES = {T: "t", U: "u"}


async def ask(image: ClusterImage, asked: dict[tuple[bytes, int], list[int]]):
    client = LogEndsClient(broker_config({"node.id": "9"}))
    return await client.query(
        image, {place: [image.brokers[each] for each in ids] for place, ids in asked.items()}
    )


async def test_each_broker_is_asked_once_for_all_its_partitions(started) -> None:
    one = Replicas({("t", 0): (4, 90), ("t", 1): (5, 7), ("u", 0): (-1, 0)})
    two = Replicas({("t", 0): (4, 100)})
    image = await started(one, two)
    found = await ask(image, {(T, 0): [1, 2], (T, 1): [1], (U, 0): [1]})
    assert found == {
        (T, 0): {(1, 10): (4, 90), (2, 20): (4, 100)},
        (T, 1): {(1, 10): (5, 7)},
        (U, 0): {(1, 10): (-1, 0)},
    }
    (request,) = one.asked
    assert request.replica_id == DEBUGGING_REPLICA_ID
    assert {(t.topic, p.partition) for t in request.topics for p in t.partitions} == {
        ("t", 0),
        ("t", 1),
        ("u", 0),
    }


async def test_who_does_not_answer_in_time_is_silent_and_keeps_nobody_waiting(
    started, monkeypatch
) -> None:
    monkeypatch.setattr(log_ends_query, "LOG_ENDS_MS_MAX", 300)
    image = await started(Silent(), Replicas({("t", 0): (4, 100)}), None)
    found = await ask(image, {(T, 0): [1, 2, 3]})
    assert found == {(T, 0): {(1, 10): SILENT, (2, 20): (4, 100), (3, 30): SILENT}}


async def test_a_broker_is_asked_again_for_what_it_takes_for_led_still(started) -> None:
    one = Replicas({("t", 0): (4, 90)}, later=2)
    image = await started(one)
    assert await ask(image, {(T, 0): [1]}) == {(T, 0): {(1, 10): (4, 90)}}
    assert len(one.asked) == 3


async def test_a_long_list_is_asked_in_parts(started, monkeypatch) -> None:
    monkeypatch.setattr(log_ends, "PARTITIONS_MAX", 2)
    one = Replicas({("t", index): (4, index) for index in range(5)})
    image = await started(one)
    found = await ask(image, {(T, index): [1] for index in range(5)})
    assert found == {(T, index): {(1, 10): (4, index)} for index in range(5)}
    assert len(one.asked) == 3


async def test_a_broker_without_an_address_for_brokers_is_silent(started) -> None:
    image = await started(Replicas({}))
    nowhere = msgspec.structs.replace(image.brokers[1], value=BrokerValue("i", ()))
    image = msgspec.structs.replace(image, brokers={1: nowhere})
    assert await ask(image, {(T, 0): [1]}) == {(T, 0): {(1, 10): SILENT}}
