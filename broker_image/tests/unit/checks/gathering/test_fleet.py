"""What a snapshot has of a real broker, and what it has where brokers do not answer."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio
from logfleet.checks import run
from logfleet.checks.gathering import gather_snapshot
from logfleet.checks.snapshot import BrokerState, Gap, Part, Snapshot
from logfleet.checks.table import skipped
from logfleet.cli.fleet.admin_port import ask_registered
from logfleet.client.admin import Admin, NewTopic
from logfleet.client.cluster import Client
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
    fleet = await silent(0.2)
    reasons = {gap.part: gap.reason for gap in fleet.gaps if gap.broker is None}
    assert reasons[Part.GROUPS] == reasons[Part.OFFSETS] == "no answer within 0.2 s"
    (partition,) = fleet.topics["t"].partitions
    assert (partition.begin, partition.end, fleet.topics["t"].config) == (None, None, None)
    assert fleet.brokers[0].directories is None
    assert Gap(Part.DISKS, "no answer within 0.2 s", 1) in fleet.gaps
