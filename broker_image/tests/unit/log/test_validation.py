import pytest
from hypothesis import given
from hypothesis import strategies as st
from logfleet.log import validation
from logfleet.log.batch_rules import BatchRefusal, malformed
from logfleet.log.config import LogConfig
from logfleet.log.names import TopicPartition
from logfleet.log.validation import BYTES_ON_LOOP_MAX, NeedsThread, Prepared, prepare, prepare_fully
from logfleet.records.batch import (
    HEADER_SIZE,
    TimestampType,
    crc_matches,
    parse_header,
    replace_payload,
    set_log_append_time,
    write_crc,
)
from logfleet.records.compression import Codec, compress
from logfleet.records.record import ProducerStamp, Record, build_batch, read_records
from logfleet.wire.errors import ErrorCode

NOW = 1_700_000_000_000
HOUR = 3_600_000
PRODUCE = LogConfig()
COMPACT = LogConfig(cleanup_policy=frozenset({"compact"}))
FULL = LogConfig(validates_records=True)
PARTITION = TopicPartition("orders", 3)
RECORDS = [Record(b"k%d" % n, b"value " * 50, NOW - n) for n in range(5)]


def patched(position, value, *, batch=None):
    """A batch with other bytes at a position, under a right checksum."""
    changed = batch or build_batch(RECORDS)
    changed[position : position + len(value)] = value
    write_crc(changed)
    return changed


def refusal(batch, config=PRODUCE):
    before = bytes(batch)
    refused = prepare_fully(batch, config, NOW, PARTITION)
    assert isinstance(refused, BatchRefusal), refused
    assert bytes(batch) == before, "a refused batch is left as it was"
    assert refused.message
    return refused


def accepted(batch, config=PRODUCE):
    prepared = prepare_fully(batch, config, NOW, PARTITION)
    assert isinstance(prepared, Prepared), prepared
    assert parse_header(prepared.buffer) == prepared.header
    assert crc_matches(prepared.buffer, prepared.header)
    return prepared


@pytest.mark.parametrize("codec", list(Codec))
def test_a_good_batch_is_taken_as_it_is(codec):
    batch = build_batch(RECORDS, codec=codec, producer=ProducerStamp(1, 0, 0))
    before = bytes(batch)
    prepared = accepted(batch)
    assert prepared.buffer is batch
    assert bytes(batch) == before
    assert prepared.log_append_time_ms == -1


def test_a_coordinator_stamps_what_it_has_prepared_with_the_producer_of_a_transaction():
    """A client may not send such a batch: it has no sequence."""
    records = [Record(b"k", b"v", NOW)]
    producer = ProducerStamp(7, 3, transactional=True)
    stamped = accepted(build_batch(records)).stamped(producer)
    assert stamped.buffer == build_batch(records, producer=producer)
    assert stamped.header == parse_header(stamped.buffer)
    assert refusal(stamped.buffer).error is ErrorCode.INVALID_RECORD


@pytest.mark.parametrize("rest", [1, 10, 16, 17, 80])
def test_the_beginning_of_another_batch_is_left_out(rest):
    batch = build_batch(RECORDS)
    prepared = accepted(batch + build_batch(RECORDS)[:rest])
    assert bytes(prepared.buffer) == bytes(batch)


