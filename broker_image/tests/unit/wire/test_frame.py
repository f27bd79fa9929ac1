import pytest
from hypothesis import given
from hypothesis import strategies as st
from logfleet.wire import frame
from logfleet.wire.apis import API_BY_NAME
from logfleet.wire.codec import encode_bytes
from logfleet.wire.errors import ErrorCode, MalformedMessage, UnsupportedVersion
from logfleet.wire.messages import (
    ApiVersionsRequest,
    ApiVersionsResponse,
    MetadataRequest,
    MetadataResponse,
)
from logfleet.wire.messages import RequestHeader as HeaderSchema


def joined(buffers) -> bytes:
    return b"".join(bytes(buffer) for buffer in buffers)


@pytest.mark.parametrize("version", [0, 8, 9, 13])
@pytest.mark.parametrize("client_id", [None, "", "rdkafka", "ü" * 100])
def test_a_request_comes_back_from_its_frame(version: int, client_id: str | None) -> None:
    request = MetadataRequest(topics=[])
    whole = joined(frame.encode_request(request, version, 77, client_id))
    assert int.from_bytes(whole[:4], "big") == len(whole) - 4
    body = memoryview(whole)[4:]
    header, position = frame.decode_request_header(body)
    assert header == frame.RequestHeader(3, version, 77, client_id)
    assert frame.decode_request(header, body, position) == request


@pytest.mark.parametrize("version", [8, 9])
def test_the_header_is_the_one_of_the_schema(version: int) -> None:
    schema = HeaderSchema(
        request_api_key=3, request_api_version=version, correlation_id=5, client_id="me"
    )
    expected = encode_bytes(schema, API_BY_NAME["Metadata"].request_header_version(version))
    whole = joined(frame.encode_request(MetadataRequest(topics=[]), version, 5, "me"))
    assert whole[4:].startswith(expected)


@pytest.mark.parametrize("version", [8, 9])
def test_a_response_comes_back_from_its_frame(version: int) -> None:
    api = API_BY_NAME["Metadata"]
    answer = MetadataResponse(cluster_id="c", controller_id=4)
    whole = joined(frame.encode_response(api, version, 9, answer))
    assert int.from_bytes(whole[:4], "big") == len(whole) - 4
    assert frame.decode_response(api, version, memoryview(whole)[4:]) == (9, answer)


def test_tagged_fields_in_a_header_are_skipped() -> None:
    whole = joined(frame.encode_request(MetadataRequest(topics=[]), 12, 5, "me"))[4:]
    head = b"\0\x03\0\x0c\0\0\0\x05\0\x02me"
    assert whole.startswith(head + b"\0")
    longer = head + b"\x01\x05\x02ab" + whole[len(head) + 1 :]
    header, position = frame.decode_request_header(longer)
    assert frame.decode_request(header, longer, position) == MetadataRequest(topics=[])


def test_a_version_that_is_not_served_still_has_a_header() -> None:
    request = joined(frame.encode_request(ApiVersionsRequest(), 5, 3, "new"))[4:]
    newer = request[:2] + b"\0\x63" + request[4:]
    header, position = frame.decode_request_header(newer)
    assert header == frame.RequestHeader(18, 99, 3, "new")
    with pytest.raises(UnsupportedVersion):
        frame.decode_request(header, newer, position)


def test_an_unknown_api_differs_from_malformed_bytes() -> None:
    with pytest.raises(UnsupportedVersion, match="4711"):
        frame.decode_request_header(b"\x12\x67\0\0\0\0\0\0\xff\xff")


@given(st.binary(max_size=40))
def test_hostile_headers_give_one_of_two_errors(data: bytes) -> None:
    try:
        frame.decode_request_header(memoryview(data))
    except (MalformedMessage, UnsupportedVersion):
        return


def test_api_versions_of_an_unknown_version_is_answered_in_version_0() -> None:
    api = API_BY_NAME["ApiVersions"]
    whole = frame.encode_unsupported_api_versions(6)
    assert int.from_bytes(whole[:4], "big") == len(whole) - 4
    # a client that asked in its own version reads it all the same
    correlation_id, answer = frame.decode_response(api, 5, whole[4:])
    assert correlation_id == 6
    assert isinstance(answer, ApiVersionsResponse)
    assert answer.error_code == ErrorCode.UNSUPPORTED_VERSION
    assert [(row.api_key, row.min_version, row.max_version) for row in answer.api_keys] == [
        (18, 0, 5)
    ]


@given(st.binary(max_size=12), st.sampled_from([0, 9, 13]))
def test_hostile_answers_give_one_error(data: bytes, version: int) -> None:
    try:
        frame.decode_response(API_BY_NAME["Metadata"], version, data)
    except MalformedMessage:
        return
