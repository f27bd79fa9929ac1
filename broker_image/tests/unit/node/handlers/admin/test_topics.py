import pytest
from logfleet.metadata.image import ClusterImage
from logfleet.node.handlers.admin.topics import create_one, new_topic_id
from logfleet.wire import uuids
from logfleet.wire.errors import ErrorCode
from logfleet.wire.messages import (
    CreatePartitionsRequest,
    CreateTopicsRequest,
    DeleteTopicsRequest,
)

pytestmark = pytest.mark.asyncio
NewTopic = CreateTopicsRequest.CreatableTopic
Config = CreateTopicsRequest.CreatableTopicConfig
Assignment = CreateTopicsRequest.CreatableReplicaAssignment
Growth = CreatePartitionsRequest.CreatePartitionsTopic
Deletion = DeleteTopicsRequest.DeleteTopicState


def creation(*topics, validate_only: bool = False) -> CreateTopicsRequest:
    return CreateTopicsRequest(
        topics=[
            topic
            if isinstance(topic, NewTopic)
            else NewTopic(name=topic, num_partitions=2, replication_factor=1)
            for topic in topics
        ],
        timeout_ms=10_000,
        validate_only=validate_only,
    )


def partitions(image: ClusterImage, name: str) -> int:
    topic = image.topic(name)
    return 0 if topic is None else len(topic.partitions)


async def test_topics_are_created_at_every_version(node, versions):
    for version in versions(CreateTopicsRequest):
        name = f"t{version}"
        (row,) = (await node.ask(creation(name), version)).topics
        assert (row.name, row.error_code) == (name, 0)
        assert partitions(node.image, name) == 2
        if version >= 5:
            assert (row.num_partitions, row.replication_factor) == (2, 1)
            assert len(row.configs) == 38
        if version >= 7:
            assert node.image.topic(name).id == row.topic_id


async def test_configs_come_back_with_their_sources(start):
    node = await start(log_segment_bytes="2000000")
    await node.register()
    topic = NewTopic(name="t", num_partitions=1, replication_factor=1)
    topic.configs = [Config(name="retention.ms", value="5")]
    (row,) = (await node.ask(creation(topic))).topics
    sources = {config.name: (config.value, config.config_source) for config in row.configs}
    assert sources["retention.ms"] == ("5", 1)
    assert sources["segment.bytes"] == ("2000000", 4)
    assert sources["max.message.bytes"] == ("1048588", 5)
    assert node.image.topic("t").configs == {"retention.ms": "5"}


async def test_each_topic_of_a_request_is_answered_for_itself(node):
    three = NewTopic(name="three", num_partitions=1, replication_factor=3)
    manual = NewTopic(name="manual", num_partitions=-1, replication_factor=-1)
    manual.assignments = [Assignment(partition_index=0, broker_ids=[1])]
    request = creation("good", three, "twice", "bad name", "twice", manual)
    answer = await node.ask(request)
    rows = {row.name: (ErrorCode(row.error_code).name, row.error_message) for row in answer.topics}
    assert [name for name, row in rows.items() if row[0] == "NONE"] == ["good", "manual"]
    assert rows["three"][0] == "INVALID_REPLICATION_FACTOR"
    assert "only 1 broker(s) are registered" in rows["three"][1]
    assert rows["twice"] == ("INVALID_REQUEST", "Duplicate topic name.")
    assert rows["bad name"][0] == "INVALID_TOPIC_EXCEPTION"
    assert len(answer.topics) == 5
    refused = next(row for row in answer.topics if row.name == "three")
    assert (refused.num_partitions, refused.replication_factor) == (-1, -1)
    assert refused.topic_id == uuids.ZERO_UUID


async def test_validating_creates_nothing(node):
    (row,) = (await node.ask(creation("t", validate_only=True))).topics
    assert (row.error_code, row.num_partitions) == (0, 2)
    assert row.topic_id != uuids.ZERO_UUID
    assert node.image.topic("t") is None


async def test_one_topic_is_created_for_the_broker_itself(node):
    assert await create_one(node.controller_access, "t", -1, -1, {"retention.ms": "5"}) is None
    assert partitions(node.image, "t") == 1
    refusal = await create_one(node.controller_access, "t", -1, -1, {})
    assert refusal is not None
    assert refusal.error is ErrorCode.TOPIC_ALREADY_EXISTS


async def test_topic_ids_are_new_and_no_option_of_a_tool():
    ids = {new_topic_id() for _ in range(300)}
    assert len(ids) == 300
    assert all(map(uuids.usable_as_id, ids))


async def test_topics_are_deleted_by_name_at_every_version(node, versions):
    for version in versions(DeleteTopicsRequest):
        await node.ask(creation("t"))
        topic_id = node.image.topic("t").id
        request = DeleteTopicsRequest(timeout_ms=10_000)
        if version >= 6:
            request.topics = [Deletion(name="t")]
        else:
            request.topic_names = ["t"]
        (row,) = (await node.ask(request, version)).responses
        assert (row.name, row.error_code) == ("t", 0)
        assert node.image.topic("t") is None
        assert topic_id in node.image.deleted
        if version >= 6:
            assert row.topic_id == topic_id


