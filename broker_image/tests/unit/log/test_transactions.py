"""A log that holds transactions; `test_transactional_log_model` has all histories."""

import errno

import msgspec
import pytest
from logfleet.io.files import PosixFiles
from logfleet.log.aborted import AbortedEntry
from logfleet.log.config import LogConfig
from logfleet.log.names import TRANSACTION_INDEX, offset_file
from logfleet.log.validation import Appended
from logfleet.records.batch import TimestampType, crc_matches, parse_header
from logfleet.records.control import Marker, read_marker
from logfleet.records.record import ProducerStamp, Record, build_batch
from logfleet.types import LeaderEpoch
from logfleet.wire.errors import ErrorCode

from broker_image.tests.sim.disk import SimDisk
from broker_image.tests.sim.rebuild import producer_faults, transaction_faults
from broker_image.tests.unit.log.log_rig import LogRig
from broker_image.tests.unit.log.moves.move_rig import MoveRig
from broker_image.tests.unit.log.retaining import retain

NOW = 1_700_000_000_000
EPOCH = LeaderEpoch(5)
SMALL = LogConfig(segment_bytes=600, index_interval_bytes=200, file_delete_delay_ms=0)


def write(log, producer_id, sequence, *, epoch=0, transactional=True):
    stamp = ProducerStamp(producer_id, epoch, sequence, transactional=transactional)
    record = Record(b"key", b"v" * 30, NOW)
    return log.append_as_leader(build_batch([record], producer=stamp), EPOCH, NOW)


def end(log, producer_id, *, commit=False, epoch=0, coordinator=0, version=1):
    marker = Marker(producer_id, epoch, is_commit=commit, coordinator_epoch=coordinator)
    (result,) = log.append_markers([(marker, version)], EPOCH, NOW)
    return result


def write_aborted(log, count, *, producer_id=1):
    for number in range(count):
        write(log, producer_id, number)
        end(log, producer_id)


def test_markers_of_many_transactions_are_one_write_at_consecutive_offsets(rig):
    log = rig.open()
    for producer_id in range(1, 5):
        write(log, producer_id, 0)
    markers = [
        (Marker(producer_id, 0, is_commit=producer_id % 2 == 0, coordinator_epoch=7), 1)
        for producer_id in range(1, 5)
    ]
    results = log.append_markers(iter(markers), EPOCH, NOW)
    assert results == [Appended(offset, offset, -1) for offset in range(4, 8)]
    assert log.log_end_offset == log.written_end_offset == 8
    content = log.read(4, 10_000).read()
    assert len(content) == 4 * 78
    assert [read_marker(content, 78 * n) for n in range(4)] == [marker for marker, _ in markers]
    assert parse_header(content, 78).leader_epoch == EPOCH
    assert log.aborted(0, 4) == [AbortedEntry(1, 0, 4, 1), AbortedEntry(3, 2, 6, 3)]


def test_each_refused_marker_says_why_and_the_others_are_appended(rig):
    log = rig.open()
    write(log, 1, 0, epoch=4)
    write(log, 2, 0)
    assert isinstance(end(log, 2, coordinator=9), Appended)
    late, fenced, sound = log.append_markers(
        [
            (Marker(1, 4, is_commit=True, coordinator_epoch=9), 2),
            (Marker(2, 0, is_commit=True, coordinator_epoch=8), 1),
            (Marker(1, 5, is_commit=True, coordinator_epoch=9), 2),
        ],
        EPOCH,
        NOW,
    )
    assert late.error is ErrorCode.INVALID_PRODUCER_EPOCH
    assert "epoch 4" in late.message
    assert fenced.error is ErrorCode.TRANSACTION_COORDINATOR_FENCED
    assert (sound.base_offset, log.log_end_offset) == (3, 4)
    assert log.last_stable_offset(4) == 4


