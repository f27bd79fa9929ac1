import pytest
from logfleet.log.batch_rules import BatchRefusal
from logfleet.log.config import LogConfig
from logfleet.log.retention import REMOVED_AT_ONCE
from logfleet.log.segments.file_slice import FileSlice
from logfleet.log.validation import Appended
from logfleet.records.batch import crc_matches, iterate_headers, write_crc
from logfleet.records.record import ProducerStamp, Record, build_batch, read_records
from logfleet.wire.errors import ErrorCode

from broker_image.tests.unit.log.retaining import retain
from broker_image.tests.unit.log.searching import by_time, youngest

NOW = 1_700_000_000_000
SMALL = LogConfig(segment_bytes=1000, index_interval_bytes=100)


def batch(*values, timestamp=NOW, producer=None):
    return build_batch([Record(b"key", value, timestamp) for value in values], producer=producer)


def stamp(sequence, producer_id=7, epoch=0):
    return ProducerStamp(producer_id, epoch, sequence)


def fill(log, count, size=100, *, epoch=0):
    """`count` batches of one record, whose value is its offset."""
    for _ in range(count):
        value = b"%d" % log.log_end_offset
        result = log.append_as_leader(batch(value.ljust(size)), epoch, NOW)
        assert isinstance(result, Appended)


def values(data):
    return [
        (record.offset, (record.value or b"").strip())
        for position, _ in iterate_headers(data)
        for record in read_records(data, position)
    ]


def everything(log):
    found, offset = [], log.log_start_offset
    while isinstance(piece := log.read(offset, 1 << 20), FileSlice):
        found += values(piece.read())
        offset = found[-1][0] + 1
    return found


def numbered(start, end):
    return [(offset, b"%d" % offset) for offset in range(start, end)]


