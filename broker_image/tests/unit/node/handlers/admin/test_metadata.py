import msgspec
import pytest
import pytest_asyncio
from logfleet.auth.operations import Operation
from logfleet.metadata.kinds.brokers import (
    BROKER,
    DRAINING,
    FENCE,
    BrokerValue,
    Endpoint,
    FenceValue,
)
from logfleet.metadata.kinds.topics import PARTITION
from logfleet.net.peer import Peer
from logfleet.node.dispatch import RequestContext
from logfleet.node.handlers.admin.topics import create_one
from logfleet.node.handlers.metadata import describe_topic_partitions
from logfleet.wire import uuids
from logfleet.wire.errors import ErrorCode
from logfleet.wire.messages import (
    DescribeClusterRequest,
    DescribeTopicPartitionsRequest,
    MetadataRequest,
)
from logfleet.wire.uuids import ZERO_UUID

pytestmark = pytest.mark.asyncio
Wanted = MetadataRequest.MetadataRequestTopic


@pytest_asyncio.fixture
async def topic(node):
    assert await create_one(node.controller_access, "t", 3, 1, {}) is None
    return node.image.topic("t")


def by_name(*names: str, **options) -> MetadataRequest:
    options.setdefault("allow_auto_topic_creation", False)
    return MetadataRequest(topics=[Wanted(name=name) for name in names], **options)


def errors(answer) -> dict[str | None, str]:
    return {row.name: ErrorCode(row.error_code).name for row in answer.topics}


async def other_broker(node, broker_id: int, *listeners: Endpoint) -> None:
    """A second broker, registered by hand."""
    await node.write(BROKER.put(broker_id, BrokerValue("i", listeners, "b")))
    await node.until(lambda image: image.brokers[broker_id].is_active)


async def test_all_topics_and_brokers_at_every_version(node, topic, versions):
    for version in versions(MetadataRequest):
        request = MetadataRequest(topics=[] if version == 0 else None)
        answer = await node.ask(request, version)
        (broker,) = answer.brokers
        assert (broker.node_id, broker.host, broker.port) == (1, "127.0.0.1", node.port)
        (row,) = answer.topics
        assert (row.name, row.error_code, len(row.partitions)) == ("t", 0, 3)
        for index, partition in enumerate(row.partitions):
            assert (partition.partition_index, partition.leader_id) == (index, 1)
            assert (partition.replica_nodes, partition.isr_nodes) == ([1], [1])
        if version >= 1:
            assert (broker.rack, answer.controller_id) == ("a", 1)
        if version >= 2:
            assert answer.cluster_id == node.cluster_id
        if version >= 7:
            assert row.partitions[0].leader_epoch == 0
        if version >= 10:
            assert row.topic_id == topic.id


async def test_no_topics_are_asked_for_by_an_empty_list_since_version_1(node, topic):
    assert (await node.ask(MetadataRequest(topics=[]), 1)).topics == []


async def test_unknown_and_invalid_names_are_answered_once_each(node, topic):
    answer = await node.ask(by_name("t", "nope", "bad name", "nope", "__consumer_offsets"))
    assert errors(answer) == {
        "t": "NONE",
        "nope": "UNKNOWN_TOPIC_OR_PARTITION",
        "bad name": "INVALID_TOPIC_EXCEPTION",
        "__consumer_offsets": "UNKNOWN_TOPIC_OR_PARTITION",
    }
    assert [row.name for row in answer.topics if row.is_internal] == ["__consumer_offsets"]


async def test_topics_are_asked_for_by_id(node, topic):
    unknown = bytes(range(16))
    request = MetadataRequest(
        topics=[Wanted(name=None, topic_id=topic.id), Wanted(name=None, topic_id=unknown)]
    )
    answer = await node.ask(request, 12)
    assert errors(answer) == {"t": "NONE", None: "UNKNOWN_TOPIC_ID"}
    assert answer.topics[1].topic_id == unknown


@pytest.mark.parametrize("version", [10, 11])
async def test_versions_that_only_return_ids_refuse_requests_by_them(node, topic, version):
    for wanted in (
        Wanted(name=None, topic_id=topic.id),
        Wanted(name="t", topic_id=bytes(range(16))),
    ):
        answer = await node.ask(MetadataRequest(topics=[wanted, Wanted(name="t")]), version)
        assert errors(answer) == {wanted.name or "": "INVALID_REQUEST", "t": "INVALID_REQUEST"}
        assert answer.topics[0].topic_id == wanted.topic_id
        assert (answer.brokers, answer.controller_id) == ([], -1)


