"""What a snapshot has of a real broker, and what it has where brokers do not answer."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
from logfleet.checks import run
from logfleet.checks.gathering import gather_snapshot
from logfleet.checks.snapshot import BrokerState, Gap, Part, Snapshot
from logfleet.checks.table import chosen, skipped
from logfleet.cli.fleet.admin_port import Answers, ask_registered
from logfleet.client.admin import Admin, NewTopic
from logfleet.client.cluster import Client
from logfleet.client.consumer import GroupConsumer
from logfleet.client.errors import ClientError
from logfleet.client.groups import Groups
from logfleet.client.offsets import TopicPartition
from logfleet.client.producer import Producer
from logfleet.node.broker import Broker
from logfleet.wire.messages import (
    DescribeClusterRequest,
    DescribeClusterResponse,
    DescribeConfigsRequest,
    DescribeGroupsRequest,
    DescribeLogDirsRequest,
    FetchRequest,
    ListGroupsRequest,
    ListOffsetsRequest,
    OffsetFetchRequest,
)

from broker_image.tests.unit.client.fake_broker import FakeBroker
from broker_image.tests.unit.node.broker_rig import config

pytestmark = pytest.mark.asyncio
BEGIN_MS = 1_600_000_000_000


@pytest_asyncio.fixture
async def client(tmp_path: Path) -> AsyncIterator[Client]:
    """Of a broker with ten records in orders-0, of which the group g has read four."""
    keys = {"offsets.topic.num.partitions": "1", "broker.rack": "a"}
    async with Broker(config(tmp_path, **keys)) as broker:
        (listener,) = broker.opened.listeners.all
        async with Client(f"127.0.0.1:{listener.port}") as made:
            settings = {"min.insync.replicas": "2", "message.timestamp.type": "CreateTime"}
            await Admin(made).create_topic(NewTopic("orders", 2, 1, settings))
            async with Producer(made) as producer:
                for number in range(10):
                    await producer.send("orders", b"v", partition=0, timestamp_ms=BEGIN_MS + number)
            await Groups(made).commit("g", {TopicPartition("orders", 0): 4})
            yield made


async def test_a_snapshot_has_brokers_topics_groups_and_their_ends(client: Client) -> None:
    fleet = await gather_snapshot(client, ask_admin=ask_registered)
    assert fleet.gaps == ()
    (broker,) = fleet.brokers
    assert (broker.id, broker.zone, broker.state) == (1, "a", BrokerState.ACTIVE)
    assert broker.config is not None
    assert broker.config["default.replication.factor"] == "1"
    assert broker.directories is not None
    assert broker.directories[0].error is None
    assert (broker.directories[0].total or 0) > (broker.directories[0].usable or 0) > 0
    assert broker.apis
    assert broker.clock_ahead_s is not None
    assert abs(broker.clock_ahead_s) < 60
    assert broker.readings is not None
    assert (broker.readings.files_open or 0) > 0
    orders = fleet.topics["orders"]
    assert orders.min_isr == 2
    first, second = orders.partitions
    assert (first.leader, first.replicas, first.isr) == (1, (1,), (1,))
    assert (first.begin, first.end, first.newest_ms) == (0, 10, BEGIN_MS + 9)
    assert (first.hour_old, first.week_old) == (10, 10), "all records are older"
    assert (first.size or 0) > 0
    assert (second.begin, second.end, second.newest_ms, second.hour_old) == (0, 0, -1, None)
    assert fleet.level is not None


async def test_the_newest_batch_is_read_of_partitions_that_have_records(client: Client) -> None:
    fleet = await gather_snapshot(client)
    first, second = fleet.topics["orders"].partitions
    assert first.batch is not None
    assert (first.batch.idempotent, first.batch.compressed) == (True, False)
    assert 1 <= first.batch.records <= 10
    assert second.batch is None


async def test_groups_have_their_offsets_and_members(client: Client) -> None:
    fleet = await gather_snapshot(client)
    (group,) = fleet.groups
    assert (group.name, group.state, group.members) == ("g", "Empty", ())
    assert group.committed == {("orders", 0): 4}
    codes = {each.code: each.sentence for each in run(fleet)}
    assert codes["LF301"] == "no members, and 6 records to read, the oldest for a week or longer"


async def test_without_admin_ports_what_they_report_is_not_checked(client: Client) -> None:
    fleet = await gather_snapshot(client)
    assert {gap.part for gap in fleet.gaps} == {Part.METRICS, Part.CLOCKS}
    assert {each.check.code for each in skipped(fleet)} == {"LF403", "LF404", "LF408", "LF503"}


async def test_a_fleet_that_cannot_be_listed_is_an_error() -> None:
    async with Client("127.0.0.1:1", timeout_ms=0) as nobody:
        with pytest.raises(ClientError):
            await gather_snapshot(nobody)


async def silent(seconds_max: float) -> Snapshot:
    """Of a broker that lists itself and its topics, and answers nothing else."""
    broker = FakeBroker({"t": 1})
    broker.answers[DescribeClusterRequest] = lambda _: DescribeClusterResponse(
        error_message=None,
        cluster_id="fake",
        brokers=[
            DescribeClusterResponse.DescribeClusterBroker(
                broker_id=1, host="127.0.0.1", port=broker.port, rack=None
            )
        ],
    )
    for kind in (
        DescribeConfigsRequest,
        DescribeGroupsRequest,
        DescribeLogDirsRequest,
        FetchRequest,
        ListGroupsRequest,
        ListOffsetsRequest,
    ):
        broker.answers[kind] = lambda _: None
    async with broker.running(), Client(broker.bootstrap) as client:
        return await gather_snapshot(client, seconds_max=seconds_max)


async def test_what_is_not_answered_in_time_is_a_gap_with_the_reason() -> None:
    fleet = await silent(2)
    reasons = {gap.part: gap.reason for gap in fleet.gaps if gap.broker is None}
    assert reasons[Part.GROUPS] == "no answer within 1.5 s"
    assert reasons[Part.OFFSETS] == "no answer within 0.5 s", "what is asked last has a quarter"
    (partition,) = fleet.topics["t"].partitions
    assert (partition.begin, partition.end, fleet.topics["t"].config) == (None, None, None)
    assert fleet.brokers[0].directories is None
    assert Gap(Part.DISKS, "no answer within 1.5 s", 1) in fleet.gaps


async def test_a_member_has_its_client_its_host_and_its_partitions(client: Client) -> None:
    async with GroupConsumer(client, "live", ["orders"]) as consumer:
        while not consumer.assignment():
            await consumer.poll(50)
        fleet = await gather_snapshot(client)
    (group,) = (each for each in fleet.groups if each.name == "live")
    assert group.state == "Stable"
    assert group.members is not None
    (member,) = group.members
    assert (member.client_id, dict(member.partitions)) == ("logfleet", {"orders": (0, 1)})
    assert "127.0.0.1" in member.host
    sentences = {each.code: each.sentence for each in run(fleet, chosen(["LF302"]))}
    assert sentences == {"LF302": "reads orders-0 and has committed nothing there"}


async def test_a_broker_without_an_admin_port_is_named(client: Client) -> None:
    async def nobody(*_: object) -> Answers:
        return Answers({}, {1: "it has no admin port"}, {})

    fleet = await gather_snapshot(client, ask_admin=nobody)
    assert set(fleet.gaps) == {
        Gap(Part.METRICS, "it has no admin port", 1),
        Gap(Part.METRICS, "it has no admin port"),
        Gap(Part.CLOCKS, "it has no admin port"),
    }


async def test_admin_ports_that_are_silent_are_a_gap(client: Client) -> None:
    async def silence(*_: object) -> Answers:
        return await asyncio.Event().wait()  # type: ignore[return-value]

    fleet = await gather_snapshot(client, ask_admin=silence, seconds_max=4)
    assert {gap.part for gap in fleet.gaps} == {Part.METRICS, Part.CLOCKS}
    assert {gap.reason for gap in fleet.gaps} == {"no answer within 3 s"}


async def test_an_admin_port_that_is_something_else_is_a_gap(client: Client) -> None:
    async def proxy(*_: object) -> Answers:
        return Answers({1: "<html>"}, {}, {})

    (gap,) = (await gather_snapshot(client, ask_admin=proxy)).gaps
    assert (gap.part, gap.broker) == (Part.METRICS, 1)
    assert gap.reason.startswith("/traffic cannot be read: ")


async def test_ends_are_asked_for_after_the_offsets_of_groups(client: Client) -> None:
    """A group that goes on reading meanwhile is not beyond the end."""
    asked: list[str] = []
    connection = await client.broker(1)
    send = connection.submit

    def recorded(request: Any, *rest: Any, **more: Any) -> Any:
        if isinstance(request, ListOffsetsRequest):
            rows = [row for topic in request.topics for row in topic.partitions]
            asked.append(f"offsets at {rows[0].timestamp:d}")
        elif isinstance(request, OffsetFetchRequest):
            asked.append("committed")
        return send(request, *rest, **more)

    connection.submit = recorded  # type: ignore[method-assign]
    await gather_snapshot(client)
    assert asked.index("committed") < asked.index("offsets at -1")
