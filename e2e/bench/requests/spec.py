"""What one measurement sends and what must come back: prebuilt frames, the same for the broker and the bare server.

Kept in a file, read by the load generator and by the bare server.
"""

from enum import StrEnum
from pathlib import Path
from random import Random

import msgspec
from logfleet.records.compression import Codec
from logfleet.records.record import Record, build_batch
from logfleet.wire.apis import API_BY_NAME
from logfleet.wire.frame import encode_request, encode_response
from logfleet.wire.messages import (
    FetchRequest,
    ProduceRequest,
    ProduceResponse,
)

PRODUCE_VERSION = 13
FETCH_VERSION = 18
"""What a Java client of Kafka 4.4 sends."""
CLIENT_ID = "bench"
CORRELATION_AT = 8
"""Position of the correlation id in a request with its size: behind size, API key and version."""


class Kind(StrEnum):
    PRODUCE = "produce"
    FETCH = "fetch"


class Case(msgspec.Struct, frozen=True):
    """One row of the table.

    record_bytes: of a record's value. batch_records: records per batch. answer_bytes: what a fetch asks for at most; a smaller number
    than a batch gives one batch. depth: requests in flight. requests: per round. aim: the ratio to the bare server that is wanted,
    None if none is. newest: only the last batch is fetched, as by a consumer that keeps up; else all, one answer after the other.
    codec: of the batch. reads_records: the topic wants every record read on its way in (logfleet.record.validation=full).
    """

    name: str
    kind: Kind
    record_bytes: int
    batch_records: int
    requests: int
    depth: int
    answer_bytes: int = 0
    aim: float | None = None
    newest: bool = False
    codec: Codec = Codec.NONE
    reads_records: bool = False


class Spec(msgspec.Struct, frozen=True):
    """A case made concrete for one topic.

    frames: the requests, all of one length, each with its size; the generator sends them in turns. answers: file with the expected
    answers, one behind the other; answer_ends: where each ends. A produce has one frame and one answer whose base offset, at
    `offset_at`, moves on by `batch_records` per request. records_per_request: of each frame. topic: to be deleted after the round.
    """

    case: Case
    frames: list[bytes]
    answers: str
    answer_ends: list[int]
    records_per_request: list[int]
    offset_at: int = 0
    topic: str = ""

    @property
    def answer_ranges(self) -> list[tuple[int, int]]:
        return list(zip([0, *self.answer_ends[:-1]], self.answer_ends, strict=True))


def save(spec: Spec, path: Path) -> None:
    path.write_bytes(msgspec.msgpack.encode(spec))


def load(path: Path) -> Spec:
    return msgspec.msgpack.decode(path.read_bytes(), type=Spec)


def batch_of(case: Case, *, now_ms: int) -> bytearray:
    """A batch as a producer sends it, without keys; values are half random, half zeros: lz4 halves them, and no page looks like the next."""
    half = case.record_bytes // 2
    records = [
        Record(None, Random(number).randbytes(half) + bytes(half), now_ms)
        for number in range(case.batch_records)
    ]
    return build_batch(records, codec=case.codec)


def produce_frame(case: Case, topic_id: bytes, *, now_ms: int) -> bytes:
    """A whole Produce request with acks=all."""
    data = ProduceRequest.PartitionProduceData(
        index=0, records=memoryview(batch_of(case, now_ms=now_ms))
    )
    request = ProduceRequest(
        acks=-1,
        timeout_ms=30_000,
        topic_data=[ProduceRequest.TopicProduceData(topic_id=topic_id, partition_data=[data])],
    )
    return b"".join(encode_request(request, PRODUCE_VERSION, 0, CLIENT_ID))  # type: ignore[arg-type]


def produce_answer(topic_id: bytes, base_offset: int) -> bytes:
    """The answer to `produce_frame` of a batch that was appended at `base_offset`."""
    row = ProduceResponse.PartitionProduceResponse(
        index=0, base_offset=base_offset, log_append_time_ms=-1, log_start_offset=0
    )
    topic = ProduceResponse.TopicProduceResponse(topic_id=topic_id, partition_responses=[row])
    body = ProduceResponse(responses=[topic])
    buffers = encode_response(API_BY_NAME["Produce"], PRODUCE_VERSION, 0, body)
    return b"".join(buffers)  # type: ignore[arg-type]


def offset_position(topic_id: bytes) -> int:
    """Where the base offset stands in `produce_answer`."""
    one, other = produce_answer(topic_id, 0), produce_answer(topic_id, -1)
    return next(at for at, (a, b) in enumerate(zip(one, other, strict=True)) if a != b)


def fetch_frame(case: Case, topic_id: bytes, offset: int, number: int) -> bytes:
    """A whole Fetch request from `offset` on; its correlation id is `number`."""
    partition = FetchRequest.FetchPartition(
        partition=0, fetch_offset=offset, partition_max_bytes=case.answer_bytes
    )
    request = FetchRequest(
        max_wait_ms=500,
        min_bytes=1,
        max_bytes=50 * 1024 * 1024,
        session_epoch=-1,
        topics=[FetchRequest.FetchTopic(topic_id=topic_id, partitions=[partition])],
    )
    return b"".join(encode_request(request, FETCH_VERSION, number, CLIENT_ID))  # type: ignore[arg-type]
