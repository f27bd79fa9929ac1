import contextlib
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio
from logfleet.client.admin import Admin, ConfigSource, NewTopic, ResourceType
from logfleet.client.cluster import Client
from logfleet.client.errors import KafkaError
from logfleet.wire.apis import api_of
from logfleet.wire.errors import ErrorCode
from logfleet.wire.messages import (
    ApiVersionsRequest,
    ApiVersionsResponse,
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreateTopicsRequest,
    CreateTopicsResponse,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
    DescribeClusterRequest,
    DescribeClusterResponse,
    DescribeConfigsRequest,
    DescribeConfigsResponse,
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsResponse,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
    MetadataRequest,
    MetadataResponse,
)

from broker_image.tests.unit.client.fake_broker import TOPIC_ID, FakeBroker

pytestmark = pytest.mark.asyncio


@pytest_asyncio.fixture
async def broker() -> AsyncIterator[FakeBroker]:
    async with FakeBroker({"t": 2, "a": 1}).running() as running:
        yield running


@pytest_asyncio.fixture
async def admin(broker: FakeBroker) -> AsyncIterator[Admin]:
    async with Client(broker.bootstrap, timeout_ms=5_000) as client:
        yield Admin(client)


def created(code: int = 0, message: str | None = None) -> CreateTopicsResponse:
    row = CreateTopicsResponse.CreatableTopicResult(
        name="new", topic_id=TOPIC_ID, error_code=code, error_message=message
    )
    return CreateTopicsResponse(topics=[row])


async def test_a_topic_is_created_with_its_configuration(broker: FakeBroker, admin: Admin) -> None:
    broker.answers[CreateTopicsRequest] = lambda _: created()
    assert await admin.create_topic(NewTopic("new", 3, 1, {"retention.ms": "1"})) == TOPIC_ID
    (request,) = broker.of(CreateTopicsRequest)
    (wanted,) = request.topics
    assert (wanted.num_partitions, wanted.replication_factor) == (3, 1)
    assert [(entry.name, entry.value) for entry in wanted.configs] == [("retention.ms", "1")]


async def test_a_refusal_carries_the_brokers_words(broker: FakeBroker, admin: Admin) -> None:
    broker.answers[CreateTopicsRequest] = lambda _: created(38, "one replica only")
    with pytest.raises(KafkaError, match="topic new: one replica only") as refused:
        await admin.create_topic(NewTopic("new", 3, 2))
    assert refused.value.code == ErrorCode.INVALID_REPLICATION_FACTOR


async def test_what_may_succeed_later_is_tried_again(broker: FakeBroker, admin: Admin) -> None:
    codes = [41, 7, 0]
    broker.answers[CreateTopicsRequest] = lambda _: created(codes.pop(0))
    await admin.create_topic(NewTopic("new"))
    assert len(broker.of(CreateTopicsRequest)) == 3


OTHER_ID = b"fedcba9876543210"


def delete_with(broker: FakeBroker, *outcomes: int | bytes) -> None:
    """What becomes of each request to delete: an error code, or CLOSE (carried out, and the topic made anew)."""
    left = list(outcomes)

    def answer(_: DeleteTopicsRequest) -> DeleteTopicsResponse | bytes:
        outcome = left.pop(0)
        if isinstance(outcome, bytes):
            broker.topic_id = OTHER_ID
            return outcome
        row = DeleteTopicsResponse.DeletableTopicResult(name="t", error_code=outcome)
        return DeleteTopicsResponse(responses=[row])

    broker.answers[DeleteTopicsRequest] = answer


def deleted(broker: FakeBroker) -> list[tuple[str | None, bytes]]:
    """Name and id of what was asked to be deleted."""
    states = [request.topics[0] for request in broker.of(DeleteTopicsRequest)]
    return [(state.name, state.topic_id) for state in states]


async def test_a_topic_is_deleted_by_its_id(broker: FakeBroker, admin: Admin) -> None:
    delete_with(broker, 0, 0)
    await admin.delete_topic("t")
    await admin.delete_topic("t", topic_id=OTHER_ID)
    assert deleted(broker) == [(None, TOPIC_ID), (None, OTHER_ID)]


async def test_a_topic_without_id_or_not_yet_known_is_deleted_by_name(
    broker: FakeBroker, admin: Admin
) -> None:
    delete_with(broker, 0, 0)
    await admin.delete_topic("new")
    broker.topic_id = bytes(16)
    await admin.delete_topic("t")
    assert deleted(broker) == [("new", bytes(16)), ("t", bytes(16))]


async def test_a_delete_whose_answer_was_lost_leaves_a_topic_made_anew_alone(
    broker: FakeBroker, admin: Admin
) -> None:
    delete_with(broker, FakeBroker.CLOSE, ErrorCode.UNKNOWN_TOPIC_ID)
    await admin.delete_topic("t")
    assert deleted(broker) == [(None, TOPIC_ID)] * 2


