"""Strings that are no UTF-8, as a running Apache Kafka 4.4.0 gives them back in Metadata."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from logfleet.wire import frame
from logfleet.wire.codec import decode, encode_bytes, request_decoder
from logfleet.wire.errors import MalformedMessage
from logfleet.wire.java_text import java_text
from logfleet.wire.messages import FetchRequest, MetadataRequest, OffsetFetchRequest

NO = "\ufffd"
READ = [
    (b"\xff", NO),
    (b"a\xe2\x82b", f"a{NO}b"),
    (b"\xf0\x9f\x98", NO),
    (b"\xc0\x80", NO * 2),
    (b"\xe0\x80\x80", NO * 3),
    (b"\xf0\x80\x80\x80", NO * 4),
    (b"\xf4\x90\x80\x80", NO * 4),
    (b"\xed", NO),
    (b"\xed\xa0", NO),
    (b"\xed\xa0\x80", NO),
    (b"\xed\xb0\x80x", f"{NO}x"),
    (b"\xed\xa0\x80\xed\xb0\x80", NO * 2),
    (b"\xe2\xed\xa0a", f"{NO * 2}a"),
]


@pytest.mark.parametrize("data, text", READ)
def test_malformed_bytes_are_replaced_as_java_replaces_them(data: bytes, text: str) -> None:
    assert java_text(data) == text
    assert java_text(memoryview(data)) == text


@given(st.text())
def test_what_is_utf_8_is_read_as_it_is(text: str) -> None:
    assert java_text(text.encode()) == text


@pytest.mark.parametrize("version", [5, 8])  # with lengths of two bytes, and compact
@pytest.mark.parametrize("data, text", READ)
def test_a_request_keeps_what_stands_around_such_a_string(
    version: int, data: bytes, text: str
) -> None:
    stand_in = "?" * len(data)
    partitions = [1, 2]
    if version < 8:
        topic = OffsetFetchRequest.OffsetFetchRequestTopic
        whole = OffsetFetchRequest(
            group_id="g", topics=[topic(name=stand_in, partition_indexes=partitions)]
        )
        read = OffsetFetchRequest(
            group_id="g", topics=[topic(name=text, partition_indexes=partitions)]
        )
    else:
        kind = OffsetFetchRequest.OffsetFetchRequestGroup
        of_topic = OffsetFetchRequest.OffsetFetchRequestTopics
        whole = OffsetFetchRequest(
            groups=[
                kind(group_id=stand_in, topics=[of_topic(name="t", partition_indexes=partitions)])
            ]
        )
        read = OffsetFetchRequest(
            groups=[kind(group_id=text, topics=[of_topic(name="t", partition_indexes=partitions)])]
        )
    sent = encode_bytes(whole, version).replace(stand_in.encode(), data)
    assert decode(OffsetFetchRequest, version, sent) == (read, len(sent))
    assert request_decoder(OffsetFetchRequest, version)(memoryview(sent), 0)[0] == read


def test_a_message_with_records_is_read_alike() -> None:
    sent = encode_bytes(FetchRequest(rack_id="???"), 12).replace(b"???", b"\xed\xa0\x80")
    assert decode(FetchRequest, 12, sent)[0].rack_id == NO


def test_what_could_not_be_written_again_is_refused() -> None:
    """Kafka has the same limit: it cannot send such a response, and its client waits."""
    most = 32767 // len(NO.encode())
    for length in (most, most + 1):
        stand_in = "?" * length
        request = MetadataRequest(topics=[MetadataRequest.MetadataRequestTopic(name=stand_in)])
        sent = encode_bytes(request, 8).replace(b"?", b"\xff")
        if length == most:
            topics = [MetadataRequest.MetadataRequestTopic(name=NO * most)]
            assert decode(MetadataRequest, 8, sent)[0].topics == topics
        else:
            with pytest.raises(
                MalformedMessage, match="MetadataRequest version 8: string longer than 32767"
            ):
                decode(MetadataRequest, 8, sent)


def test_a_request_that_is_cut_behind_such_a_string_is_malformed() -> None:
    request = MetadataRequest(topics=[MetadataRequest.MetadataRequestTopic(name="?")])
    sent = encode_bytes(request, 8).replace(b"?", b"\xff")
    with pytest.raises(MalformedMessage, match="MetadataRequest version 8"):
        decode(MetadataRequest, 8, sent[:-1])


@pytest.mark.parametrize("data, text", READ)
def test_a_client_id_is_read_alike(data: bytes, text: str) -> None:
    pieces = frame.encode_request(MetadataRequest(topics=[]), 12, 5, "?" * len(data))
    sent = b"".join(piece for piece in pieces if isinstance(piece, bytes)).replace(
        b"?" * len(data), data
    )[4:]
    header, position = frame.decode_request_header(memoryview(sent))
    assert header.client_id == text
    assert frame.decode_request(header, sent, position) == MetadataRequest(topics=[])


def test_a_client_id_that_could_not_be_written_again_is_refused() -> None:
    size = 20_000
    with pytest.raises(MalformedMessage, match="32767"):
        frame.decode_request_header(b"\0\3\0\1\0\0\0\1" + size.to_bytes(2, "big") + b"\xff" * size)