class TestAppending:
    def test_a_batch_gets_the_next_offsets_and_the_leaders_epoch(self, rig):
        log = rig.open()
        assert log.append_as_leader(batch(b"a", b"b"), 3, NOW) == Appended(0, 1, -1)
        assert log.append_as_leader(batch(b"c"), 3, NOW) == Appended(2, 2, -1)
        assert (log.log_start_offset, log.log_end_offset) == (0, 3)
        data = log.read(0, 1000).read()
        headers = list(iterate_headers(data))
        assert [header.leader_epoch for _, header in headers] == [3, 3]
        assert all(crc_matches(data, header, position) for position, header in headers)
        assert values(data) == [(0, b"a"), (1, b"b"), (2, b"c")]

    def test_a_refused_batch_changes_nothing(self, rig):
        log = rig.open()
        damaged = batch(b"a")
        damaged[-1] ^= 1
        refused = log.append_as_leader(damaged, 0, NOW)
        assert isinstance(refused, BatchRefusal)
        assert refused.error is ErrorCode.CORRUPT_MESSAGE
        assert (log.log_end_offset, log.size, log.epochs.latest) == (0, 0, -1)

    def test_each_leader_epoch_has_its_start_offset(self, rig):
        log = rig.open()
        fill(log, 3, epoch=1)
        log.start_epoch(4)
        fill(log, 2, epoch=4)
        assert log.epoch_end_offset(1) == (1, 3)
        assert log.epoch_end_offset(4) == (4, 5)

    def test_a_batch_sent_again_is_answered_with_its_old_offsets(self, rig):
        log = rig.open()
        for sequence in range(7):
            log.append_as_leader(batch(b"%d" % sequence, producer=stamp(sequence)), 0, NOW)
        again = log.append_as_leader(batch(b"3", producer=stamp(3)), 0, NOW)
        assert again == Appended(3, 3, NOW, duplicate=True)
        assert log.log_end_offset == 7
        refused = log.append_as_leader(batch(b"9", producer=stamp(9)), 0, NOW)
        assert refused.error is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
        assert "last sequence 6" in refused.message

    def test_a_failed_write_leaves_the_log_as_it_was(self, rig, monkeypatch):
        log = rig.open()
        fill(log, 3)
        file = log.segments[-1].file

        def half_a_batch(self, data, position):
            original(self, bytes(data[: len(data) // 2]), position)
            raise OSError(28, "No space left on device", self.path)

        original = type(file).pwrite
        monkeypatch.setattr(type(file), "pwrite", half_a_batch)
        with pytest.raises(OSError, match="No space left"):
            log.append_as_leader(batch(b"lost"), 0, NOW)
        monkeypatch.undo()
        assert everything(log) == numbered(0, 3)
        fill(log, 1, size=3)  # shorter than what the failed write left behind
        rig.close(log)
        assert everything(rig.open()) == numbered(0, 4)


class TestReading:
    def test_whole_batches_are_read_from_any_offset_to_any_end(self, rig):
        log = rig.open(LogConfig(segment_bytes=1 << 20, index_interval_bytes=300))
        for first in range(0, 60, 3):
            log.append_as_leader(batch(*(b"%d" % (first + n) for n in range(3))), 0, NOW)
        for offset in range(60):
            found = values(log.read(offset, 1 << 20).read())
            assert found == numbered(offset - offset % 3, 60)
        for end in range(1, 61):
            piece = log.read(0, 1 << 20, end)
            assert (values(piece.read()) if piece else []) == numbered(0, end - end % 3)

    def test_the_limit_holds_unless_one_batch_must_get_through(self, rig):
        log = rig.open()
        fill(log, 10)
        size = log.size // 10
        assert len(log.read(2, 3 * size + 1)) == 3 * size
        assert len(log.read(2, 3 * size)) == 3 * size
        assert len(log.read(2, 1)) == size
        assert log.read(2, size - 1, at_least_one=False) is None
        assert len(log.read(2, size, at_least_one=False)) == size

    def test_old_data_is_cut_at_the_indexs_boundaries(self, rig):
        log = rig.open(LogConfig(index_interval_bytes=1000))
        fill(log, 1000)
        for offset in (0, 1, 17, 500, 700):
            piece = log.read(offset, 10_000)
            assert 8_500 < len(piece) <= 10_000
            found = values(piece.read())
            assert found == numbered(offset, found[-1][0] + 1)

    def test_offsets_outside_the_log_are_out_of_range(self, rig):
        log = rig.open()
        fill(log, 10)
        log.delete_records_before(4)
        assert log.read(3, 1000) is ErrorCode.OFFSET_OUT_OF_RANGE
        assert log.read(11, 1000) is ErrorCode.OFFSET_OUT_OF_RANGE
        assert log.read(10, 1000) is None
        assert log.read(7, 1000, 7) is None
        assert everything(log) == numbered(4, 10)

    def test_a_slice_stays_readable_while_its_segment_is_deleted(self, rig):
        log = rig.open(LogConfig(segment_bytes=1000, retention_ms=1))
        fill(log, 30)
        piece = log.read(0, 1 << 20)
        retain(log, NOW + 10, log.log_end_offset)
        for discarded in rig.trash.take_due(NOW + 10**9):
            rig.files.remove(discarded.path)
        assert log.log_start_offset == 30
        assert values(piece.read()) == numbered(0, len(values(piece.read())))
        assert piece.fd > 0


class TestRolling:
    def test_segments_are_rolled_by_size_and_read_across(self, rig):
        log = rig.open(SMALL)
        fill(log, 50)
        assert len(log.segments) > 5
        assert all(segment.size <= 1000 for segment in log.segments)
        assert everything(log) == numbered(0, 50)
        assert rig.names(".log") == [f"{s.base_offset:020d}.log" for s in log.segments]
        assert rig.names(".snapshot") == [
            f"{s.base_offset:020d}.snapshot" for s in log.segments[1:]
        ]

    def test_the_active_segment_is_closed_on_demand_if_it_has_records(self, rig):
        log = rig.open(LogConfig())
        fill(log, 2)
        for _ in range(2):
            log.roll(NOW)
        assert [each.base_offset for each in log.segments] == [0, 2]
        fill(log, 1)
        assert log.log_end_offset == 3

    def test_segments_are_rolled_by_the_records_time(self, rig):
        log = rig.open(LogConfig(segment_ms=1000))
        for timestamp in (NOW, NOW + 1000, NOW + 1001, NOW + 1500):
            log.append_as_leader(batch(b"x", timestamp=timestamp), 0, NOW)
        assert [segment.base_offset for segment in log.segments] == [0, 2]

    def test_jitter_is_drawn_within_its_bound(self, rig):
        log = rig.open(LogConfig(segment_ms=1000, segment_jitter_ms=300))
        assert 0 <= log._jitter_ms < 300

    def test_open_files_stay_bounded(self, rig):
        log = rig.open(SMALL)
        rig.open_files._limit = 4
        fill(log, 100)
        assert everything(log) == numbered(0, 100)
        assert len(rig.open_files) <= 4


class TestTime:
    def test_the_first_record_of_an_age_is_found(self, rig):
        log = rig.open(LogConfig(segment_bytes=2000, index_interval_bytes=200))
        for number in range(40):
            stamps = [NOW + 10 * number + n for n in range(3)]
            records = [Record(None, bytes(30), timestamp) for timestamp in stamps]
            log.append_as_leader(build_batch(records), 2, NOW)
        for wanted in range(NOW - 5, NOW + 400):
            expected = next(
                ((o, t) for o in range(120) if (t := NOW + 10 * (o // 3) + o % 3) >= wanted), None
            )
            found = by_time(log, wanted)
            assert (found and (found.offset, found.timestamp)) == expected
            assert found is None or found.leader_epoch == 2

    def test_order_is_by_offset_where_times_go_back(self, rig):
        log = rig.open(SMALL)
        times = [50, 10, 40, 30, 90, 20, 60]
        for time in times:
            log.append_as_leader(batch(bytes(300), timestamp=time), 0, NOW)
        assert [by_time(log, t).offset for t in (0, 50, 51, 90)] == [0, 0, 4, 4]
        assert by_time(log, 91) is None
        assert youngest(log).offset == 4
        log.delete_records_before(5)
        assert by_time(log, 0).offset == 5

    def test_a_log_without_times_has_no_youngest_record(self, rig):
        log = rig.open()
        assert youngest(log) is None
        log.append_as_leader(batch(b"x", timestamp=-1), 0, NOW)
        assert youngest(log) is None
        assert by_time(log, 0) is None

    def test_the_youngest_record_is_the_first_of_its_time(self, rig):
        log = rig.open()
        records = [Record(None, None, NOW + n) for n in (1, 5, 3, 5)]
        log.append_as_leader(build_batch(records), 0, NOW)
        log.append_as_leader(batch(b"x", timestamp=NOW + 4), 0, NOW)
        found = youngest(log)
        assert (found.offset, found.timestamp) == (1, NOW + 5)

    def test_unreadable_records_are_found_as_a_batch(self, rig):
        log = rig.open()
        log.append_as_leader(batch(b"x", timestamp=5), 0, NOW)
        garbage = batch(b"y", b"z", timestamp=10)
        garbage[61:] = b"\xff" * (len(garbage) - 61)
        write_crc(garbage)
        log.append_as_leader(garbage, 0, NOW)
        found = by_time(log, 7)
        assert (found.offset, found.timestamp) == (1, 10)


class TestTruncating:
    @pytest.mark.parametrize("target", [0, 1, 7, 8, 9, 25, 49, 50])
    def test_the_log_ends_where_it_was_cut_and_goes_on_from_there(self, rig, target):
        log = rig.open(SMALL)
        fill(log, 50)
        rig.truncate(log, target)
        assert log.log_end_offset == target
        assert everything(log) == numbered(0, target)
        fill(log, 10)
        assert everything(log) == numbered(0, target + 10)
        rig.close(log)
        assert everything(rig.open(SMALL)) == numbered(0, target + 10)

    def test_a_batch_cut_in_its_middle_goes_as_a_whole(self, rig):
        log = rig.open()
        log.append_as_leader(batch(b"0", b"1"), 0, NOW)
        log.append_as_leader(batch(b"2", b"3"), 0, NOW)
        rig.truncate(log, 3)
        assert log.log_end_offset == 2

    def test_epochs_and_producers_go_back_too(self, rig):
        log = rig.open(SMALL)
        for sequence in range(20):
            log.append_as_leader(batch(bytes(200), producer=stamp(sequence)), sequence // 5, NOW)
        rig.truncate(log, 12)
        assert log.epochs.latest == 2
        assert log.epoch_end_offset(2) == (2, 12)
        again = log.append_as_leader(batch(bytes(200), producer=stamp(12)), 2, NOW)
        assert again == Appended(12, 12, -1)
        duplicate = log.append_as_leader(batch(bytes(200), producer=stamp(11)), 2, NOW)
        assert (duplicate.base_offset, duplicate.duplicate) == (11, True)
        assert log.recovery_point <= 12


class TestRetention:
    def test_expired_segments_go_and_the_log_starts_later(self, rig):
        log = rig.open(LogConfig(segment_bytes=1000, retention_ms=1000, file_delete_delay_ms=50))
        for number in range(30):
            log.append_as_leader(batch(bytes(100), timestamp=NOW + number * 100), 0, NOW)
        now = NOW + 2500
        count = retain(log, now, log.log_end_offset)
        assert count > 0
        assert log.log_start_offset == log.segments[0].base_offset > 0
        assert len(rig.names(".deleted")) == 4 * count - 1  # the first has no snapshot
        assert rig.trash.take_due(now + 49) == []
        assert len(rig.trash.take_due(now + 50)) == 4 * count - 1

    def test_it_goes_in_steps_that_are_short(self, rig):
        log = rig.open(LogConfig(segment_bytes=1000, retention_ms=1000))
        fill(log, 60)
        old = len(log.segments)
        assert old > 2 * REMOVED_AT_ONCE
        gone, steps_without = 0, 0
        while step := log.apply_retention(NOW + 1001, 60):
            assert step.count <= REMOVED_AT_ONCE
            gone += step.count
            steps_without += step.count == 0
            assert len(log.segments) == old + steps_without - gone
        assert steps_without == 1, "only the one that makes a new active segment"
        assert (gone, log.log_start_offset) == (old, 60)

    def test_a_wholly_expired_log_is_emptied_and_goes_on(self, rig):
        log = rig.open(LogConfig(retention_ms=1000))
        fill(log, 5)
        retain(log, NOW + 1001, 4)
        assert log.log_start_offset == 0, "the last record is not committed"
        retain(log, NOW + 1001, 5)
        assert (log.log_start_offset, log.log_end_offset, log.size) == (5, 5, 0)
        assert retain(log, NOW + 9999, 5) == 0
        fill(log, 2)
        rig.close(log)
        log = rig.open()
        assert everything(log) == numbered(5, 7)

    def test_deleted_records_stay_deleted(self, rig):
        log = rig.open(SMALL)
        fill(log, 50)
        log.delete_records_before(33)
        log.delete_records_before(20)
        assert log.log_start_offset == 33
        retain(log, NOW, 50)
        assert log.segments[0].base_offset <= 33 < log.segments[1].base_offset
        rig.close(log)
        log = rig.open(log_start_offset=33)
        assert everything(log) == numbered(33, 50)

    def test_age_is_the_files_where_records_have_no_time(self, rig):
        log = rig.open(LogConfig(retention_ms=60_000))
        log.append_as_leader(batch(b"x", timestamp=-1), 0, NOW)
        written = rig.files.status(log.segments[0].log_path).modified_ms
        assert retain(log, written + 60_000, 1) == 0
        assert retain(log, written + 60_001, 1) == 1


class TestFlushing:
    def test_the_first_flush_makes_the_partitions_names_durable(self, rig):
        log = rig.open()
        assert log.unflushed
        job = log.begin_flush()
        assert job.directories == [rig.directory, rig.directory.rpartition("/")[0]]
        assert [file.path for file in job.files] == [f"{rig.directory}/partition.metadata"]
        job.run(rig.files)
        log.complete_flush(job)
        assert not log.unflushed

    def test_a_flush_covers_what_was_written_when_it_began(self, rig):
        log = rig.open(SMALL)
        fill(log, 20)
        job = log.begin_flush()
        fill(log, 20)
        job.run(rig.files)
        log.complete_flush(job)
        assert log.recovery_point == 20
        assert log.unflushed
        rolled = {segment.log_path for segment in log.segments if segment.base_offset > 20}
        again = log.begin_flush()
        flushed = {file.path for file in again.files}
        assert rolled <= flushed
        assert not any(file.endswith(f"{0:020d}.log") for file in flushed)
        log.complete_flush(again)

    def test_indexes_of_rolled_segments_are_made_durable_once(self, rig):
        log = rig.open(SMALL)
        fill(log, 5)
        rig.flush(log)
        fill(log, 20)
        indexes = [f.path for f in log.begin_flush().files if f.path.endswith("index")]
        assert len(indexes) == 2 * (len(log.segments) - 1)

    def test_a_segment_deleted_before_its_flush_is_not_missed(self, rig):
        log = rig.open(LogConfig(segment_bytes=1000, retention_ms=1))
        fill(log, 20)
        retain(log, NOW + 10, 20)
        rig.flush(log)
        assert log.recovery_point == 20

    def test_the_epoch_file_is_written_when_an_epoch_begins(self, rig):
        log = rig.open()
        log.start_epoch(7)
        rig.flush(log)
        content = rig.files.open(f"{rig.directory}/leader-epoch-checkpoint").pread(100, 0)
        assert content == b"0\n1\n7 0\n"
        assert not log.unflushed