async def test_a_topic_that_has_another_id_by_now_is_not_waited_for(
    broker: FakeBroker, admin: Admin
) -> None:
    delete_with(broker, ErrorCode.UNKNOWN_TOPIC_ID)
    with pytest.raises(KafkaError, match="UNKNOWN_TOPIC_ID"):
        await admin.delete_topic("t", topic_id=OTHER_ID)
    assert deleted(broker) == [(None, OTHER_ID)]


async def test_an_id_from_a_broker_that_was_behind_is_asked_for_anew(
    broker: FakeBroker, admin: Admin
) -> None:
    delete_with(broker, ErrorCode.UNKNOWN_TOPIC_ID, 0)
    ids = [TOPIC_ID, OTHER_ID]

    def catching_up(request: MetadataRequest) -> MetadataResponse:
        broker.topic_id = ids.pop(0)
        return broker.metadata(request)

    broker.answers[MetadataRequest] = catching_up
    await admin.delete_topic("t")
    assert deleted(broker) == [(None, TOPIC_ID), (None, OTHER_ID)]


async def test_a_topic_that_is_not_there_is_not_waited_for(
    broker: FakeBroker, admin: Admin
) -> None:
    row = DeleteTopicsResponse.DeletableTopicResult(name="t", error_code=3)
    broker.answers[DeleteTopicsRequest] = lambda _: DeleteTopicsResponse(responses=[row])
    with pytest.raises(KafkaError, match="UNKNOWN_TOPIC_OR_PARTITION"):
        await admin.delete_topic("t")
    assert len(broker.of(DeleteTopicsRequest)) == 1


async def test_partitions_are_given_as_their_number_afterwards(
    broker: FakeBroker, admin: Admin
) -> None:
    row = CreatePartitionsResponse.CreatePartitionsTopicResult(name="t")
    broker.answers[CreatePartitionsRequest] = lambda _: CreatePartitionsResponse(results=[row])
    await admin.create_partitions("t", 6)
    (request,) = broker.of(CreatePartitionsRequest)
    assert (request.topics[0].count, request.topics[0].assignments) == (6, None)


@pytest.mark.parametrize(
    "first, present, validate_only",
    [
        pytest.param(FakeBroker.CLOSE, 6, False, id="done by the attempt whose answer was lost"),
        pytest.param(FakeBroker.CLOSE, 7, False, id="others made more"),
        pytest.param(FakeBroker.CLOSE, 6, True, id="nothing was to be made"),
        pytest.param(ErrorCode.INVALID_PARTITIONS, 6, False, id="no answer was lost"),
    ],
)
async def test_partitions_that_are_there_are_no_refusal_if_an_answer_was_lost(
    broker: FakeBroker, admin: Admin, first: int | bytes, present: int, *, validate_only: bool
) -> None:
    outcomes = [first, ErrorCode.INVALID_PARTITIONS]

    def answer(_: CreatePartitionsRequest) -> CreatePartitionsResponse | bytes:
        broker.topics["t"] = present
        outcome = outcomes.pop(0)
        if isinstance(outcome, bytes):
            return outcome
        row = CreatePartitionsResponse.CreatePartitionsTopicResult(name="t", error_code=outcome)
        return CreatePartitionsResponse(results=[row])

    broker.answers[CreatePartitionsRequest] = answer
    done = first == FakeBroker.CLOSE and present == 6 and not validate_only
    with contextlib.nullcontext() if done else pytest.raises(KafkaError, match="INVALID_PART"):
        await admin.create_partitions("t", 6, validate_only=validate_only)


async def test_topics_are_listed_by_name(admin: Admin) -> None:
    assert [topic.name for topic in await admin.list_topics()] == ["a", "t"]


async def test_finding_says_none_for_a_topic_that_is_not_there(admin: Admin) -> None:
    found = await admin.find_topic("t")
    assert found is not None
    assert found.topic_id == TOPIC_ID
    assert await admin.find_topic("nope") is None


async def test_configuration_is_read_with_its_source(broker: FakeBroker, admin: Admin) -> None:
    rows = [
        DescribeConfigsResponse.DescribeConfigsResourceResult(
            name="retention.ms", value="1", config_source=1
        ),
        DescribeConfigsResponse.DescribeConfigsResourceResult(
            name="secret", value=None, config_source=99, is_sensitive=True, read_only=True
        ),
    ]
    result = DescribeConfigsResponse.DescribeConfigsResult(configs=rows)
    broker.answers[DescribeConfigsRequest] = lambda _: DescribeConfigsResponse(results=[result])
    entries = await admin.topic_config("t")
    assert entries["retention.ms"].source is ConfigSource.DYNAMIC_TOPIC_CONFIG
    assert entries["secret"].source is ConfigSource.UNKNOWN
    assert entries["secret"].sensitive
    assert entries["secret"].read_only
    await admin.config(ResourceType.BROKER, "1")
    by_topic, by_broker = broker.of(DescribeConfigsRequest)
    assert by_topic.resources[0].configuration_keys is None
    assert (by_broker.resources[0].resource_type, by_broker.resources[0].resource_name) == (4, "1")


