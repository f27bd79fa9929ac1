"""Requests are counted while they are decoded.

Never less than they take, and never so much that a client notices.
"""

import tracemalloc
from typing import Any

import msgspec
import pytest
from logfleet.types import LeaderEpoch
from logfleet.wire import messages as m
from logfleet.wire.apis import API_BY_NAME
from logfleet.wire.codec import decode, encode_bytes, request_decoder
from logfleet.wire.errors import MalformedMessage
from logfleet.wire.primitives import uvarint
from logfleet.wire.request_memory import (
    REQUEST_MEMORY_BYTES,
    REQUEST_MEMORY_BYTES_MAX,
    REQUEST_MEMORY_PER_BYTE,
)
from logfleet.wire.schema import load_table

from broker_image.tests.unit.wire.shortest import full_of

TRUSTED_BYTES = 4_000
TOO_LARGE_BYTES = 1024 * 1024


def crowded_requests(name: str, size: int) -> list[tuple[int, bytes]]:
    """(version, frame) for each array at the top of a request, at its last version."""
    schema = load_table()[f"{name}Request"]
    version = schema.versions[1]
    return [
        (version, full_of(field, schema, version, size))
        for field in schema.fields
        if field.is_array and field.exists(version) and not field.is_tagged(version)
    ]


def refusal_of(counting: Any, frame: bytes) -> bool:
    with pytest.raises(MalformedMessage, match="more elements than one request may have"):
        counting(memoryview(frame), 0)
    return True


def peak_of(work: Any, *arguments: object) -> int:
    tracemalloc.start()
    try:
        kept = work(*arguments)
        assert kept
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("name", API_BY_NAME)
def test_what_is_counted_covers_what_is_taken(name: str) -> None:
    cls = API_BY_NAME[name].request
    for version, frame in crowded_requests(name, TRUSTED_BYTES):
        counting = request_decoder(cls, version)
        request, counted = counting(frame, 0)
        assert request == decode(cls, version, frame)[0]
        assert peak_of(counting, memoryview(frame), 0) <= counted + 2 * len(frame), version


@pytest.mark.parametrize("name", API_BY_NAME)
def test_more_than_a_request_may_take_is_refused_before_it_is_taken(name: str) -> None:
    cls = API_BY_NAME[name].request
    for version, frame in crowded_requests(name, TOO_LARGE_BYTES):
        counting = request_decoder(cls, version)
        try:
            _, counted = counting(frame, 0)
        except MalformedMessage:
            assert peak_of(refusal_of, counting, frame) < 2 * len(frame)
        else:
            assert counted <= REQUEST_MEMORY_BYTES + REQUEST_MEMORY_PER_BYTE * len(frame)


def names(count):
    return [f"topic-{number}" for number in range(count)]


def created(topics, partitions):
    kind = m.CreateTopicsRequest
    assignments = [
        kind.CreatableReplicaAssignment(partition_index=number, broker_ids=[1000, 2000, 3000])
        for number in range(partitions)
    ]
    rows = [kind.CreatableTopic(name=name, assignments=assignments) for name in names(topics)]
    return kind(topics=rows)


def altered(topics, keys):
    kind = m.IncrementalAlterConfigsRequest
    configs = [kind.AlterableConfig(name=f"key.{n}", value="1000000") for n in range(keys)]
    rows = [
        kind.AlterConfigsResource(resource_type=2, resource_name=name, configs=configs)
        for name in names(topics)
    ]
    return kind(resources=rows)


def fetched(topics, partitions):
    kind = m.FetchRequest
    rows = [
        kind.FetchPartition(
            partition=number, current_leader_epoch=LeaderEpoch(1), fetch_offset=1 << 40
        )
        for number in range(partitions)
    ]
    ids = [number.to_bytes(16, "big") for number in range(topics)]
    return kind(topics=[kind.FetchTopic(topic_id=each, partitions=rows) for each in ids])


def committed(topics, partitions):
    kind = m.OffsetCommitRequest
    rows = [
        kind.OffsetCommitRequestPartition(partition_index=number, committed_offset=1 << 40)
        for number in range(partitions)
    ]
    return kind(
        topics=[kind.OffsetCommitRequestTopic(name=name, partitions=rows) for name in names(topics)]
    )


def described(topics):
    kind = m.MetadataRequest
    return kind(topics=[kind.MetadataRequestTopic(name=name) for name in names(topics)])


def synced(members, assignment_bytes):
    kind = m.SyncGroupRequest
    return kind(
        assignments=[
            kind.SyncGroupRequestAssignment(
                member_id=f"consumer-{number}", assignment=bytes(assignment_bytes)
            )
            for number in range(members)
        ]
    )


@pytest.mark.parametrize(
    "request_, version",
    [
        (created(10_000, 3), 7),
        (created(50_000, 0), 7),
        (altered(10_000, 5), 1),
        (fetched(40_000, 1), 13),
        (fetched(1_000, 80), 13),
        (committed(30_000, 1), 9),
        (committed(100, 800), 9),
        (synced(10_000, 1_000), 5),
        (synced(100, 500_000), 5),
        (described(50_000), 12),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, msgspec.Struct) else str(value),
)
def test_what_large_clients_send_is_taken(request_, version):
    frame = encode_bytes(request_, version)
    assert (
        request_decoder(type(request_), version)(frame, 0)[0]
        == decode(type(request_), version, frame)[0]
    )


def test_a_huge_frame_may_hold_no_more_elements_than_a_large_one() -> None:
    counting = request_decoder(m.MetadataRequest, 12)
    topic = bytes(16) + uvarint(201) + b"x" * 200 + b"\0"
    _, price = counting(uvarint(2) + topic + b"\0\0\0", 0)
    count = REQUEST_MEMORY_BYTES_MAX // price + 1
    frame = uvarint(count + 1) + topic * count + b"\0\0\0"
    assert REQUEST_MEMORY_BYTES + REQUEST_MEMORY_PER_BYTE * len(frame) > REQUEST_MEMORY_BYTES_MAX
    with pytest.raises(MalformedMessage, match="more elements"):
        counting(frame, 0)