async def test_neither_name_nor_id_is_an_invalid_request(node):
    request = MetadataRequest(topics=[Wanted(name=None, topic_id=ZERO_UUID)])
    assert errors(await node.ask(request, 12)) == {"": "INVALID_REQUEST"}


async def test_a_topic_is_created_on_demand_if_client_and_broker_allow_it(node):
    request = by_name("wanted", "bad name", "__consumer_offsets", allow_auto_topic_creation=True)
    assert errors(await node.ask(request))["wanted"] == "UNKNOWN_TOPIC_OR_PARTITION"
    await node.until(lambda image: image.topic("wanted"))
    assert errors(await node.ask(request))["wanted"] == "NONE"
    assert node.image.topic_count() == 1
    assert len(node.image.topic("wanted").partitions) == 1


async def test_clients_before_the_flag_always_allow_creation(node):
    await node.ask(by_name("wanted", allow_auto_topic_creation=True), 3)
    await node.until(lambda image: image.topic("wanted"))


@pytest.mark.parametrize("asked, allowed", [(True, "false"), (False, "true")])
async def test_a_topic_is_not_created_if_one_of_both_forbids_it(start, asked, allowed):
    node = await start(auto_create_topics_enable=allowed)
    await node.register()
    request = by_name("wanted", allow_auto_topic_creation=asked)
    assert errors(await node.ask(request)) == {"wanted": "UNKNOWN_TOPIC_OR_PARTITION"}
    assert node.topic_creator._creating == {}


async def test_a_partition_without_leader_reports_it_and_keeps_its_epoch(node, topic):
    await other_broker(node, 2)
    await node.unregister()
    await node.until(lambda image: image.topic("t").partitions[2].leader == -1)
    row = (await node.ask(by_name("t"))).topics[0].partitions[0]
    assert ErrorCode(row.error_code) is ErrorCode.LEADER_NOT_AVAILABLE
    assert (row.leader_id, row.leader_epoch) == (-1, 1)
    assert (row.replica_nodes, row.isr_nodes, row.offline_replicas) == ([1], [], [1])
    request = by_name("t", allow_auto_topic_creation=True)
    row = (await node.ask(request, 0)).topics[0].partitions[0]
    assert (row.replica_nodes, row.isr_nodes) == ([], [])


async def test_a_client_sees_only_brokers_that_have_its_listener(node, topic):
    outside = Endpoint("OUTSIDE", "node", 31_000)
    await other_broker(node, 2, outside)
    answer = await node.ask(by_name("t"))
    assert [broker.node_id for broker in answer.brokers] == [1]
    answer = await node.ask(by_name("t"), listener="OUTSIDE")
    assert [(broker.node_id, broker.port) for broker in answer.brokers] == [(2, 31_000)]
    assert answer.controller_id == 2, "the controller is not there for this client: any other is"
    row = answer.topics[0].partitions[0]
    assert ErrorCode(row.error_code) is ErrorCode.LISTENER_NOT_FOUND
    assert (row.leader_id, row.offline_replicas) == (-1, [1])
    row = (await node.ask(by_name("t"), 5, listener="OUTSIDE")).topics[0].partitions[0]
    assert ErrorCode(row.error_code) is ErrorCode.LEADER_NOT_AVAILABLE


async def test_a_broker_that_is_not_active_is_not_shown(start):
    node = await start(stands=False)
    await node.write(BROKER.put(1, BrokerValue("i", ())))
    answer = await node.ask(by_name())
    assert (answer.brokers, answer.controller_id) == ([], -1)


async def test_a_broker_on_its_way_out_is_shown_as_long_as_it_may_lead(node, topic):
    await other_broker(node, 2, Endpoint("PLAINTEXT", "other", 9092))
    epoch = node.image.brokers[2].epoch
    await node.write(FENCE.put(2, FenceValue(epoch, DRAINING)))
    answer = await node.ask(by_name("t"))
    assert [broker.node_id for broker in answer.brokers] == [1, 2]


async def test_operations_are_returned_if_requested(node, topic):
    answer = await node.ask(by_name("t", "nope"), 10)
    assert answer.cluster_authorized_operations == -(2**31)
    assert answer.topics[0].topic_authorized_operations == -(2**31)
    request = by_name(
        "t",
        "nope",
        include_cluster_authorized_operations=True,
        include_topic_authorized_operations=True,
    )
    answer = await node.ask(request, 10)
    assert answer.cluster_authorized_operations == 8096
    assert [row.topic_authorized_operations for row in answer.topics] == [3576, 3576]


