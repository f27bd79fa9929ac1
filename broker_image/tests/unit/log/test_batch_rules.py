"""The table of rules for a client's batch, and the fast test of `prepare` for all of them."""

import struct

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from logfleet.log.batch_rules import BATCH_RULES, BatchRefusal, SentBatch, explain, malformed
from logfleet.log.config import LogConfig
from logfleet.log.names import TopicPartition
from logfleet.log.validation import Prepared, prepare
from logfleet.records.batch import (
    CONTROL_BIT,
    DELETE_HORIZON_BIT,
    TRANSACTIONAL_BIT,
    parse_header,
    write_crc,
)
from logfleet.records.record import ProducerStamp, Record, build_batch
from logfleet.wire.errors import ErrorCode

NOW = 1_700_000_000_000
RECORDS = [Record(b"k%d" % n, b"value " * 10, NOW - n) for n in range(5)]
SIZE = len(build_batch(RECORDS))
FIELDS = {
    "base_offset": (0, ">q", st.sampled_from([0, 0, 0, 1, -1])),
    "batch_length": (8, ">i", st.sampled_from([SIZE - 12] * 5 + [SIZE - 13, SIZE, 48, 13, -1])),
    "magic": (16, ">b", st.sampled_from([2] * 5 + [0, 1, 3, -1])),
    "attributes": (
        21,
        ">h",
        st.sampled_from([0, TRANSACTIONAL_BIT, CONTROL_BIT, DELETE_HORIZON_BIT])
        | st.integers(0, 7),
    ),
    "last_offset_delta": (23, ">i", st.sampled_from([4, 4, 4, 3, 5, 0, -1, 2**31 - 1])),
    "producer_id": (43, ">q", st.sampled_from([-1, -1, 0, 7, 2**63 - 1])),
    "base_sequence": (53, ">i", st.sampled_from([-1, 0, 5, -2])),
    "record_count": (57, ">i", st.sampled_from([5, 5, 5, 4, 6, 1, 0, -1])),
}


def changed(fields: dict[str, int], *, is_true: bool = True) -> bytearray:
    """A sound batch but for these fields of its header. is_true: its checksum."""
    batch = build_batch(RECORDS)
    for name, value in fields.items():
        position, form, _ = FIELDS[name]
        struct.pack_into(form, batch, position, value)
    write_crc(batch)
    if not is_true:
        batch[-1] ^= 1
    return batch


@given(
    st.fixed_dictionaries({}, optional={name: each[2] for name, each in FIELDS.items()}),
    st.sampled_from([True, True, True, False]),
    st.sampled_from([b"", b"", b"", b"\0", bytes(16)]),
    st.sampled_from([LogConfig().max_message_bytes, SIZE, SIZE - 1]),
)
@example({}, True, b"", SIZE)
def test_the_fast_test_refuses_what_the_table_refuses_and_nothing_else(
    fields, is_true, behind, size_max
) -> None:
    batch = changed(fields, is_true=is_true) + behind
    config = LogConfig(max_message_bytes=size_max)
    expected = malformed(batch)
    if expected is None:
        header = parse_header(batch)
        expected = explain(SentBatch(batch[: header.size], header, config))
    result = prepare(batch, config, NOW, TopicPartition("orders", 3))
    if expected is None:
        assert isinstance(result, Prepared), result
    else:
        assert result == expected


@pytest.mark.parametrize(
    "fields, error, message",
    [
        (
            {"base_offset": 3},
            ErrorCode.INVALID_RECORD,
            "The base offset of a produced batch is 0, ",
        ),
        ({"record_count": 0}, ErrorCode.INVALID_RECORD, "Record count 0 is not positive."),
        (
            {"record_count": 4},
            ErrorCode.INVALID_RECORD,
            "Last offset delta 4 does not fit 4 records.",
        ),
        (
            {"attributes": CONTROL_BIT},
            ErrorCode.INVALID_RECORD,
            "Clients are not allowed to write control records.",
        ),
        (
            {"producer_id": 7, "base_sequence": -1},
            ErrorCode.INVALID_RECORD,
            "Invalid sequence number -1 in record batch with producerId 7",
        ),
        ({"attributes": 6}, ErrorCode.INVALID_RECORD, "Unknown compression type 6."),
        ({"magic": 1}, ErrorCode.INVALID_RECORD, "Record batches must have magic 2, not 1."),
    ],
)
def test_a_refusal_names_the_rule_that_is_broken(fields, error, message) -> None:
    result = prepare(changed(fields), LogConfig(), NOW, TopicPartition("orders", 3))
    assert isinstance(result, BatchRefusal)
    assert result.error is error
    assert (result.message or "").startswith(message)


def test_the_first_broken_rule_counts() -> None:
    fields = {"base_offset": 1, "record_count": 0, "attributes": CONTROL_BIT | 7}
    batch = changed(fields, is_true=False)
    sent = SentBatch(batch, parse_header(batch), LogConfig(max_message_bytes=70))
    broken = [rule for rule in BATCH_RULES if rule.is_broken(sent)]
    assert len(broken) == 7
    assert explain(sent) == broken[0].refuse(sent)


def test_a_sound_batch_breaks_no_rule() -> None:
    batch = build_batch(RECORDS, producer=ProducerStamp(7, 0, 0))
    assert explain(SentBatch(batch, parse_header(batch), LogConfig())) is None