@pytest.mark.parametrize("producer_id, epoch", [(-1, 0), (7, -1)])
def test_a_marker_that_names_no_producer_is_refused(rig, producer_id, epoch):
    """Clients may send markers; a rebuild of the producers would not have this one."""
    log = rig.open()
    refused = end(log, producer_id, epoch=epoch)
    assert refused.error is ErrorCode.INVALID_REQUEST
    assert "at least 0" in refused.message
    assert (log.log_end_offset, len(log.producers.states)) == (0, 0)


def test_a_second_marker_of_a_producer_is_checked_against_the_first(rig):
    log = rig.open()
    write(log, 1, 0)
    first, again, older = log.append_markers(
        [
            (Marker(1, 1, is_commit=False, coordinator_epoch=3), 2),
            (Marker(1, 1, is_commit=False, coordinator_epoch=4), 2),
            (Marker(1, 1, is_commit=False, coordinator_epoch=3), 2),
        ],
        EPOCH,
        NOW,
    )
    assert (first.base_offset, again.base_offset) == (1, 2)
    assert older.error is ErrorCode.TRANSACTION_COORDINATOR_FENCED
    assert log.aborted(0, 3) == [AbortedEntry(1, 0, 1, 2)]


@pytest.mark.parametrize("timestamp_type", TimestampType)
def test_markers_have_the_timestamp_type_of_their_topic(rig, timestamp_type):
    log = rig.open(LogConfig(message_timestamp_type=timestamp_type))
    end(log, 1, commit=True)
    content = log.read(0, 100).read()
    header = parse_header(content)
    assert (header.timestamp_type, header.max_timestamp) == (timestamp_type, NOW)
    assert crc_matches(content, header)
    assert read_marker(content) == Marker(1, 0, is_commit=True, coordinator_epoch=0)


def test_no_markers_are_no_write(rig):
    log = rig.open()
    assert log.append_markers([], EPOCH, NOW) == []
    assert log.log_end_offset == 0


def test_the_last_stable_offset_waits_for_the_marker_to_be_replicated(rig):
    log = rig.open()
    write(log, 1, 0, transactional=False)
    write(log, 2, 0)
    write(log, 3, 0)
    assert [log.last_stable_offset(mark) for mark in (0, 1, 2, 3)] == [0, 1, 1, 1]
    end(log, 2, commit=True)
    assert log.last_stable_offset(3) == 1
    assert log.last_stable_offset(4) == 2
    end(log, 3)
    assert log.last_stable_offset(4) == 2
    assert log.last_stable_offset(5) == 5


def test_deleted_records_take_the_last_stable_offset_along(rig):
    log = rig.open(SMALL)
    write(log, 9, 0)
    for number in range(20):
        write(log, 1, number, transactional=False)
    log.delete_records_before(15)
    retain(log, NOW, 21)
    assert log.segments[0].base_offset > 0
    assert log.last_stable_offset(21) == 15
    end(log, 9)
    assert log.last_stable_offset(22) == 22
    assert log.aborted(15, 22) == [AbortedEntry(9, 0, 21, 22)]


def test_only_segments_with_aborted_transactions_have_an_index(rig):
    log = rig.open(SMALL)
    for number in range(12):
        write(log, 1, number)
        end(log, 1, commit=True)
    rig.close(log)
    assert rig.names(TRANSACTION_INDEX) == []
    log = rig.open(SMALL)
    write(log, 1, 12)
    end(log, 1)
    base = log.segments[-1].base_offset
    rig.close(log)
    assert rig.names(TRANSACTION_INDEX) == [offset_file(base, TRANSACTION_INDEX)]


def test_markers_of_empty_transactions_cost_no_index_entry(rig):
    log = rig.open()
    for _ in range(3):
        assert isinstance(end(log, 7), Appended)
    assert len(log.segments[0].transaction_index) == 0
    assert log.last_stable_offset(3) == 3


def test_an_index_entry_that_finds_no_room_is_kept_in_memory():
    disk = SimDisk(0)
    log = LogRig("/data", disk).open()
    write_aborted(log, 119)
    disk.fail_after(0, errno.ENOSPC, below=log.segments[0].transaction_index.path)
    write_aborted(log, 3, producer_id=2)
    assert disk.faults == 1
    assert len(log.aborted(0, 300)) == 122
    assert transaction_faults(log) == []