@pytest.mark.parametrize(
    "batch, error",
    [
        (bytearray(), ErrorCode.INVALID_RECORD),
        (build_batch(RECORDS)[:-1], ErrorCode.INVALID_RECORD),
        (build_batch(RECORDS)[:HEADER_SIZE], ErrorCode.INVALID_RECORD),
        (build_batch(RECORDS) * 2, ErrorCode.INVALID_RECORD),
        (build_batch(RECORDS) + bytes(30), ErrorCode.CORRUPT_MESSAGE),
        (patched(16, b"\x01"), ErrorCode.INVALID_RECORD),  # magic
        (patched(16, b"\x03"), ErrorCode.CORRUPT_MESSAGE),  # an undefined magic
        (patched(16, b"\xff"), ErrorCode.CORRUPT_MESSAGE),
        (patched(8, b"\0\0\0\x20")[:44], ErrorCode.CORRUPT_MESSAGE),
        (build_batch(RECORDS, base_offset=1), ErrorCode.INVALID_RECORD),
        (patched(8, b"\0\0\0\x30"), ErrorCode.CORRUPT_MESSAGE),  # shorter than a header
        (patched(8, b"\xff\xff\xff\xff"), ErrorCode.CORRUPT_MESSAGE),
        (patched(8, b"\x7f\xff\xff\xff"), ErrorCode.INVALID_RECORD),
        (patched(57, b"\0\0\0\0"), ErrorCode.INVALID_RECORD),  # no records
        (patched(57, b"\xff\xff\xff\xff"), ErrorCode.INVALID_RECORD),
        (patched(57, b"\0\0\0\x04"), ErrorCode.INVALID_RECORD),  # fewer than the offsets say
        (patched(23, b"\xff\xff\xff\xff"), ErrorCode.INVALID_RECORD),
        (patched(21, b"\0\x20"), ErrorCode.INVALID_RECORD),  # a control batch
        (patched(21, b"\0\x05"), ErrorCode.INVALID_RECORD),  # a codec that is not defined
        (patched(43, b"\0\0\0\0\0\0\0\x07"), ErrorCode.INVALID_RECORD),  # producer without sequence
    ],
)
def test_a_batch_that_no_client_may_send_is_refused(batch, error):
    assert refusal(batch).error is error


@pytest.mark.parametrize(
    "batch, is_malformed",
    [
        (build_batch(RECORDS)[:30], True),
        (patched(16, b"\x01"), True),
        (patched(16, b"\x03"), True),
        (build_batch(RECORDS) * 2, True),
        (patched(57, b"\0\0\0\0"), False),
        (build_batch(RECORDS, base_offset=1), False),
        (patched(21, b"\0\x20"), False),
    ],
)
def test_malformed_bytes_differ_from_refused_batches(batch, is_malformed):
    assert refusal(batch).is_before_log is is_malformed
    assert (malformed(batch) is not None) is is_malformed


def test_a_damaged_batch_is_refused_with_both_checksums():
    batch = build_batch(RECORDS)
    batch[-1] ^= 1
    refused = refusal(batch)
    assert refused.error is ErrorCode.CORRUPT_MESSAGE
    assert f"stored crc = {parse_header(batch).crc}" in refused.message


@given(st.binary(max_size=200))
def test_garbage_is_refused(garbage):
    refusal(bytearray(garbage))


@given(st.sampled_from(Codec), st.data())
def test_a_damaged_batch_is_never_taken(codec, data):
    batch = build_batch(RECORDS, codec=codec)
    position = data.draw(st.sampled_from([*range(8, 12), *range(16, len(batch))]))
    batch[position] ^= data.draw(st.integers(1, 255))
    refusal(batch, data.draw(st.sampled_from([PRODUCE, COMPACT])))


class TestSizes:
    def test_a_batch_above_max_message_bytes_is_too_large(self):
        batch = build_batch(RECORDS)
        accepted(batch, LogConfig(max_message_bytes=len(batch)))
        refused = refusal(batch, LogConfig(max_message_bytes=len(batch) - 1))
        assert refused.error is ErrorCode.MESSAGE_TOO_LARGE

    def test_size_is_judged_before_the_checksum(self):
        batch = build_batch(RECORDS)
        batch[-1] ^= 1
        assert refusal(batch, LogConfig(max_message_bytes=70)).error is ErrorCode.MESSAGE_TOO_LARGE

    def test_a_compressed_batch_counts_as_sent(self):
        batch = build_batch([Record(None, bytes(100_000), NOW)], codec=Codec.ZSTD)
        accepted(batch, LogConfig(max_message_bytes=1000))

    def test_a_batch_above_a_segment_is_too_large_a_list(self):
        batch = build_batch(RECORDS)
        refused = refusal(batch, LogConfig(segment_bytes=len(batch) - 1))
        assert refused.error is ErrorCode.RECORD_LIST_TOO_LARGE


