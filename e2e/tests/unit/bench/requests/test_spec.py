from logfleet.records.batch import crc_matches, parse_header
from logfleet.records.compression import Codec
from logfleet.wire.frame import decode_request, decode_request_header
from logfleet.wire.messages import FetchRequest, ProduceRequest
from msgspec.structs import replace

from e2e.bench.requests.cases import CASES
from e2e.bench.requests.spec import (
    FETCH_VERSION,
    PRODUCE_VERSION,
    Case,
    Kind,
    Spec,
    fetch_frame,
    load,
    offset_position,
    produce_answer,
    produce_frame,
    save,
)

TOPIC_ID = bytes(range(16))
CASE = Case("c", Kind.PRODUCE, 1024, 63, requests=1, depth=1, answer_bytes=5)


def decoded(frame: bytes):
    assert int.from_bytes(frame[:4], "big") == len(frame) - 4
    body = memoryview(frame)[4:]
    header, position = decode_request_header(body)
    return header, decode_request(header, body, position)


def test_a_produce_frame_holds_one_sound_batch_for_all_replicas():
    header, request = decoded(produce_frame(CASE, TOPIC_ID, now_ms=1_000))
    assert header.api_version == PRODUCE_VERSION
    assert isinstance(request, ProduceRequest)
    assert request.acks == -1
    assert request.topic_data[0].topic_id == TOPIC_ID
    records = request.topic_data[0].partition_data[0].records
    assert records is not None
    batch = parse_header(records)
    assert (batch.record_count, batch.max_timestamp, batch.size) == (63, 1_000, len(records))
    assert crc_matches(records, batch)


def test_the_base_offset_stands_where_it_is_said_to():
    at = offset_position(TOPIC_ID)
    one, other = produce_answer(TOPIC_ID, 0), produce_answer(TOPIC_ID, 0x0102030405060708)
    assert other[at : at + 8] == bytes(range(1, 9))
    assert one[:at] + one[at + 8 :] == other[:at] + other[at + 8 :]


def test_a_fetch_frame_asks_from_its_offset_and_says_its_number():
    header, request = decoded(fetch_frame(CASE, TOPIC_ID, 77, 3))
    assert (header.api_version, header.correlation_id) == (FETCH_VERSION, 3)
    assert isinstance(request, FetchRequest)
    partition = request.topics[0].partitions[0]
    assert (partition.fetch_offset, partition.partition_max_bytes) == (77, 5)


def test_a_spec_survives_its_file(tmp_path):
    spec = Spec(CASE, [b"a", b"b"], "answers", [3, 10], [1, 2], offset_at=4, topic="t")
    save(spec, tmp_path / "spec")
    assert load(tmp_path / "spec") == spec
    assert spec.answer_ranges == [(0, 3), (3, 10)]


def test_batches_of_the_large_cases_have_the_size_they_are_named_for():
    for case in CASES:
        if case.batch_records > 1:
            before_compression = replace(case, codec=Codec.NONE)
            size = len(produce_frame(before_compression, TOPIC_ID, now_ms=0))
            assert 0.9 * 64 * 1024 < size < 1.03 * 64 * 1024, case.name
    assert len({case.name for case in CASES}) == len(CASES)