def on_a_disk_that_loses_power(seed):
    disk = SimDisk(seed)
    rig = LogRig("/data", disk)
    disk.fsync_directory("/data")
    return disk, rig


@pytest.mark.parametrize("seed", range(20))
def test_an_index_is_durable_with_its_name_before_the_recovery_point_passes_a_marker(seed):
    disk, rig = on_a_disk_that_loses_power(seed)
    config = msgspec.structs.replace(SMALL, segment_bytes=100_000)
    log = rig.open(config)
    write(log, 1, 0)
    rig.flush(log)
    end(log, 1)
    for number in range(9):  # so that a start has no reason to read the marker again
        write(log, 2, number, transactional=False)
    rig.flush(log)
    write_aborted(log, 5, producer_id=3)
    disk.lose_power()
    log = rig.open(config, clean=False, recovery_point=11)
    assert log.aborted(0, 2) == [AbortedEntry(1, 0, 1, 2)]
    assert producer_faults(log) == transaction_faults(log) == []


def test_the_flush_after_the_first_aborted_transaction_makes_the_name_of_the_index_durable(rig):
    log = rig.open()
    write(log, 1, 0)
    rig.flush(log)
    for number, directories in enumerate([[rig.directory], []], 1):
        end(log, 1)
        job = log.begin_flush()
        assert job.directories == directories
        assert log.segments[0].transaction_index.path in [file.path for file in job.files]
        job.run(rig.files)
        log.complete_flush(job)
        write(log, 1, number)


@pytest.mark.parametrize("seed", range(20))
def test_a_rebuilt_index_is_durable_before_the_next_start_trusts_its_segment(seed):
    disk, rig = on_a_disk_that_loses_power(seed)
    log = rig.open(SMALL)
    write_aborted(log, 12)
    rig.close(log)
    expected = log.aborted(0, 24)
    first = log.segments[0]
    disk.remove(first.offset_index.path)
    disk.remove(first.transaction_index.path)
    disk.fsync_directory(rig.directory)
    rig.open(SMALL)
    disk.lose_power()
    log = rig.open(SMALL, clean=False, recovery_point=24)
    assert log.aborted(0, 24) == expected


def test_entries_of_a_history_that_was_cut_off_do_not_stay_in_an_index(rig):
    """A power loss may bring them back: only what lies below the recovery point is sure."""
    log = rig.open()
    write_aborted(log, 2)
    rig.flush(log)
    write_aborted(log, 2, producer_id=2)
    expected = log.aborted(0, 8)
    stale = AbortedEntry(9, 4, 7, 8).pack()
    rig.files.open(log.segments[0].transaction_index.path).pwrite(stale, 2 * len(stale))
    log = rig.open(clean=False, recovery_point=4)
    assert log.aborted(0, 8) == expected
    assert transaction_faults(log) == []


def test_a_torn_index_is_rebuilt_from_the_recovery_point_on(rig):
    log = rig.open(SMALL)
    write_aborted(log, 4)
    rig.close(log)
    expected = log.aborted(0, 8)
    file = rig.files.open(log.segments[0].transaction_index.path)
    file.truncate(34 + 20)
    file.pwrite(bytes(100), 54)
    log = rig.open(SMALL, clean=False, recovery_point=2)
    assert log.aborted(0, 8) == expected
    assert transaction_faults(log) == []