class TestKeys:
    @pytest.mark.parametrize("codec", list(Codec))
    def test_a_compacted_topic_takes_no_record_without_a_key(self, codec):
        records = [RECORDS[0], Record(None, b"v", NOW), RECORDS[1], Record(None, b"w", NOW)]
        batch = build_batch(records, codec=codec)
        refused = refusal(batch, COMPACT)
        assert refused.error is ErrorCode.INVALID_RECORD
        assert [record.index for record in refused.records] == [1, 3]
        sentence = "Compacted topic cannot accept message without key in topic partition orders-3"
        assert {record.message for record in refused.records} == {sentence}
        assert "due to 2 record errors in total" in refused.message
        assert f"[RecordError(batchIndex=1, message='{sentence}'), R" in refused.message
        accepted(batch)
        accepted(build_batch(RECORDS, codec=codec), COMPACT)

    def test_an_empty_key_is_a_key(self):
        accepted(build_batch([Record(b"", b"v", NOW)]), COMPACT)

    def test_not_every_bad_record_is_named(self):
        refused = refusal(build_batch([Record(None, b"v", NOW)] * 1000), COMPACT)
        assert len(refused.records) == 100
        assert "due to 1000 record errors in total" in refused.message
        assert refused.message.count("RecordError") == 3

    def test_a_bad_time_outweighs_a_missing_key(self):
        records = [Record(None, b"v", NOW), Record(b"k", b"v", NOW + 2 * HOUR)]
        refused = refusal(build_batch(records), COMPACT)
        assert refused.error is ErrorCode.INVALID_TIMESTAMP
        assert [record.index for record in refused.records] == [0, 1]

    def test_a_bomb_is_stopped_at_the_brokers_budget(self, monkeypatch):
        monkeypatch.setattr(validation, "DECOMPRESSED_BYTES_MAX", 1 << 20)
        bomb = build_batch([Record(b"k", bytes(5 << 20), NOW)], codec=Codec.ZSTD)
        assert refusal(bomb, COMPACT).error is ErrorCode.MESSAGE_TOO_LARGE

    def test_records_that_cannot_be_read_are_invalid(self):
        batch = build_batch(RECORDS, codec=Codec.LZ4)
        assert (
            refusal(patched(70, b"\xff" * 20, batch=batch), COMPACT).error
            is ErrorCode.INVALID_RECORD
        )


class TestSizeOfRecords:
    """max.decompressed.message.bytes; a record of n zeros has n + 7 bytes."""

    LIMITED = LogConfig(max_decompressed_message_bytes=1007)

    @pytest.mark.parametrize("codec", [codec for codec in Codec if codec is not Codec.NONE])
    def test_a_record_that_comes_compressed_is_bounded(self, codec):
        for sizes in ([1000], [1000, 900, 1000]):
            records = [Record(None, bytes(size), NOW) for size in sizes]
            accepted(build_batch(records, codec=codec), self.LIMITED)
        for sizes in ([1001], [1, 1001, 1], [1 << 20]):
            records = [Record(None, bytes(size), NOW) for size in sizes]
            refused = refusal(build_batch(records, codec=codec), self.LIMITED)
            assert refused.error is ErrorCode.INVALID_RECORD

    def test_what_comes_as_it_is_has_another_bound(self):
        accepted(build_batch([Record(None, bytes(5000), NOW)]), self.LIMITED)

    def test_no_more_is_expanded_than_such_records_can_have(self, monkeypatch):
        budgets = []

        def reading(buffer, *, budget_bytes, record_bytes_max):
            budgets.append(budget_bytes)
            return read_records(
                buffer, budget_bytes=budget_bytes, record_bytes_max=record_bytes_max
            )

        monkeypatch.setattr(validation, "read_records", reading)
        refusal(build_batch([Record(None, bytes(1 << 20), NOW)], codec=Codec.GZIP), self.LIMITED)
        assert budgets == [1012]


