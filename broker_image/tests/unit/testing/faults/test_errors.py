"""Errors in the rows of answers, for each API that takes one."""

from typing import Any

import pytest
from logfleet.testing.faults.errors import add, refuse, refused_alone, replace, take_out
from logfleet.testing.faults.layouts import KEYED, LAYOUTS, takes_error
from logfleet.testing.faults.naming import partition_of, topic_of
from logfleet.testing.faults.rules import Fault
from logfleet.wire.apis import API_BY_NAME
from logfleet.wire.codec import encoder
from logfleet.wire.errors import ErrorCode
from logfleet.wire.messages import (
    AddPartitionsToTxnRequest,
    CreateTopicsRequest,
    DescribeGroupsRequest,
    FetchResponse,
    FindCoordinatorRequest,
    MetadataResponse,
    OffsetCommitRequest,
    OffsetFetchRequest,
    ProduceRequest,
    ProduceResponse,
)

IDS = {b"\1" * 16: "orders", b"\2" * 16: "payments"}
Topic, Data = ProduceRequest.TopicProduceData, ProduceRequest.PartitionProduceData
Row = ProduceResponse.PartitionProduceResponse


def produced(*topics) -> ProduceRequest:
    return ProduceRequest(
        topic_data=[
            Topic(
                topic_id=topic_id, partition_data=[Data(index=each, records=b"r") for each in rows]
            )
            for topic_id, rows in topics
        ]
    )


def rows_of(response):
    return [
        (topic_of(topic, IDS.get), row.index, row.error_code)
        for topic in response.responses
        for row in topic.partition_responses
    ]


def test_only_the_rows_that_are_hit_are_taken_out_of_a_request() -> None:
    request = produced((b"\1" * 16, [0, 1, 2]), (b"\2" * 16, [1]))
    taken = []
    fault = Fault(api="Produce", error="NOT_LEADER_OR_FOLLOWER", topic="orders", partition=1)
    refused, is_left = take_out(
        fault, request, IDS.get, lambda topic, row: taken.append((topic.topic_id, row.index))
    )
    assert is_left
    assert taken == [(b"\1" * 16, 1)]
    left = [
        (each.topic_id, [row.index for row in each.partition_data]) for each in request.topic_data
    ]
    assert left == [(b"\1" * 16, [0, 2]), (b"\2" * 16, [1])]
    served = ProduceResponse(
        responses=[
            ProduceResponse.TopicProduceResponse(
                topic_id=b"\1" * 16, partition_responses=[Row(index=0), Row(index=2)]
            )
        ]
    )
    add("Produce", served, refused)
    assert rows_of(served) == [("orders", 0, 0), ("orders", 2, 0), ("orders", 1, 6)]
    assert served.responses[0].partition_responses[-1].base_offset == -1


def test_a_topic_of_which_no_row_was_served_is_added() -> None:
    request = produced((b"\1" * 16, [0]), (b"\2" * 16, [1]))
    fault = Fault(api="Produce", error="CORRUPT_MESSAGE", topic="payments")
    refused, is_left = take_out(fault, request, IDS.get, lambda *_: None)
    served = ProduceResponse(
        responses=[
            ProduceResponse.TopicProduceResponse(topic_id=b"\1" * 16, partition_responses=[Row()])
        ]
    )
    add("Produce", served, refused)
    assert is_left
    assert rows_of(served) == [("orders", 0, 0), ("payments", 1, 2)]


def test_a_request_of_which_nothing_is_left_is_answered_by_errors_alone() -> None:
    request = produced((b"\1" * 16, [0, 1]))
    fault = Fault(api="Produce", error="NOT_ENOUGH_REPLICAS")
    refused, is_left = take_out(fault, request, IDS.get, lambda *_: None)
    assert not is_left
    assert rows_of(refused_alone("Produce", refused)) == [("orders", 0, 19), ("orders", 1, 19)]


def test_topics_without_partitions_are_taken_out_whole() -> None:
    request = CreateTopicsRequest(
        topics=[CreateTopicsRequest.CreatableTopic(name=each, num_partitions=1) for each in "ab"]
    )
    fault = Fault(api="CreateTopics", error="POLICY_VIOLATION", topic="b")
    refused, is_left = take_out(fault, request, IDS.get, lambda *_: None)
    assert is_left
    assert [each.name for each in request.topics] == ["a"]
    assert [(each.name, each.error_code) for each in refused] == [("b", 44)]
    answer: Any = refused_alone("CreateTopics", [])
    add("CreateTopics", answer, refused)
    assert answer.topics == refused