async def test_configuration_is_changed_key_by_key(broker: FakeBroker, admin: Admin) -> None:
    codes = [0, 40]

    def altered(_: object) -> IncrementalAlterConfigsResponse:
        row = IncrementalAlterConfigsResponse.AlterConfigsResourceResponse(
            error_code=codes.pop(0), error_message="no such key"
        )
        return IncrementalAlterConfigsResponse(responses=[row])

    broker.answers[IncrementalAlterConfigsRequest] = altered
    await admin.alter_config(ResourceType.TOPIC, "t", set_keys={"a": "1"}, delete_keys=["b"])
    (request,) = broker.of(IncrementalAlterConfigsRequest)
    changes = request.resources[0].configs
    assert [(row.name, row.config_operation, row.value) for row in changes] == [
        ("a", 0, "1"),
        ("b", 1, None),
    ]
    with pytest.raises(KafkaError, match="topic t: no such key"):
        await admin.alter_config(ResourceType.TOPIC, "t", set_keys={"c": "1"})


async def test_the_cluster_names_its_brokers(broker: FakeBroker, admin: Admin) -> None:
    rows = [
        DescribeClusterResponse.DescribeClusterBroker(broker_id=number, host="h", port=9)
        for number in (2, 1)
    ]
    broker.answers[DescribeClusterRequest] = lambda _: DescribeClusterResponse(
        cluster_id="c", controller_id=2, brokers=rows
    )
    cluster = await admin.describe_cluster()
    assert (cluster.cluster_id, cluster.controller_id) == ("c", 2)
    assert [node.id for node in cluster.brokers] == [1, 2]
    assert cluster.fenced == frozenset()


async def test_fenced_brokers_are_told_if_they_are_asked_for(
    broker: FakeBroker, admin: Admin
) -> None:
    def described(request: DescribeClusterRequest) -> DescribeClusterResponse:
        rows = [
            DescribeClusterResponse.DescribeClusterBroker(
                broker_id=number, host="h", port=9, is_fenced=number == 2
            )
            for number in (1, 2)
            if number == 1 or request.include_fenced_brokers
        ]
        return DescribeClusterResponse(cluster_id="c", controller_id=1, brokers=rows)

    broker.answers[DescribeClusterRequest] = described
    assert len((await admin.describe_cluster()).brokers) == 1
    cluster = await admin.describe_cluster(include_fenced=True)
    assert ([node.id for node in cluster.brokers], cluster.fenced) == ([1, 2], frozenset({2}))


async def test_brokers_that_cannot_report_fenced_ones_describe_the_others(
    broker: FakeBroker, admin: Admin
) -> None:
    """Kafka before 4.0."""

    def older(request: ApiVersionsRequest) -> ApiVersionsResponse:
        versions = broker.api_versions(request)
        for row in versions.api_keys:
            if row.api_key == api_of(DescribeClusterRequest).key:
                row.max_version = 1
        return versions

    broker.answers[ApiVersionsRequest] = older
    broker.answers[DescribeClusterRequest] = lambda _: DescribeClusterResponse(cluster_id="c")
    assert (await admin.describe_cluster(include_fenced=True)).cluster_id == "c"
    ((header, _),) = (each for each in broker.requests if type(each[1]) is DescribeClusterRequest)
    assert header.api_version == 1


async def test_eligible_leaders_are_collected_over_all_pages(
    broker: FakeBroker, admin: Admin
) -> None:
    def page(request: DescribeTopicPartitionsRequest) -> DescribeTopicPartitionsResponse:
        index = 0 if request.cursor is None else request.cursor.partition_index
        row = DescribeTopicPartitionsResponse.DescribeTopicPartitionsResponsePartition(
            partition_index=index, eligible_leader_replicas=[[2, 3], None, [], [1]][index]
        )
        topic = DescribeTopicPartitionsResponse.DescribeTopicPartitionsResponseTopic(
            name="t", partitions=[row]
        )
        cursor = DescribeTopicPartitionsResponse.Cursor(topic_name="t", partition_index=index + 1)
        return DescribeTopicPartitionsResponse(
            topics=[topic], next_cursor=cursor if index < 3 else None
        )

    broker.answers[DescribeTopicPartitionsRequest] = page
    assert await admin.eligible_leaders("t") == {0: (2, 3), 3: (1,)}


async def test_one_key_of_many_topics_is_one_request(broker: FakeBroker, admin: Admin) -> None:
    def values(request: DescribeConfigsRequest) -> DescribeConfigsResponse:
        return DescribeConfigsResponse(
            results=[
                DescribeConfigsResponse.DescribeConfigsResult(
                    resource_name=each.resource_name,
                    error_code=0 if each.resource_name != "gone" else 3,
                    configs=[
                        DescribeConfigsResponse.DescribeConfigsResourceResult(name=key, value="2")
                        for key in each.configuration_keys or ()
                        if each.resource_name != "gone"
                    ],
                )
                for each in request.resources
            ]
        )

    broker.answers[DescribeConfigsRequest] = values
    names = ["t", "gone", "u"]
    assert await admin.topic_values(names, "min.insync.replicas") == {"t": "2", "u": "2"}
    assert len(broker.of(DescribeConfigsRequest)) == 1