class TestTimestamps:
    def test_a_record_from_the_future_is_refused(self):
        accepted(build_batch([Record(b"k", b"v", NOW + HOUR)]))
        batch = build_batch([Record(b"k", b"v", NOW), Record(b"k", b"v", NOW + HOUR + 1)])
        refused = refusal(batch)
        assert refused.error is ErrorCode.INVALID_TIMESTAMP
        assert refused.message == "One or more records have been rejected due to invalid timestamp"
        (record,) = refused.records
        assert record.index == 1
        assert f"Timestamp {NOW + HOUR + 1} of message with offset 1 is out" in record.message
        assert record.message.endswith(f", {NOW + HOUR}]")

    def test_a_record_from_the_past_is_refused_where_that_is_limited(self):
        batch = build_batch([Record(b"k", b"v", NOW), Record(b"k", b"v", NOW - HOUR)])
        accepted(batch)
        accepted(batch, LogConfig(message_timestamp_before_max_ms=HOUR))
        refused = refusal(batch, LogConfig(message_timestamp_before_max_ms=HOUR - 1))
        assert refused.error is ErrorCode.INVALID_TIMESTAMP
        assert [record.index for record in refused.records] == [1]

    def test_a_record_without_a_timestamp_is_in_every_window(self):
        batch = build_batch([Record(b"k", b"v", -1)])
        accepted(batch, LogConfig(message_timestamp_before_max_ms=HOUR))

    def test_a_header_that_lies_about_the_future_is_corrected(self):
        batch = patched(35, (NOW + 2 * HOUR).to_bytes(8, "big"))
        assert accepted(batch).header.max_timestamp == NOW

    @pytest.mark.parametrize("codec", list(Codec))
    @pytest.mark.parametrize("claimed", [-1, NOW - 1])
    def test_a_header_without_the_newest_time_is_completed(self, claimed, codec):
        """Sarama sent -1 until its PR 3108.

        The newest time cannot be older than the first record's, which is the base.
        """
        batch = build_batch(RECORDS, codec=codec, producer=ProducerStamp(7, 0, 0))
        batch = patched(35, claimed.to_bytes(8, "big", signed=True), batch=batch)
        needs_thread = isinstance(prepare(bytearray(batch), PRODUCE, NOW, PARTITION), NeedsThread)
        assert needs_thread == (codec != Codec.NONE)
        prepared = accepted(batch)
        assert prepared.header.max_timestamp == NOW
        assert list(read_records(prepared.buffer)) == list(read_records(build_batch(RECORDS)))

    @pytest.mark.parametrize("codec", list(Codec))
    def test_the_largest_timestamp_is_not_computed_if_the_brokers_replaces_it(self, codec):
        config = LogConfig(message_timestamp_type=TimestampType.LOG_APPEND_TIME)
        batch = build_batch(RECORDS, codec=codec)
        batch = patched(35, (-1).to_bytes(8, "big", signed=True), batch=batch)
        prepared = prepare(batch, config, NOW, PARTITION)
        assert isinstance(prepared, Prepared)
        assert prepared.header.max_timestamp == NOW

    @pytest.mark.parametrize("codec", list(Codec))
    def test_the_brokers_time_replaces_all(self, codec):
        config = LogConfig(message_timestamp_type=TimestampType.LOG_APPEND_TIME)
        batch = build_batch([Record(b"k", b"v", NOW + 2 * HOUR), *RECORDS], codec=codec)
        prepared = accepted(batch, config)
        assert prepared.log_append_time_ms == NOW
        assert {record.timestamp for record in read_records(prepared.buffer)} == {NOW}

    @pytest.mark.parametrize("codec", [Codec.NONE, Codec.ZSTD])
    def test_the_brokers_time_is_not_the_clients_to_set(self, codec):
        """Where the topic wants the clients' times the batch gets those, as in Kafka.

        Where not, it is refused.
        """
        batch = build_batch(RECORDS, codec=codec)
        set_log_append_time(batch, NOW - HOUR)
        config = LogConfig(message_timestamp_type=TimestampType.LOG_APPEND_TIME)
        refused = refusal(bytearray(batch), config)
        assert refused.error is ErrorCode.INVALID_TIMESTAMP
        assert [record.index for record in refused.records] == [0, 1, 2, 3, 4]
        assert "Record(offset=2, timestamp=1699996400000, key=2 bytes" in (
            refused.records[2].message
        )
        header = accepted(batch).header
        assert header.timestamp_type is TimestampType.CREATE_TIME
        assert header.max_timestamp == NOW - HOUR

    def test_a_client_that_claims_log_append_time_must_set_one(self):
        batch = build_batch(RECORDS)
        set_log_append_time(batch, -1)
        assert refusal(batch).error is ErrorCode.INVALID_TIMESTAMP


