"""Fetch of one partition within a session, coded at fixed positions (KIP-227).

A follower with few records to copy sends such a request for each, and gets such a response. The
bytes are the same as the codec's for `FetchRequest` and `FetchResponse` in VERSION; one `struct`
call reads or writes all of them. Any other shape is left to the codec.
"""

import struct
from typing import Final, NamedTuple

from logfleet.types import BrokerEpoch, LeaderEpoch
from logfleet.wire.errors import MalformedMessage
from logfleet.wire.primitives import Buffer, read_uvarint, uvarint

VERSION: Final = 18
_API_KEY: Final = 1
_REQUEST_HEAD: Final = struct.Struct(">ihhi")  # size, API key, version, correlation id
_HEAD_BYTES: Final = _REQUEST_HEAD.size - 4  # without the leading size field
_REQUEST: Final = struct.Struct(">iiibiib16sbiiqiqi7siqb")
_RESPONSE_HEAD: Final = struct.Struct(">i")
_RESPONSE: Final = struct.Struct(">ibihib16sbihqqqbi")  # behind the size

_READ_UNCOMMITTED: Final = 0
_ONE: Final = 2
"""The encoded length of a compact array of one element (length + 1)."""
_BETWEEN: Final = b"\0\0\1\1\1\1\x0d"
"""The bytes behind the partition of a request: no tagged fields of it and its topic, no
forgotten topics, no rack; then one tagged field, number 1, of 13 bytes: the replica's id and
epoch, without tagged fields."""
_NO_PREFERRED_REPLICA: Final = -1
RESPONSE_END: Final = b"\0\0\0"
"""The bytes behind the records of a response: no tagged fields of the partition, the topic, the
response."""


class SingleFetch(NamedTuple):
    """A request that continues a session and names one partition.

    The fields are those of FetchRequest.
    """

    max_wait_ms: int
    min_bytes: int
    max_bytes: int
    session_id: int
    session_epoch: int
    topic_id: bytes
    partition: int
    current_leader_epoch: LeaderEpoch
    fetch_offset: int
    last_fetched_epoch: LeaderEpoch
    log_start_offset: int
    partition_max_bytes: int
    replica_id: int
    replica_epoch: BrokerEpoch


class SingleFetchRow(NamedTuple):
    """A response for one partition, without error. The fields are those of FetchResponse."""

    session_id: int
    topic_id: bytes
    partition_index: int
    high_watermark: int
    last_stable_offset: int
    log_start_offset: int


def client_of(client_id: str) -> bytes:
    """The bytes between the correlation id and the body of this client's requests."""
    name = client_id.encode()
    return len(name).to_bytes(2, "big") + name + b"\0"


def encode_single_fetch(fetch: SingleFetch, correlation_id: int, client: bytes) -> bytes:
    """The whole frame, size included. client: from `client_of`."""
    body = _REQUEST.pack(
        *fetch[:3],
        _READ_UNCOMMITTED,
        *fetch[3:5],
        _ONE,
        fetch.topic_id,
        _ONE,
        *fetch[6:12],
        _BETWEEN,
        *fetch[12:],
        0,
    )
    size = _HEAD_BYTES + len(client) + len(body)
    return _REQUEST_HEAD.pack(size, _API_KEY, VERSION, correlation_id) + client + body


def decode_single_fetch(frame: Buffer, position: int) -> SingleFetch | None:
    """The body of a request from `position` on; None if it has another shape."""
    if len(frame) != position + _REQUEST.size:
        return None
    fields = _REQUEST.unpack_from(frame, position)
    if (
        fields[3] != _READ_UNCOMMITTED
        or fields[6] != _ONE
        or fields[8] != _ONE
        or fields[15] != _BETWEEN
        or fields[18]
    ):
        return None
    return SingleFetch._make((*fields[:3], *fields[4:6], fields[7], *fields[9:15], *fields[16:18]))


def encode_single_row(row: SingleFetchRow, correlation_id: int, records_bytes: int) -> bytes:
    """The frame up to the records, size included. The records and RESPONSE_END complete it."""
    length = uvarint(records_bytes + 1)
    size = _RESPONSE.size + len(length) + records_bytes + len(RESPONSE_END)
    session_id, topic_id, index, *offsets = row
    response = _RESPONSE.pack(
        correlation_id,
        0,
        0,
        0,
        session_id,
        _ONE,
        topic_id,
        _ONE,
        index,
        0,
        *offsets,
        0,
        _NO_PREFERRED_REPLICA,
    )
    return _RESPONSE_HEAD.pack(size) + response + length


def decode_single_row(frame: memoryview) -> tuple[int, SingleFetchRow, memoryview] | None:
    """Correlation id, row and records of a frame (without its size).

    Returns None if it has another shape.
    """
    if len(frame) <= _RESPONSE.size:
        return None
    fields = _RESPONSE.unpack_from(frame)
    correlation_id, tags, throttle_ms, error, session_id, one, topic_id, other, *row = fields
    index, row_error, high_watermark, stable, start, aborted, preferred = row
    if tags or throttle_ms or error or row_error or aborted:
        return None
    if one != _ONE or other != _ONE or preferred != _NO_PREFERRED_REPLICA:
        return None
    try:
        length, position = read_uvarint(frame, _RESPONSE.size)
    except (IndexError, MalformedMessage):
        return None
    end = position + length - 1
    if not length or bytes(frame[end:]) != RESPONSE_END:
        return None
    found = SingleFetchRow(session_id, topic_id, index, high_watermark, stable, start)
    return correlation_id, found, frame[position:end]
