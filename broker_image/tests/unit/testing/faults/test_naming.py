"""What requests name."""

import pytest
from logfleet.testing.faults.layouts import GROUPS, LAYOUTS, NAMING_ONLY
from logfleet.testing.faults.naming import named_by
from logfleet.wire.apis import API_BY_NAME
from logfleet.wire.messages import (
    AddPartitionsToTxnRequest,
    DeleteGroupsRequest,
    DeleteTopicsRequest,
    DescribeGroupsRequest,
    FindCoordinatorRequest,
    HeartbeatRequest,
    ListOffsetsRequest,
    MetadataRequest,
    OffsetFetchRequest,
    ProduceRequest,
)

IDS = {b"\1" * 16: "orders"}


def named(request, client_id=None):
    api = type(request).__name__.removesuffix("Request")
    return named_by(api, request, client_id, IDS.get)


def test_a_topic_is_named_by_its_name_or_by_its_id() -> None:
    data = [ProduceRequest.PartitionProduceData(index=each) for each in (0, 3)]
    by_name = ProduceRequest.TopicProduceData(name="orders", partition_data=data)
    by_id = ProduceRequest.TopicProduceData(topic_id=b"\1" * 16, partition_data=data)
    unknown = ProduceRequest.TopicProduceData(topic_id=b"\2" * 16, partition_data=data[:1])
    request = ProduceRequest(topic_data=[by_name, by_id, unknown])
    rows = (("orders", 0), ("orders", 3))
    assert named(request, "app").rows == (*rows, *rows, (None, 0))
    assert named(request, "app").client_id == "app"


def test_metadata_without_topics_is_about_all_of_them() -> None:
    assert named(MetadataRequest(topics=None)).topics_are_all
    topics = [MetadataRequest.MetadataRequestTopic(name="orders")]
    asked = named(MetadataRequest(topics=topics))
    assert (asked.rows, asked.topics_are_all) == ((("orders", None),), False)


def test_the_partitions_of_a_topic_may_be_rows_or_numbers() -> None:
    partitions = [ListOffsetsRequest.ListOffsetsPartition(partition_index=4)]
    topics = [ListOffsetsRequest.ListOffsetsTopic(name="orders", partitions=partitions)]
    assert named(ListOffsetsRequest(topics=topics)).rows == (("orders", 4),)
    old = [OffsetFetchRequest.OffsetFetchRequestTopic(name="orders", partition_indexes=[1, 2])]
    asked = named(OffsetFetchRequest(group_id="g", topics=old))
    assert (asked.rows, asked.groups) == ((("orders", 1), ("orders", 2)), ("g",))


def test_offsets_are_fetched_for_many_groups() -> None:
    topics = [OffsetFetchRequest.OffsetFetchRequestTopics(name="orders", partition_indexes=[1])]
    group, of_all = (
        OffsetFetchRequest.OffsetFetchRequestGroup(group_id=name, topics=each)
        for name, each in (("g", topics), ("h", None))
    )
    asked = named(OffsetFetchRequest(groups=[group]))
    assert (asked.rows, asked.groups, asked.topics_are_all) == ((("orders", 1),), ("g",), False)
    assert named(OffsetFetchRequest(groups=[group, of_all])).topics_are_all


def test_transactions_name_partitions_in_two_places() -> None:
    topics = [AddPartitionsToTxnRequest.AddPartitionsToTxnTopic(name="orders", partitions=[7])]
    many = AddPartitionsToTxnRequest.AddPartitionsToTxnTransaction(topics=topics)
    for request in (
        AddPartitionsToTxnRequest(v3_and_below_topics=topics),
        AddPartitionsToTxnRequest(transactions=[many]),
    ):
        assert named(request).rows == (("orders", 7),)


def test_topics_are_deleted_by_name_or_by_row() -> None:
    row = DeleteTopicsRequest.DeleteTopicState(name="orders")
    assert named(DeleteTopicsRequest(topic_names=["orders"])).rows == (("orders", None),)
    assert named(DeleteTopicsRequest(topics=[row])).rows == (("orders", None),)


@pytest.mark.parametrize(
    "request_, groups",
    [
        (HeartbeatRequest(group_id="g"), ("g",)),
        (DescribeGroupsRequest(groups=["g", "h"]), ("g", "h")),
        (DeleteGroupsRequest(groups_names=["g"]), ("g",)),
        (FindCoordinatorRequest(key="g"), ("g",)),
        (FindCoordinatorRequest(coordinator_keys=["g", "h"]), ("g", "h")),
        (FindCoordinatorRequest(key="t", key_type=1), ()),
        (MetadataRequest(topics=[]), ()),
    ],
)
def test_groups_are_named_in_many_ways(request_, groups) -> None:
    assert named(request_).groups == groups


@pytest.mark.parametrize("api", sorted({*LAYOUTS, *NAMING_ONLY, *GROUPS}))
def test_a_request_of_each_api_that_names_nothing_is_read(api) -> None:
    request = API_BY_NAME[api].request()
    asked = named_by(api, request, "app", IDS.get)
    assert (asked.client_id, asked.rows) == ("app", ())