class TestCompression:
    @pytest.mark.parametrize("target", list(Codec))
    @pytest.mark.parametrize("source", list(Codec))
    def test_records_come_into_the_topics_codec_unchanged(self, source, target):
        stamp = ProducerStamp(7, 1, 5)
        batch = build_batch(RECORDS, codec=source, producer=stamp)
        prepared = accepted(batch, LogConfig(compression_type=target))
        header = prepared.header
        assert header.codec_bits == target
        assert (header.producer_id, header.producer_epoch, header.base_sequence) == (7, 1, 5)
        assert list(read_records(prepared.buffer)) == list(read_records(batch))

    def test_both_codec_and_time_may_change(self):
        config = LogConfig(
            compression_type=Codec.ZSTD, message_timestamp_type=TimestampType.LOG_APPEND_TIME
        )
        prepared = accepted(build_batch(RECORDS), config)
        assert [record.timestamp for record in read_records(prepared.buffer)] == [NOW] * 5

    def test_a_level_is_the_topics(self):
        records = [Record(b"k", b"%d;%d" % (n, n * n % 991), NOW) for n in range(5000)]
        sizes = [
            accepted(
                build_batch(records),
                LogConfig(compression_type=Codec.GZIP, compression_level=level),
            ).header.size
            for level in (1, 9)
        ]
        assert sizes[0] > sizes[1]

    def test_size_is_judged_again_after_recompression(self):
        batch = build_batch([Record(None, bytes(100_000), NOW)], codec=Codec.ZSTD)
        config = LogConfig(compression_type=Codec.NONE, max_message_bytes=50_000)
        assert refusal(batch, config).error is ErrorCode.MESSAGE_TOO_LARGE

    def test_a_bomb_is_stopped_at_the_brokers_budget(self, monkeypatch):
        monkeypatch.setattr(validation, "DECOMPRESSED_BYTES_MAX", 1 << 20)
        bomb = build_batch([Record(None, bytes(5 << 20), NOW)], codec=Codec.GZIP)
        config = LogConfig(compression_type=Codec.LZ4)
        assert refusal(bomb, config).error is ErrorCode.MESSAGE_TOO_LARGE

    def test_a_stream_that_cannot_be_read_is_invalid(self):
        batch = patched(70, b"\xff" * 20, batch=build_batch(RECORDS, codec=Codec.GZIP))
        config = LogConfig(compression_type=Codec.LZ4)
        assert refusal(batch, config).error is ErrorCode.INVALID_RECORD


@pytest.mark.parametrize(
    "codec, config, expected",
    [
        (Codec.ZSTD, PRODUCE, False),
        (Codec.NONE, COMPACT, False),
        (Codec.ZSTD, COMPACT, True),
        (Codec.NONE, LogConfig(compression_type=Codec.ZSTD), True),
        (Codec.ZSTD, LogConfig(compression_type=Codec.ZSTD), False),
        (Codec.ZSTD, LogConfig(message_timestamp_before_max_ms=HOUR), True),
        (Codec.NONE, LogConfig(message_timestamp_before_max_ms=HOUR), False),
        (Codec.ZSTD, LogConfig(max_decompressed_message_bytes=10_000), True),
        (Codec.NONE, LogConfig(max_decompressed_message_bytes=10_000), False),
        (Codec.NONE, LogConfig(message_timestamp_type=TimestampType.LOG_APPEND_TIME), False),
        (Codec.ZSTD, LogConfig(message_timestamp_type=TimestampType.LOG_APPEND_TIME), False),
        (Codec.ZSTD, LogConfig(message_timestamp_after_max_ms=0), False),
    ],
)
def test_only_what_expands_or_compresses_needs_a_thread(codec, config, expected):
    judged = prepare(build_batch(RECORDS, codec=codec), config, NOW, PARTITION)
    assert isinstance(judged, NeedsThread if expected else Prepared)


