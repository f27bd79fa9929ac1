"""The codec makes the same bytes, and of what it reads nothing is taken for something else."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from logfleet.types import BrokerEpoch, LeaderEpoch
from logfleet.wire.apis import api_of
from logfleet.wire.errors import MalformedMessage
from logfleet.wire.frame import (
    SIZE_BYTES,
    decode_request,
    decode_request_header,
    decode_response,
    encode_request,
    encode_response,
)
from logfleet.wire.messages import FetchRequest, FetchResponse
from logfleet.wire.single_fetch import (
    RESPONSE_END,
    VERSION,
    SingleFetch,
    SingleFetchRow,
    client_of,
    decode_single_fetch,
    decode_single_row,
    encode_single_fetch,
    encode_single_row,
)

API = api_of(FetchRequest)
INT = st.integers(-(2**31), 2**31 - 1)
LONG = st.integers(-(2**63), 2**63 - 1)
TOPIC_ID = st.binary(min_size=16, max_size=16)
CORRELATION = st.integers(0, 2**31 - 1)
CLIENT = st.text(max_size=20)
FETCHES = st.builds(
    SingleFetch, INT, INT, INT, INT, INT, TOPIC_ID, INT, INT, LONG, INT, LONG, INT, INT, LONG
)
ROWS = st.builds(SingleFetchRow, INT, TOPIC_ID, INT, LONG, LONG, LONG)


def request_of(fetch: SingleFetch, **changes: Any) -> FetchRequest:
    row = FetchRequest.FetchPartition(
        **{name: getattr(fetch, name) for name in SingleFetch._fields[6:12]}
    )
    topic = FetchRequest.FetchTopic(topic_id=fetch.topic_id, partitions=[row])
    state = FetchRequest.ReplicaState(
        replica_id=fetch.replica_id, replica_epoch=fetch.replica_epoch
    )
    whole = {name: getattr(fetch, name) for name in SingleFetch._fields[:5]}
    return FetchRequest(**(whole | {"topics": [topic], "replica_state": state} | changes))


def encoded(request: FetchRequest, correlation_id: int, client_id: str) -> bytes:
    return b"".join(encode_request(request, VERSION, correlation_id, client_id))  # type: ignore[arg-type]


def body_at(client_id: str) -> int:
    return 8 + len(client_of(client_id))


def test_it_is_of_the_newest_version() -> None:
    """That is what our brokers speak with one another."""
    assert API.max_version == VERSION


@given(FETCHES, CORRELATION, CLIENT)
def test_a_request_is_what_the_codec_makes_of_it(
    fetch: SingleFetch, correlation_id: int, client_id: str
) -> None:
    frame = encode_single_fetch(fetch, correlation_id, client_of(client_id))
    plain = fetch.replica_id != -1 or fetch.replica_epoch != -1  # else the codec leaves it out
    if plain:
        assert frame == encoded(request_of(fetch), correlation_id, client_id)
    view = memoryview(frame)[SIZE_BYTES:]
    assert decode_single_fetch(view, body_at(client_id)) == fetch


@given(ROWS, CORRELATION, st.binary(max_size=300))
def test_an_answer_is_what_the_codec_makes_of_it(
    row: SingleFetchRow, correlation_id: int, records: bytes
) -> None:
    head = encode_single_row(row, correlation_id, len(records))
    frame = head + records + RESPONSE_END
    fields = {name: getattr(row, name) for name in SingleFetchRow._fields[2:]}
    told = FetchResponse.PartitionData(**fields, aborted_transactions=None, records=records)
    topic = FetchResponse.FetchableTopicResponse(topic_id=row.topic_id, partitions=[told])
    answer = FetchResponse(session_id=row.session_id, responses=[topic])
    assert frame == b"".join(encode_response(API, VERSION, correlation_id, answer))  # type: ignore[arg-type]
    found = decode_single_row(memoryview(frame)[SIZE_BYTES:])
    assert found is not None
    assert (*found[:2], bytes(found[2])) == (correlation_id, row, records)


FETCH = SingleFetch(
    500,
    1,
    1 << 20,
    7,
    3,
    b"t" * 16,
    2,
    LeaderEpoch(5),
    100,
    LeaderEpoch(4),
    10,
    1 << 16,
    2,
    BrokerEpoch(20),
)
FETCHED = FetchRequest.FetchPartition(partition=3)
OTHER_REQUESTS: list[dict[str, Any]] = [
    {"isolation_level": 1},
    {"rack_id": "r"},
    {"replica_state": None},
    {"cluster_id": "c"},
    {"topics": []},
    {"topics": [FetchRequest.FetchTopic(topic_id=b"t" * 16, partitions=[FETCHED, FETCHED])]},
    {
        "topics": [
            FetchRequest.FetchTopic(topic_id=each * 16, partitions=[FETCHED])
            for each in (b"t", b"u")
        ]
    },
    {"forgotten_topics_data": [FetchRequest.ForgottenTopic(topic_id=b"t" * 16, partitions=[1])]},
    {
        "topics": [
            FetchRequest.FetchTopic(
                topic_id=b"t" * 16,
                partitions=[FetchRequest.FetchPartition(partition=2, high_watermark=9)],
            )
        ]
    },
]


@pytest.mark.parametrize("changes", OTHER_REQUESTS, ids=lambda each: next(iter(each)))
def test_a_request_of_another_shape_is_not_read(changes: dict[str, Any]) -> None:
    frame = memoryview(encoded(request_of(FETCH, **changes), 1, "c"))[SIZE_BYTES:]
    assert decode_single_fetch(frame, body_at("c")) is None


ROW = FetchResponse.PartitionData(
    partition_index=2, high_watermark=9, aborted_transactions=None, records=b"r"
)


def answered(**changes: Any) -> FetchResponse:
    topic = FetchResponse.FetchableTopicResponse(topic_id=b"t" * 16, partitions=[ROW])
    fields: dict[str, Any] = {"session_id": 7, "responses": [topic]}
    return FetchResponse(**(fields | changes))


def with_row(**changes: Any) -> FetchResponse:
    row = FetchResponse.PartitionData(
        **({name: getattr(ROW, name) for name in ROW.__struct_fields__} | changes)
    )
    topic = FetchResponse.FetchableTopicResponse(topic_id=b"t" * 16, partitions=[row])
    return answered(responses=[topic])


OTHER_ANSWERS = [
    answered(throttle_time_ms=1),
    answered(error_code=70),
    answered(responses=[]),
    answered(node_endpoints=[FetchResponse.NodeEndpoint(node_id=1, host="h", port=1, rack=None)]),
    answered(
        responses=[FetchResponse.FetchableTopicResponse(topic_id=b"t" * 16, partitions=[ROW] * 2)]
    ),
    with_row(error_code=6),
    with_row(aborted_transactions=[]),
    with_row(preferred_read_replica=1),
    with_row(records=None),
    with_row(diverging_epoch=FetchResponse.EpochEndOffset(epoch=1, end_offset=2)),
    with_row(current_leader=FetchResponse.LeaderIdAndEpoch(leader_id=1, leader_epoch=2)),
]


@pytest.mark.parametrize("answer", OTHER_ANSWERS)
def test_an_answer_of_another_shape_is_not_read(answer: FetchResponse) -> None:
    frame = b"".join(encode_response(API, VERSION, 1, answer))  # type: ignore[arg-type]
    assert decode_single_row(memoryview(frame)[SIZE_BYTES:]) is None


@given(st.data())
def test_whatever_comes_is_read_as_the_codec_reads_it_or_not_at_all(data: st.DataObject) -> None:
    frame = bytearray(encoded(request_of(FETCH), 1, "c")[SIZE_BYTES:])
    head = encode_single_row(SingleFetchRow(7, b"t" * 16, 2, 9, 9, 0), 1, 5)
    answer = bytearray((head + b"abcde" + RESPONSE_END)[SIZE_BYTES:])
    for changed in (frame, answer):
        for _ in range(data.draw(st.integers(1, 3))):
            place = data.draw(st.integers(8, len(changed) - 1))
            changed[place] = data.draw(st.integers(0, 255))
        del changed[data.draw(st.integers(8, len(changed))) :]
    fetch = decode_single_fetch(memoryview(frame), body_at("c"))
    # a repeat is recognised by the client's bytes
    if fetch is not None and bytes(frame[8 : body_at("c")]) == client_of("c"):
        header, position = decode_request_header(memoryview(frame))
        assert decode_request(header, memoryview(frame), position) == request_of(fetch)
    found = decode_single_row(memoryview(answer))
    if found is not None:
        _, row, records = found
        try:
            _, read = decode_response(API, VERSION, memoryview(answer))
        except MalformedMessage:
            pytest.fail("it was read")
        (topic,) = read.responses  # type: ignore[attr-defined]
        (told,) = topic.partitions
        assert (topic.topic_id, told.high_watermark) == (row.topic_id, row.high_watermark)
        assert bytes(told.records) == bytes(records)
