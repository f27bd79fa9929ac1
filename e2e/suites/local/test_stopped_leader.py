"""A leader that was stopped and goes on, since no timer has killed it: another may lead by then.

Nothing that it finds in its sockets may be acknowledged.
"""

import asyncio
import contextlib
import time
from collections.abc import Awaitable, Callable
from typing import TypeVar

import pytest
from logfleet.client.admin import Admin, NewTopic
from logfleet.client.cluster import Client
from logfleet.records.record import Record, build_batch
from logfleet.wire.messages import ProduceRequest

from e2e.bench.lag.watched_broker import WatchedBroker
from e2e.harness.processes import Broker, Rig
from e2e.harness.topics import PATIENCE_S
from e2e.harness.wire_connection import Disconnected, WireConnection

pytestmark = pytest.mark.timeout(300)
T = TypeVar("T")
PRODUCE_VERSION = 9
PIPELINED = 30


def ask(broker: Broker, question: Callable[[Admin], Awaitable[T]]) -> T:
    async def run() -> T:
        async with Client(broker.bootstrap) as client:
            return await question(Admin(client))

    return asyncio.run(run())


def leader_of(broker: Broker, name: str) -> int | None:
    """By this broker's word; None as long as it knows no such topic."""
    topic = ask(broker, lambda admin: admin.find_topic(name))
    return None if topic is None else topic.partitions[0].leader


def wait_until(holds: Callable[[], bool], what: str) -> None:
    give_up_s = time.monotonic() + PATIENCE_S
    while not holds():
        assert time.monotonic() < give_up_s, f"not in time: {what}"
        time.sleep(0.05)


def send(connection: WireConnection) -> None:
    batch = bytes(build_batch([Record(None, b"v", 1_700_000_000_000)]))
    data = ProduceRequest.PartitionProduceData(index=0, records=batch)
    topic = ProduceRequest.TopicProduceData(name="t", partition_data=[data])
    request = ProduceRequest(acks=-1, timeout_ms=30_000, topic_data=[topic])
    connection.send(request, PRODUCE_VERSION)


def receive(connection: WireConnection) -> int:
    """The error of the next answer. Raises Disconnected."""
    answer = connection.receive(ProduceRequest, PRODUCE_VERSION)
    error: int = answer.responses[0].partition_responses[0].error_code
    return error


def call(connection: WireConnection) -> int:
    send(connection)
    return receive(connection)


def test_what_a_stopped_leader_finds_in_its_sockets_is_not_acknowledged(rig: Rig) -> None:
    fleet = rig.fleet(2, made=WatchedBroker)
    ask(fleet.brokers[0], lambda admin: admin.create_topic(NewTopic("t", 1, 1)))
    wait_until(lambda: leader_of(fleet.brokers[0], "t") in {1, 2}, "a leader")
    number = leader_of(fleet.brokers[0], "t")
    stopped = fleet.brokers[0 if number == 1 else 1]
    other = fleet.brokers[1 if number == 1 else 0]
    with WireConnection(stopped.port) as connection:
        wait_until(lambda: call(connection) == 0, "the leader to serve")
        for _ in range(2):
            assert call(connection) == 0, "not decoded any more (see producing.repeats)"
        stopped.pause()
        for _ in range(PIPELINED):
            send(connection)
        wait_until(
            lambda: len(ask(other, lambda admin: admin.describe_cluster()).brokers) == 1,
            "the end of its registration",
        )
        ask(other, lambda admin: admin.delete_topic("t"))
        ask(other, lambda admin: admin.create_topic(NewTopic("t", 1, 1)))
        assert leader_of(other, "t") == int(other.config["node.id"])
        stopped.resume()
        acknowledged = 0
        with contextlib.suppress(Disconnected):
            for _ in range(PIPELINED):
                acknowledged += receive(connection) == 0
    assert acknowledged == 0, "into the old log"
    wait_until(lambda: leader_of(stopped, "t") == int(other.config["node.id"]), "the new topic")