def test_a_compressed_batch_from_the_future_needs_a_thread():
    batch = build_batch([Record(b"k", b"v", NOW + 2 * HOUR)], codec=Codec.LZ4)
    assert isinstance(prepare(batch, PRODUCE, NOW, PARTITION), NeedsThread)


@pytest.mark.parametrize("config", [COMPACT, FULL])
def test_a_large_batch_needs_a_thread(config):
    """Neither many records nor one with many headers."""
    small = build_batch([Record(b"k", b"v", NOW)] * 1000)
    many = build_batch([Record(b"k", b"v", NOW)] * 3000)
    headers = build_batch([Record(b"k", b"v", NOW, (("", None),) * 10_000)])
    assert len(small) < BYTES_ON_LOOP_MAX < len(headers) < len(many)
    assert isinstance(prepare(small, config, NOW, PARTITION), Prepared)
    for large in (many, headers):
        assert isinstance(prepare(large, config, NOW, PARTITION), NeedsThread)
        assert isinstance(prepare(large, PRODUCE, NOW, PARTITION), Prepared)
        assert accepted(large, config).buffer is large


class TestEveryRecord:
    """logfleet.record.validation=full.

    What Apache Kafka answers stands in the oracle's corpus `produce`.
    """

    GOOD = bytes(build_batch(RECORDS)[HEADER_SIZE:])
    ALONE = tuple(bytes(build_batch([record])[HEADER_SIZE:]) for record in RECORDS)
    JUNK = pytest.mark.parametrize(
        "payload",
        [
            b"\xff" * len(GOOD),
            GOOD[:-1],
            GOOD + b"\0",
            GOOD + ALONE[0],
            GOOD[: -len(ALONE[4])],
            b"".join(ALONE),  # each has base offset 0
        ],
        ids=["junk", "cut", "a-byte-more", "a-record-more", "a-record-less", "offsets"],
    )

    @staticmethod
    def batch(payload, codec):
        return replace_payload(build_batch(RECORDS), codec, compress(codec, payload))

    @pytest.mark.parametrize("codec", list(Codec))
    def test_a_good_batch_is_taken_as_it_is(self, codec):
        batch = build_batch(RECORDS, codec=codec)
        before = bytes(batch)
        assert accepted(batch, FULL).buffer is batch
        assert bytes(batch) == before

    @JUNK
    @pytest.mark.parametrize("codec", list(Codec))
    def test_records_that_contradict_the_header_are_refused_if_read(self, payload, codec):
        batch = self.batch(payload, codec)
        assert refusal(batch, FULL).error is ErrorCode.INVALID_RECORD
        accepted(batch)

    @pytest.mark.parametrize("codec", [codec for codec in Codec if codec])
    def test_what_does_not_expand_is_refused_and_else_believed(self, codec):
        batch = replace_payload(build_batch(RECORDS), codec, b"no such stream")
        assert refusal(batch, FULL).error is ErrorCode.INVALID_RECORD
        accepted(batch)

    @pytest.mark.parametrize("codec", [Codec.NONE, Codec.LZ4])
    def test_the_newest_time_is_found_out_and_else_believed(self, codec):
        claimed = (NOW + 1000).to_bytes(8, "big")
        batch = patched(35, claimed, batch=build_batch(RECORDS, codec=codec))
        assert accepted(bytearray(batch)).header.max_timestamp == NOW + 1000
        assert accepted(batch, FULL).header.max_timestamp == NOW

    def test_a_record_that_lies_about_its_offset_is_named(self):
        refused = refusal(self.batch(b"".join(self.ALONE), Codec.NONE), FULL)
        assert [each.index for each in refused.records] == [1, 2, 3, 4]
        assert refused.records[0].message == "It has offset 0 in its batch, not 1"
