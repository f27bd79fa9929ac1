"""Frames: a 4-byte size, a header, a message.

Headers are coded by hand: they are the same few bytes on every request, and two of their rules are
in no schema version: the client id is never a compact string, and ApiVersions is always answered
with header version 0.
"""

import struct
from typing import cast

import msgspec

from logfleet.wire.apis import API_BY_KEY, API_BY_NAME, API_VERSIONS_KEY, Api
from logfleet.wire.codec import decoder, encoder, request_decoder
from logfleet.wire.errors import ErrorCode, MalformedMessage, UnsupportedVersion
from logfleet.wire.primitives import Buffer, Sized, replaced_string, skip_tags

SIZE_BYTES = 4
CORRELATION_END = 8
"""Position in a request (without its size) behind API key, version and correlation id."""
_REQUEST_HEAD = struct.Struct(">hhih")  # api key, version, correlation id, length of the client id
RESPONSE_HEADS = (struct.Struct(">ii"), struct.Struct(">iix"))
"""Response headers by header version: size, correlation id [, no tagged fields]."""


class RequestHeader(msgspec.Struct, frozen=True, gc=False):
    """The header of every request; client_id is None if the client sent none."""

    api_key: int
    api_version: int
    correlation_id: int
    client_id: str | None


def decode_request_header(frame: Buffer) -> tuple[RequestHeader, int]:
    """The header of a frame (without its size), and the position of the body.

    The version is not checked: even with an unsupported one the header can be read, as ApiVersions
    must be answered then. Raises UnsupportedVersion for an unknown API key, MalformedMessage.
    """
    try:
        key, version, correlation_id, length = _REQUEST_HEAD.unpack_from(frame)
        api = API_BY_KEY.get(key)
        if api is None:
            raise UnsupportedVersion(f"unknown API key {key}")
        position = _REQUEST_HEAD.size
        client_id = None
        if length >= 0:
            end = position + length
            if end > len(frame):
                raise MalformedMessage("client id beyond the end")
            try:
                client_id = str(frame[position:end], "utf-8")
            except UnicodeDecodeError:
                client_id = replaced_string(frame[position:end])
            position = end
        if api.request_header_version(version) == 2:
            # nearly always one zero byte
            position = skip_tags(frame, position) if frame[position] else position + 1
    except (struct.error, IndexError) as error:
        raise MalformedMessage(f"request header: {error}") from error
    return RequestHeader(key, version, correlation_id, client_id), position


def decode_request(header: RequestHeader, frame: Buffer, position: int) -> msgspec.Struct:
    """The body of a request; raises UnsupportedVersion or MalformedMessage."""
    decode = request_decoder(API_BY_KEY[header.api_key].request, header.api_version)
    return decode(frame, position)[0]


def encode_request(
    request: msgspec.Struct, version: int, correlation_id: int, client_id: str | None
) -> list[Buffer | Sized]:
    """A whole frame, size included; see `codec.encode` for the buffers."""
    api = API_BY_NAME[type(request).__name__.removesuffix("Request")]
    body = encoder(type(request), version)(request)
    name = b"" if client_id is None else client_id.encode()
    length = -1 if client_id is None else len(name)
    head = _REQUEST_HEAD.pack(api.key, version, correlation_id, length) + name
    if api.request_header_version(version) == 2:
        head += b"\0"
    size = len(head) + sum(len(buffer) for buffer in body)
    return _with_head(size.to_bytes(SIZE_BYTES, "big") + head, body)


def encode_response(
    api: Api, version: int, correlation_id: int, body: msgspec.Struct
) -> list[Buffer | Sized]:
    """A whole frame, size included; see `codec.encode` for the buffers."""
    buffers = encoder(type(body), version)(body)
    head = RESPONSE_HEADS[api.response_header_version(version)]
    size = head.size - SIZE_BYTES + sum(len(buffer) for buffer in buffers)
    return _with_head(head.pack(size, correlation_id), buffers)


def encode_unsupported_api_versions(correlation_id: int) -> bytes:
    """The whole frame that answers ApiVersions of an unsupported version.

    A version 0 body with error 35 and the versions of ApiVersions itself, so that the client can
    ask again (KIP-511).
    """
    api = API_BY_KEY[API_VERSIONS_KEY]
    from logfleet.wire.messages import ApiVersionsResponse

    row = ApiVersionsResponse.ApiVersion(
        api_key=api.key, min_version=api.min_version, max_version=api.max_version
    )
    body = ApiVersionsResponse(error_code=ErrorCode.UNSUPPORTED_VERSION, api_keys=[row])
    return b"".join(cast("list[bytes]", encode_response(api, 0, correlation_id, body)))


def decode_response(api: Api, version: int, frame: Buffer) -> tuple[int, msgspec.Struct]:
    """Correlation id and body of a frame (without its size).

    A response to ApiVersions that starts with error 35 is of version 0, whatever was requested
    (KIP-511). Raises MalformedMessage.
    """
    try:
        correlation_id = int.from_bytes(frame[:4], "big", signed=True)
        position = 4
        if api.response_header_version(version) == 1:
            position = skip_tags(frame, position)
        if api.key == API_VERSIONS_KEY and version > 0:
            code = int.from_bytes(frame[position : position + 2], "big")
            if code == ErrorCode.UNSUPPORTED_VERSION:
                version = 0
    except IndexError as error:
        raise MalformedMessage(f"response header: {error}") from error
    return correlation_id, decoder(api.response, version)(frame, position)[0]


def _with_head(head: bytes, body: list[Buffer | Sized]) -> list[Buffer | Sized]:
    # the first buffer is always our own bytes: one small copy saves a buffer per frame
    body[0] = head + cast("bytes", body[0])
    return body