def page(*names: str, limit: int = 2000, cursor=None) -> DescribeTopicPartitionsRequest:
    topics = [DescribeTopicPartitionsRequest.TopicRequest(name=name) for name in names]
    if cursor is not None:
        cursor = DescribeTopicPartitionsRequest.Cursor(
            topic_name=cursor[0], partition_index=cursor[1]
        )
    return DescribeTopicPartitionsRequest(
        topics=topics, response_partition_limit=limit, cursor=cursor
    )


class Counted(list[DescribeTopicPartitionsRequest.TopicRequest]):
    """walks: how often somebody went through it."""

    walks = 0

    def __iter__(self):
        self.walks += 1
        return super().__iter__()


@pytest.mark.parametrize("count", [10, 200])
async def test_unknown_names_are_not_each_searched_for_among_all(node, count):
    request = page(*(f"unknown-{number:03}" for number in range(count)))
    request.topics = asked = Counted(request.topics)
    context = RequestContext(Peer("PLAINTEXT"), 0, None, 1)
    answer = describe_topic_partitions(node, request, context)
    assert [row.error_code for row in answer.topics] == [
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    ] * count
    assert asked.walks == 1  # for their order, however many they are


def cursor_of(answer):
    cursor = answer.next_cursor
    return None if cursor is None else (cursor.topic_name, cursor.partition_index)


async def test_topic_partitions_are_described_page_by_page(node, topic):
    assert await create_one(node.controller_access, "a", 2, 1, {}) is None
    seen = []
    cursor = None
    for _ in range(9):
        answer = await node.ask(page(limit=2, cursor=cursor))
        seen += [
            (row.name, part.partition_index) for row in answer.topics for part in row.partitions
        ]
        cursor = cursor_of(answer)
        if cursor is None:
            break
    assert seen == [("a", 0), ("a", 1), ("t", 0), ("t", 1), ("t", 2)]


async def test_a_full_page_does_not_go_on_to_a_topic_that_is_not_there(node, topic):
    answer = await node.ask(page("t", "u", limit=3))
    assert errors(answer) == {"t": "NONE"}
    assert cursor_of(answer) == ("u", 0)
    answer = await node.ask(page("t", "u", limit=3, cursor=("u", 0)))
    assert errors(answer) == {"u": "UNKNOWN_TOPIC_OR_PARTITION"}


async def test_a_described_partition_has_all_its_fields(node, topic):
    (row,) = (await node.ask(page("t"))).topics
    assert (row.topic_id, row.topic_authorized_operations) == (topic.id, 3576)
    partition = row.partitions[1]
    assert (partition.partition_index, partition.leader_id, partition.leader_epoch) == (1, 1, 0)
    assert (partition.replica_nodes, partition.isr_nodes) == ([1], [1])
    assert (partition.eligible_leader_replicas, partition.last_known_elr) == ([], [])


async def test_what_cannot_be_described_is_named(node, topic):
    answer = await node.ask(page("t", "nope", "bad name"))
    assert errors(answer) == {
        "bad name": "INVALID_TOPIC_EXCEPTION",
        "nope": "UNKNOWN_TOPIC_OR_PARTITION",
        "t": "NONE",
    }
    assert errors(await node.ask(page("t", cursor=("t", -1)))) == {"t": "INVALID_REQUEST"}
    assert errors(await node.ask(page("t", cursor=("u", 0)))) == {"t": "INVALID_REQUEST"}


async def test_the_broker_bounds_a_page_too(start):
    node = await start(max_request_partition_size_limit="2")
    await node.register()
    assert await create_one(node.controller_access, "t", 3, 1, {}) is None
    answer = await node.ask(page("t"))
    assert len(answer.topics[0].partitions) == 2
    assert cursor_of(answer) == ("t", 2)
    answer = await node.ask(page("t", limit=0))
    assert len(answer.topics[0].partitions) == 1


async def test_the_cluster_is_described_at_every_version(node, versions):
    for version in versions(DescribeClusterRequest):
        answer = await node.ask(DescribeClusterRequest(), version)
        assert (answer.error_code, answer.cluster_id) == (0, node.cluster_id)
        (broker,) = answer.brokers
        assert (broker.broker_id, broker.rack, answer.controller_id) == (1, "a", 1)
    request = DescribeClusterRequest(include_cluster_authorized_operations=True)
    assert (await node.ask(request)).cluster_authorized_operations == 8096