@pytest.mark.asyncio
async def test_a_move_takes_open_and_aborted_transactions_along(tmp_path):
    rig = await MoveRig(
        PosixFiles(), [str(tmp_path / "a"), str(tmp_path / "b")], config=SMALL
    ).load()
    log = rig.create()
    write_aborted(log, 6)
    write(log, 2, 0)
    write_aborted(log, 6, producer_id=3)
    aborted = log.aborted(0, 26)
    await rig.move()
    assert rig.log is log
    assert log.last_stable_offset(log.log_end_offset) == 12
    assert log.aborted(0, 26) == aborted
    end(log, 2)
    assert log.last_stable_offset(log.log_end_offset) == log.log_end_offset
    assert log.aborted(12, 13)[-1] == AbortedEntry(2, 12, 25, 26)
    assert producer_faults(log) == transaction_faults(log) == []
    assert len(list((tmp_path / "b" / "topic-0").glob("*.txnindex"))) >= 2
    for log_dir in rig.dirs:
        log_dir.abandon()
    rig.flusher.stop()


def test_a_log_continues_open_transactions_behind_skipped_offsets(rig):
    log = rig.open(msgspec.structs.replace(SMALL, cleanup_policy=frozenset({"compact"})))
    write(log, 1, 0)
    log.skip_to(50, NOW)
    assert log.last_stable_offset(50) == 0
    end(log, 1)
    assert log.aborted(0, 51) == [AbortedEntry(1, 0, 50, 51)]


def test_an_emptied_log_has_no_transactions(rig):
    log = rig.open(SMALL)
    write_aborted(log, 3)
    write(log, 2, 0)
    rig.truncate(log, 100, empties=True)
    assert log.last_stable_offset(100) == 100
    assert log.aborted(100, 101) == []
    assert rig.names(TRANSACTION_INDEX) == []


def test_a_restart_reads_markers_that_lie_across_the_pieces_it_reads(rig):
    log = rig.open()
    write_aborted(log, 600)
    expected = log.aborted(0, 1200)
    assert len(expected) == 600
    log = rig.open(clean=False, recovery_point=0)
    assert log.aborted(0, 1200) == expected
    assert producer_faults(log) == transaction_faults(log) == []


@pytest.mark.parametrize("offset", [50, 700, 1199])
def test_aborted_transactions_are_found_while_a_truncation_runs(rig, offset):
    log = rig.open(msgspec.structs.replace(SMALL, segment_bytes=100_000))
    write_aborted(log, 600)
    rig.flush(log)
    assert len(log.segments) > 1
    expected = log.aborted(10, 40)
    assert len(log.aborted(0, 1200)) == 600  # what has been read of the index is remembered
    truncation = log.begin_truncation(offset, NOW, empties=False)
    truncation.find()
    log.lower_end(truncation.end_offset)
    truncation.run()
    assert log.aborted(10, 40) == expected
    found = log.aborted(0, truncation.end_offset)
    log.complete_truncation(truncation)
    assert log.aborted(0, truncation.end_offset) == found
    assert producer_faults(log) == transaction_faults(log) == []


def test_a_log_whose_end_is_lost_below_its_start_has_no_open_transaction(rig):
    log = rig.open()
    write(log, 1, 0)
    rig.close(log)
    log = rig.open(log_start_offset=50)
    assert log.log_end_offset == 50
    assert log.last_stable_offset(50) == 50
    assert len(log.producers.states) == 0


def test_a_log_that_is_cut_within_its_first_batch_keeps_the_open_transactions_before(rig):
    log = rig.open()
    write(log, 1, 0)
    records = [Record(None, b"plain", NOW)] * 2
    log.append_as_leader(build_batch(records), EPOCH, NOW)
    log.delete_records_before(2)
    rig.truncate(log, 2)
    assert (log.size, log.log_end_offset) == (0, 2)
    assert log.producers.states.is_open(1, 0)
    end(log, 1)
    assert log.aborted(2, 3) == [AbortedEntry(1, 0, 2, 3)]
    assert log.last_stable_offset(3) == 3


def test_a_batch_sent_again_after_a_restart_is_found_among_markers(rig):
    log = rig.open()
    for number in range(5):
        write(log, 1, number)
        end(log, 1, commit=True)
    rig.close(log)
    log = rig.open()
    again = write(log, 1, 0)
    assert (again.base_offset, again.duplicate) == (0, True)
