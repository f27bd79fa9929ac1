"""The codec's own rules; that its bytes are Kafka's is shown in tests/golden."""

import tracemalloc

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from logfleet.wire import messages
from logfleet.wire.codec import MEMORY_PER_BYTE_MAX, decode, encode, encode_bytes
from logfleet.wire.errors import MalformedMessage, UnencodableMessage, UnsupportedVersion
from logfleet.wire.messages import (
    ApiVersionsResponse,
    DescribeTopicPartitionsRequest,
    FetchRequest,
    FetchResponse,
    MetadataRequest,
    MetadataResponse,
    ProduceRequest,
    ProduceResponse,
    RequestHeader,
    ShareAcknowledgeRequest,
)
from logfleet.wire.primitives import uvarint
from logfleet.wire.schema import load_table

from broker_image.tests.unit.wire.shortest import full_of

PAIRS = [
    (name, version)
    for name, message in load_table().items()
    for version in range(message.versions[0], message.versions[1] + 1)
]


def produce(records: bytes) -> ProduceRequest:
    partition = ProduceRequest.PartitionProduceData(index=3, records=records)
    topic = ProduceRequest.TopicProduceData(name="flights", partition_data=[partition])
    return ProduceRequest(acks=-1, timeout_ms=1500, topic_data=[topic])


def test_records_come_out_as_a_slice_of_the_frame() -> None:
    frame = memoryview(encode_bytes(produce(b"batch" * 10), 9))
    request, end = decode(ProduceRequest, 9, frame)
    records = request.topic_data[0].partition_data[0].records
    assert end == len(frame)
    assert isinstance(records, memoryview)
    assert records.obj is frame.obj
    assert records == b"batch" * 10


def test_records_go_out_as_they_are() -> None:
    class FileRange:
        def __len__(self) -> int:
            return 1_000_000

    piece = FileRange()
    partition = FetchResponse.PartitionData(records=piece)
    answer = FetchResponse(responses=[FetchResponse.FetchableTopicResponse(partitions=[partition])])
    buffers = encode(answer, 13)
    assert [buffer is piece for buffer in buffers] == [False, True, False]
    assert isinstance(buffers[0], bytes)
    assert buffers[0].endswith(uvarint(1_000_001))


def test_decoding_starts_at_the_given_position_and_returns_its_end() -> None:
    frame = b"head" + encode_bytes(produce(b"batch"), 7) + b"tail"
    request, end = decode(ProduceRequest, 7, memoryview(frame), 4)
    assert request.topic_data[0].name == "flights"
    assert frame[end:] == b"tail"


def test_a_tagged_struct_at_its_default_is_not_written() -> None:
    unset = ProduceResponse.PartitionProduceResponse()
    default = ProduceResponse.PartitionProduceResponse(
        current_leader=ProduceResponse.LeaderIdAndEpoch()
    )

    def written(partition: ProduceResponse.PartitionProduceResponse) -> bytes:
        topic = ProduceResponse.TopicProduceResponse(name="t", partition_responses=[partition])
        return encode_bytes(ProduceResponse(responses=[topic]), 10)

    assert written(default) == written(unset)


def test_tagged_fields_of_a_newer_peer_are_skipped() -> None:
    plain = encode_bytes(MetadataRequest(topics=[]), 12)
    assert plain[-1] == 0
    with_unknown = plain[:-1] + b"\x01\x63\x03abc"
    assert decode(MetadataRequest, 12, with_unknown) == (MetadataRequest(topics=[]), len(plain) + 5)


def test_a_field_that_the_version_lacks_is_refused_unless_it_may_be_ignored() -> None:
    with pytest.raises(UnencodableMessage, match=r"lacks.*include_topic_authorized_operations"):
        encode(MetadataRequest(include_topic_authorized_operations=True), 5)
    # the rack may be ignored
    assert encode_bytes(FetchRequest(rack_id="b"), 4) == encode_bytes(FetchRequest(), 4)