async def test_operations_that_a_client_may_not_do_are_left_out(node, monkeypatch):
    assert await create_one(node.controller_access, "t", 1, 1, {}) is None
    denied = {(Operation.WRITE, "t"), (Operation.ALTER, "kafka-cluster")}
    monkeypatch.setattr(RequestContext, "may", lambda _, op, on: (op, on.name) not in denied)
    request = MetadataRequest(
        topics=None,
        include_cluster_authorized_operations=True,
        include_topic_authorized_operations=True,
    )
    answer = await node.ask(request, 10)
    assert answer.topics[0].topic_authorized_operations == 3576 - (1 << Operation.WRITE)
    assert answer.cluster_authorized_operations == 8096 - (1 << Operation.ALTER)
    denied.add((Operation.DESCRIBE, "kafka-cluster"))
    describe = DescribeClusterRequest(include_cluster_authorized_operations=True)
    assert (await node.ask(describe)).cluster_authorized_operations == 0


async def test_fenced_brokers_are_described_if_asked_for(start):
    node = await start(stands=False)
    there = BrokerValue("i", (Endpoint("PLAINTEXT", "h", 1),))
    await node.write(BROKER.put(1, there))
    assert (await node.ask(DescribeClusterRequest())).brokers == []
    (broker,) = (await node.ask(DescribeClusterRequest(include_fenced_brokers=True))).brokers
    assert broker.is_fenced


@pytest.mark.parametrize(
    "endpoint, error", [(2, "MISMATCHED_ENDPOINT_TYPE"), (7, "UNSUPPORTED_ENDPOINT_TYPE")]
)
async def test_only_brokers_are_described(node, endpoint, error):
    answer = await node.ask(DescribeClusterRequest(endpoint_type=endpoint))
    assert ErrorCode(answer.error_code).name == error


async def test_a_replica_in_a_directory_that_is_offline_is_reported_by_every_broker(node, topic):
    """KRaftMetadataCache: LEADER_NOT_AVAILABLE, and an offline replica though its broker is up."""
    registered = node.image.brokers[1].value
    registration = msgspec.structs.replace(registered, offline={uuids.to_text(topic.id): (1,)})
    await node.write(BROKER.put(1, registration))
    await node.until(lambda image: not image.topic("t").partitions[1].has_leader)
    row = (await node.ask(MetadataRequest(topics=None), 12)).topics[0]
    assert [
        (each.error_code, each.leader_id, each.offline_replicas) for each in row.partitions
    ] == [
        (ErrorCode.NONE, 1, []),
        (ErrorCode.LEADER_NOT_AVAILABLE, -1, [1]),
        (ErrorCode.NONE, 1, []),
    ]
    (oldest,) = (await node.ask(MetadataRequest(topics=[]), 0)).topics
    assert [each.replica_nodes for each in oldest.partitions] == [[1], [], [1]]
    described = await node.ask(DescribeTopicPartitionsRequest(topics=[]), 0)
    rows = described.topics[0].partitions
    assert [(each.error_code, each.leader_id, each.offline_replicas) for each in rows] == [
        (ErrorCode.NONE, 1, []),
        (ErrorCode.NONE, -1, [1]),  # a missing leader is no error of a description
        (ErrorCode.NONE, 1, []),
    ]
    assert [each.leader_id for each in described.topics[0].partitions] == [1, -1, 1]
    assert (await node.ask(MetadataRequest(topics=None), 12)).brokers[0].node_id == 1


async def test_eligible_leaders_are_reported_and_the_last_one_where_nobody_is_in_sync(node, topic):
    """KIP-966: once the ISR is empty, the last known ELR is the last leader.

    Source: PartitionChangeBuilder.maybeUpdateLastKnownLeader.
    """
    first, last, *_ = topic.partitions
    states = (
        first.changed(replicas=(1, 2, 3), elr=(2,), min_isr=2, last_leader=1),
        last.changed(replicas=(2,), isr=(), leader=-1, last_leader=2),
    )
    uuid = uuids.to_text(topic.id)
    for index, state in enumerate(states):
        await node.write(PARTITION.put((uuids.from_text(uuid), index), state))
    await node.until(lambda image: not image.topic("t").partitions[1].has_leader)
    described = await node.ask(DescribeTopicPartitionsRequest(topics=[]), 0)
    assert [
        (each.eligible_leader_replicas, each.last_known_elr)
        for each in described.topics[0].partitions
    ] == [([2], []), ([], [2]), ([], [])]
