"""The fuzzer sends what it says, and its judge tells good from bad."""

import random
from itertools import islice

import pytest
from logfleet.records.batch import CRC_COVERS_FROM, parse_header
from logfleet.records.checksum import crc32c
from logfleet.records.compression import Codec, decompress
from logfleet.records.errors import CorruptRecords, DecompressedTooLarge
from logfleet.wire.apis import API_BY_NAME
from logfleet.wire.codec import encode_bytes
from logfleet.wire.messages import MetadataResponse

from e2e.fuzz.batches import BOMB_BYTES, bomb, good_batch, hostile_batches, lie_in_records
from e2e.fuzz.inputs import KINDS, Input, inputs
from e2e.fuzz.judge import ANSWERED, CLOSED, SILENT, Tally, fault_of
from e2e.fuzz.values import CHANGING, SAFE_TOPICS, World

METADATA = API_BY_NAME["Metadata"]
SERVED = [
    (api, version)
    for api in API_BY_NAME.values()
    if api.advertised
    for version in range(api.served_min, api.max_version + 1)
]


def some(count, seed=1, served=SERVED):
    return list(islice(inputs(served, World(), random.Random(seed)), count))


def test_a_seed_gives_the_same_inputs_of_every_kind():
    served = [each for each in SERVED if each[0].name != "Produce"]  # its records are of now
    first = some(600, served=served)
    again = some(600, served=served)
    assert [given for given in first if given.kind != "batches"] == [
        given for given in again if given.kind != "batches"
    ]
    assert {given.kind for given in first} == set(KINDS)


def test_every_version_of_every_api_can_be_drawn():
    drawn = {
        (given.api.name, given.version) for given in some(6 * len(SERVED)) if given.well_formed
    }
    assert {(api.name, version) for api, version in SERVED} <= drawn


def test_what_changes_topics_leaves_alone_those_that_must_stay():
    served = [each for each in SERVED if each[0].name in CHANGING]
    for given in some(500, served=served):
        if given.kind == "values":
            assert not any(f"\x00{name}".encode() in given.frame for name in SAFE_TOPICS)


def test_bombs_expand_beyond_a_budget():
    for codec in (Codec.GZIP, Codec.SNAPPY, Codec.LZ4, Codec.ZSTD):
        assert len(bomb(codec)) < BOMB_BYTES / 100
        with pytest.raises((DecompressedTooLarge, CorruptRecords)):
            decompress(codec, bomb(codec), BOMB_BYTES // 4)


def test_lies_have_a_right_checksum_and_good_batches_are_good():
    dice = random.Random(1)
    for _ in range(50):
        for batch in (good_batch(dice), lie_in_records(dice)):
            header = parse_header(batch)
            assert header.size == len(batch)
            assert header.crc == crc32c(batch[CRC_COVERS_FROM:])
    assert len({hostile_batches(dice) for _ in range(100)}) > 80


def given(*, well_formed=True, api="Metadata", version=9, frame=b"\0\3"):
    return Input("values", frame, API_BY_NAME[api], version, well_formed)


ANSWER = bytes(5) + encode_bytes(MetadataResponse(), 9)


def test_the_judge_takes_what_kafka_would_do():
    assert fault_of(given(), ANSWERED, ANSWER) is None
    assert fault_of(given(well_formed=False), CLOSED, None) is None
    assert fault_of(given(api="Fetch"), SILENT, None) is None
    assert fault_of(given(api="Produce"), CLOSED, None) is None


def test_the_judge_finds_what_kafka_would_not_do():
    tally = Tally()
    tally.judge(given(), CLOSED)
    tally.judge(given(), SILENT)
    tally.judge(given(), ANSWERED, ANSWER[:-3])
    tally.judge(given(well_formed=False), ANSWERED, ANSWER)
    versions = Input("values", b"\0\x12\0\x7f", None, 127, well_formed=False)
    tally.judge(versions, CLOSED)
    assert len(tally.faults) == tally.inputs == 5