def test_partitions_of_a_transaction_are_numbers() -> None:
    topic = AddPartitionsToTxnRequest.AddPartitionsToTxnTopic(name="orders", partitions=[0, 1])
    request = AddPartitionsToTxnRequest(v3_and_below_topics=[topic])
    fault = Fault(api="AddPartitionsToTxn", error="CONCURRENT_TRANSACTIONS", partition=1)
    (refused,), is_left = take_out(fault, request, IDS.get, lambda *_: None)
    assert (is_left, topic.partitions, refused.name) == (True, [0], "orders")
    (row,) = refused.results_by_partition
    assert (row.partition_index, row.partition_error_code) == (1, 51)


def test_what_was_read_is_replaced_by_the_error() -> None:
    rows = [FetchResponse.PartitionData(partition_index=each, records=b"abc") for each in (0, 1)]
    topic = FetchResponse.FetchableTopicResponse(topic_id=b"\1" * 16, partitions=rows)
    response = FetchResponse(responses=[topic])
    replace(Fault(api="Fetch", error="OFFSET_OUT_OF_RANGE", partition=1), response, IDS.get)
    kept, failed = topic.partitions
    assert (kept.error_code, kept.records) == (0, b"abc")
    assert (failed.partition_index, failed.error_code, failed.records) == (1, 1, b"")
    assert failed.high_watermark == -1


def test_metadata_has_an_error_for_each_topic() -> None:
    topics = [
        MetadataResponse.MetadataResponseTopic(name=each, topic_id=b"\3" * 16) for each in "ab"
    ]
    response = MetadataResponse(topics=topics)
    replace(Fault(api="Metadata", error="LEADER_NOT_AVAILABLE", topic="b"), response, IDS.get)
    assert [(each.name, each.error_code) for each in response.topics] == [("a", 0), ("b", 5)]


@pytest.mark.parametrize(
    "request_, version, rows",
    [
        (FindCoordinatorRequest(coordinator_keys=["g", "h"]), 4, ["g", "h"]),
        (FindCoordinatorRequest(key="g"), 3, None),
        (
            OffsetFetchRequest(groups=[OffsetFetchRequest.OffsetFetchRequestGroup(group_id="g")]),
            9,
            ["g"],
        ),
        (OffsetFetchRequest(group_id="g"), 5, None),
        (DescribeGroupsRequest(groups=["g"]), 5, ["g"]),
    ],
)
def test_each_key_of_a_request_gets_the_error_where_its_version_has_rows(
    request_, version, rows
) -> None:
    api = type(request_).__name__.removesuffix("Request")
    answer: Any = refuse(api, request_, version, ErrorCode.NOT_COORDINATOR)
    encoder(type(answer), version)(answer)
    if rows is None:
        assert answer.error_code == ErrorCode.NOT_COORDINATOR
        return
    _, answered, key = KEYED[api]
    assert [(getattr(each, key), each.error_code) for each in getattr(answer, answered)] == [
        (each, ErrorCode.NOT_COORDINATOR) for each in rows
    ]


def test_an_api_with_one_error_gets_that() -> None:
    answer = refuse("Heartbeat", OffsetCommitRequest(), 4, ErrorCode.REBALANCE_IN_PROGRESS)
    assert answer == API_BY_NAME["Heartbeat"].response(error_code=27)


@pytest.mark.parametrize("api", sorted(API_BY_NAME))
def test_the_error_of_each_api_can_be_sent_in_all_its_versions(api) -> None:
    if not takes_error(api):
        return
    layout, described = LAYOUTS.get(api), API_BY_NAME[api]
    fault = Fault(api=api, error="UNKNOWN_SERVER_ERROR")
    last = 3 if api == "AddPartitionsToTxn" else described.max_version  # later ones are brokers'
    for version in range(described.served_min, last + 1):
        request = described.request()
        if layout is None:
            answer = refuse(api, request, version, fault.code)
        elif layout.is_read:
            answer = described.response()
            replace(fault, answer, IDS.get)
        else:
            answer = refused_alone(api, take_out(fault, request, IDS.get, lambda *_: None)[0])
        assert encoder(described.response, version)(answer)


def test_rows_of_offsets_keep_their_partition() -> None:
    row = OffsetCommitRequest.OffsetCommitRequestPartition(partition_index=3)
    topic = OffsetCommitRequest.OffsetCommitRequestTopic(name="orders", partitions=[row])
    fault = Fault(api="OffsetCommit", error="REBALANCE_IN_PROGRESS")
    request = OffsetCommitRequest(topics=[topic])
    refused, _ = take_out(fault, request, IDS.get, lambda *_: None)
    (answer,) = refused
    assert (answer.name, [partition_of(each) for each in answer.partitions]) == ("orders", [3])