async def test_a_topic_is_deleted_by_id_only_if_it_still_has_it(node):
    await node.ask(creation("t"))
    topic_id = node.image.topic("t").id
    request = DeleteTopicsRequest(topics=[Deletion(name=None, topic_id=topic_id)], timeout_ms=9_000)
    (row,) = (await node.ask(request)).responses
    assert (row.name, row.topic_id, row.error_code) == ("t", topic_id, 0)
    await node.ask(creation("t"))
    (row,) = (await node.ask(request)).responses
    assert (row.name, row.error_code) == (None, ErrorCode.UNKNOWN_TOPIC_ID)
    assert node.image.topic("t") is not None


async def test_a_deletion_that_is_not_clear_is_refused(node):
    some_id = new_topic_id()
    rows = (
        await node.ask(
            DeleteTopicsRequest(
                topics=[
                    Deletion(name=None),
                    Deletion(name="t", topic_id=some_id),
                    Deletion(name="u"),
                    Deletion(name="u"),
                    Deletion(name=None, topic_id=some_id),
                    Deletion(name=None, topic_id=some_id),
                    Deletion(name="nope"),
                ],
                timeout_ms=10_000,
            )
        )
    ).responses
    assert [(ErrorCode(row.error_code).name, row.error_message) for row in rows] == [
        ("INVALID_REQUEST", "Neither topic name nor id were specified."),
        ("INVALID_REQUEST", "You may not specify both topic name and topic id."),
        ("INVALID_REQUEST", "Duplicate topic name."),
        ("INVALID_REQUEST", "Duplicate topic id."),
        ("UNKNOWN_TOPIC_OR_PARTITION", "This server does not host this topic-partition."),
    ]


async def test_a_topic_named_by_its_name_and_by_its_id_is_not_deleted(node):
    await node.ask(creation("t", "u"))
    t, u = (node.image.topic(name).id for name in "tu")
    by_id = Deletion(name=None, topic_id=t)
    for again in ([], [by_id]):
        rows = [by_id, Deletion(name="t"), Deletion(name="u"), *again]
        request = DeleteTopicsRequest(topics=rows, timeout_ms=10_000)
        found = {(row.name, row.topic_id): row for row in (await node.ask(request)).responses}
        assert found["t", t].error_code == ErrorCode.INVALID_REQUEST
        assert found["t", t].error_message.endswith("already supplied.")
        assert ((None, t) in found) == bool(again)
        assert ("u", u) in found or again
        assert node.image.topic("t") is not None
    assert node.image.topic("u") is None


@pytest.mark.parametrize("version, error", [(6, "TOPIC_DELETION_DISABLED"), (2, "INVALID_REQUEST")])
async def test_deletion_can_be_forbidden(start, version, error):
    node = await start(delete_topic_enable="false")
    await node.register()
    await node.ask(creation("t"))
    request = DeleteTopicsRequest(
        topics=[Deletion(name="t")] if version >= 6 else [],
        topic_names=[] if version >= 6 else ["t"],
        timeout_ms=10_000,
    )
    (row,) = (await node.ask(request, version)).responses
    assert ErrorCode(row.error_code).name == error
    assert node.image.topic("t") is not None


async def test_partitions_are_added_at_every_version(node, versions):
    await node.ask(creation("t"))
    for version in versions(CreatePartitionsRequest):
        count = partitions(node.image, "t") + 2
        growth = Growth(name="t", count=count, assignments=None)
        request = CreatePartitionsRequest(topics=[growth], timeout_ms=10_000)
        (row,) = (await node.ask(request, version)).results
        assert (row.name, row.error_code) == ("t", 0)
        assert partitions(node.image, "t") == count


async def test_growth_with_assignments_refusals_and_validation(node):
    await node.ask(creation("t", "u"))
    assign = CreatePartitionsRequest.CreatePartitionsAssignment
    request = CreatePartitionsRequest(
        topics=[
            Growth(name="t", count=3, assignments=[assign(broker_ids=[1])]),
            Growth(name="u", count=2),
            Growth(name="nope", count=2),
            Growth(name="twice", count=2),
            Growth(name="twice", count=2),
        ],
        timeout_ms=10_000,
        validate_only=True,
    )
    expected = {
        "t": "NONE",
        "u": "INVALID_PARTITIONS",
        "nope": "UNKNOWN_TOPIC_OR_PARTITION",
        "twice": "INVALID_REQUEST",
    }
    rows = (await node.ask(request)).results
    assert {row.name: ErrorCode(row.error_code).name for row in rows} == expected
    assert partitions(node.image, "t") == 2
    request.validate_only = False
    rows = (await node.ask(request)).results
    assert {row.name: ErrorCode(row.error_code).name for row in rows} == expected
    assert partitions(node.image, "t") == 3