@pytest.mark.parametrize(
    "message",
    [
        MetadataRequest(topics=[MetadataRequest.MetadataRequestTopic(name=None)]),
        MetadataResponse(throttle_time_ms=2**31),
        MetadataResponse(cluster_id="x" * 40_000),
        MetadataResponse(cluster_id="\ud800"),
        MetadataResponse(brokers=None),  # type: ignore[arg-type]
    ],
    ids=["null", "range", "length", "surrogate", "type"],
)
def test_a_value_that_does_not_fit_is_refused(message) -> None:
    with pytest.raises(UnencodableMessage):
        encode(message, 9)


def test_versions_outside_the_table_are_refused() -> None:
    with pytest.raises(UnsupportedVersion):
        decode(ProduceRequest, 2, b"")
    with pytest.raises(UnsupportedVersion):
        encode(ProduceRequest(), 14)


def test_the_client_id_is_never_compact() -> None:
    header = RequestHeader(
        request_api_key=3, request_api_version=12, correlation_id=7, client_id="me"
    )
    assert encode_bytes(header, 2) == b"\0\x03\0\x0c\0\0\0\x07\0\x02me\0"


def test_a_null_struct_is_one_byte() -> None:
    assert encode_bytes(DescribeTopicPartitionsRequest(), 0) == b"\x01\0\0\x07\xd0\xff\0"


def test_long_arrays_of_numbers_round_trip() -> None:
    for count in (0, 31, 32, 33, 127, 128, 300):
        batch = ShareAcknowledgeRequest.AcknowledgementBatch(
            acknowledge_types=[number % 3 for number in range(count)]
        )
        partition = ShareAcknowledgeRequest.AcknowledgePartition(acknowledgement_batches=[batch])
        topic = ShareAcknowledgeRequest.AcknowledgeTopic(partitions=[partition])
        request = ShareAcknowledgeRequest(topics=[topic])
        assert decode(ShareAcknowledgeRequest, 1, encode_bytes(request, 1))[0] == request


def test_api_versions_tags_round_trip() -> None:
    feature = ApiVersionsResponse.SupportedFeatureKey(name="f" * 200, max_version=3)
    answer = ApiVersionsResponse(supported_features=[feature], finalized_features_epoch=9)
    assert decode(ApiVersionsResponse, 3, encode_bytes(answer, 3))[0] == answer


@settings(max_examples=300, deadline=None)
@given(pair=st.sampled_from(PAIRS), data=st.binary(max_size=200))
def test_hostile_bytes_give_a_message_or_one_error(pair: tuple[str, int], data: bytes) -> None:
    name, version = pair
    cls = getattr(messages, name)
    try:
        message, end = decode(cls, version, memoryview(data))
    except MalformedMessage:
        return
    assert isinstance(message, cls)
    assert end <= len(data)


@pytest.mark.parametrize("name", load_table())
def test_memory_is_bounded_by_the_input_for_arrays_of_nothing(name: str) -> None:
    """The worst an attacker can ask for: as many of the emptiest elements as the frame can hold."""
    schema, cls = load_table()[name], getattr(messages, name)
    for version in set(schema.versions):
        for hostile in schema.fields:
            if not hostile.is_array or not hostile.exists(version):
                continue
            if hostile.is_tagged(version):
                continue
            frame = full_of(hostile, schema, version, 4_000)
            decode(cls, version, frame)  # generates the decoder, whose memory is not meant here
            tracemalloc.start()
            decode(cls, version, frame)
            _, peak = tracemalloc.get_traced_memory()
            tracemalloc.stop()
            assert peak <= MEMORY_PER_BYTE_MAX * len(frame), (version, hostile.name)


def test_a_count_beyond_the_end_allocates_nothing() -> None:
    frame = b"\x7f\xff\xff\xff" + bytes(100)
    decode(MetadataRequest, 1, bytes(4))  # the codec is made now: its code is not what is measured
    tracemalloc.start()
    with pytest.raises(MalformedMessage, match="beyond the end"):
        decode(MetadataRequest, 1, frame)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 100_000
