"""What PartitionLog.append_as_follower makes of the batches of another log."""

import errno

import pytest
from logfleet.io.files import PosixFile
from logfleet.log.config import LogConfig
from logfleet.log.segments.file_slice import FileSlice
from logfleet.log.segments.index_entries import RELATIVE_OFFSET_MAX
from logfleet.records.batch import CONTROL_BIT, assign_offsets, iterate_headers, write_crc
from logfleet.records.errors import CorruptRecords
from logfleet.records.record import ProducerStamp, Record, build_batch
from logfleet.types import LeaderEpoch

from broker_image.tests.sim.rebuild import index_faults, producer_faults
from broker_image.tests.unit.log.log_rig import LogRig
from broker_image.tests.unit.log.retaining import retain
from broker_image.tests.unit.log.searching import by_time

NOW = 1_700_000_000_000
SMALL = LogConfig(segment_bytes=1000, index_interval_bytes=100)
ROOMY = LogConfig(index_interval_bytes=100)


@pytest.fixture
def leader(tmp_path):
    """50 batches of five leaders and a producer."""
    log = LogRig(str(tmp_path / "leader")).open(ROOMY)
    for number in range(50):
        batch = build_batch(
            [Record(b"key", b"%d" % n, NOW + number) for n in range(2)],
            producer=ProducerStamp(7, 0, 2 * number),
        )
        log.append_as_leader(batch, LeaderEpoch(number // 10), NOW)
    return log


def fetched(log, offset=0, max_bytes=1 << 20):
    piece = log.read(offset, max_bytes)
    return piece.read() if isinstance(piece, FileSlice) else b""


def content(log):
    found, offset = b"", log.log_start_offset
    while piece := fetched(log, offset):
        found += piece
        offset = list(iterate_headers(piece))[-1][1].next_offset
    return found


def copy(log, records, epoch=100):
    return log.append_as_follower(memoryview(records), epoch, NOW)


@pytest.mark.parametrize("config", [SMALL, ROOMY])
def test_the_log_is_the_leaders_byte_for_byte(rig, leader, config):
    log, records = rig.open(config), fetched(leader)
    assert copy(log, records) == len(records)
    assert content(log) == records
    assert log.log_end_offset == leader.log_end_offset == 100
    assert log.epochs.entries == leader.epochs.entries
    assert log.producers.states.snapshot() == leader.producers.states.snapshot()
    assert len(log.segments) == (1 if config is ROOMY else len(log.segments))
    assert all(segment.size <= config.segment_bytes for segment in log.segments)
    for segment in log.segments:
        assert index_faults(segment, config.index_interval_bytes) == []
    assert producer_faults(log) == []
    assert by_time(log, NOW + 31).offset == 62
    rig.close(log)
    again = rig.open(config)
    assert (again.recovered_bytes, content(again)) == (0, records)


def test_it_continues_where_the_answer_was_cut_off(rig, leader):
    log, records = rig.open(SMALL), fetched(leader)
    while log.log_end_offset < leader.log_end_offset:
        rest = fetched(leader, log.log_end_offset)
        copy(log, rest[: 2 * len(records) // 50 + 60])
    assert content(log) == records


def test_batches_of_one_segment_are_one_write(rig, leader, monkeypatch):
    log = rig.open(ROOMY)
    copy(
        log, fetched(leader, 0, 500)
    )  # where a segment has its first batch its bounds are asked for
    sizes = []
    pwrite = PosixFile.pwrite

    def write(file, data, position):
        if file.path.endswith(".log"):
            sizes.append(len(data))
        pwrite(file, data, position)

    monkeypatch.setattr(PosixFile, "pwrite", write)
    rest = fetched(leader, log.log_end_offset)
    copy(log, rest)
    assert sizes == [len(rest)]


def test_nothing_changes_where_any_batch_is_damaged(rig, leader):
    log = rig.open(SMALL)
    records = bytearray(fetched(leader))
    records[-1] ^= 1
    with pytest.raises(CorruptRecords):
        copy(log, records)
    assert (log.log_end_offset, log.size, log.epochs.entries) == (0, 0, ())


def test_a_former_leaders_own_epoch_gives_way_to_its_leaders(rig, leader):
    log = rig.open(SMALL)
    copy(log, fetched(leader, 0, 1000))
    log.start_epoch(90)  # led, wrote nothing, and follows again
    copy(log, fetched(leader, log.log_end_offset))
    assert log.epochs.entries == leader.epochs.entries


def test_control_batches_are_no_batches_of_their_producer(rig, leader):
    log = rig.open()
    copy(log, fetched(leader))
    marker = build_batch([Record(b"k", b"v", NOW)], producer=ProducerStamp(7, 0, -1))
    marker[22] |= CONTROL_BIT
    write_crc(marker)
    assign_offsets(marker, 100, LeaderEpoch(5))
    copy(log, marker)
    assert log.log_end_offset == 101
    assert log.producers.states.snapshot() == leader.producers.states.snapshot()


def test_offsets_too_far_apart_for_one_segment_begin_another(rig):
    log = rig.open()
    near, far = (build_batch([Record(None, b"v", NOW)]) for _ in range(2))
    assign_offsets(far, RELATIVE_OFFSET_MAX + 5, LeaderEpoch(0))
    copy(log, near + far)
    assert [segment.base_offset for segment in log.segments] == [0, RELATIVE_OFFSET_MAX + 5]
    assert fetched(log, 1) == far


def test_a_batch_larger_than_a_segment_is_taken_all_the_same(rig):
    log = rig.open(SMALL)
    large, small = (
        build_batch([Record(None, bytes(3000), NOW)]),
        build_batch([Record(None, b"", NOW)]),
    )
    assign_offsets(small, 1, LeaderEpoch(0))
    copy(log, large + small)
    assert [segment.size for segment in log.segments] == [len(large), len(small)]


@pytest.mark.parametrize("writes", range(1, 10))
def test_a_disk_without_room_keeps_the_batches_of_the_segments_before(
    rig, leader, monkeypatch, writes
):
    log, records = rig.open(SMALL), fetched(leader)
    pwrite, left = PosixFile.pwrite, [writes]

    def write(file, data, position):
        left[0] -= file.path.endswith(".log")
        if left[0] == 0 and file.path.endswith(".log"):
            pwrite(file, bytes(data[: len(data) // 2]), position)
            raise OSError(errno.ENOSPC, "No space left on device", file.path)
        pwrite(file, data, position)

    monkeypatch.setattr(PosixFile, "pwrite", write)
    with pytest.raises(OSError, match="No space left"):
        copy(log, records)
    assert content(log) == records[: log.size]
    assert log.segments[-1].file.size() == log.segments[-1].size
    copy(log, fetched(leader, log.log_end_offset))
    assert content(log) == records
    assert log.epochs.entries == leader.epochs.entries


def test_the_log_begins_where_the_leaders_does_as_far_as_it_is_committed(rig, leader):
    log = rig.open(SMALL)
    copy(log, fetched(leader))
    log.follow_log_start(30, 20)
    assert log.log_start_offset == 20
    log.follow_log_start(30, 60)
    assert log.log_start_offset == 30
    log.follow_log_start(10, 60)
    assert log.log_start_offset == 30
    retain(log, NOW, 60)
    assert 0 < log.segments[0].base_offset <= 30
    assert (log.epochs.epoch_of(30), log.epochs.entries[0].start_offset) == (1, 30)


def test_readers_find_the_batches_of_all_epochs_after_a_truncation(rig, leader):
    """Whether they are remembered or looked up, up to the log's end or any end before."""
    log = rig.open(ROOMY)
    copy(log, fetched(leader))
    rig.truncate(log, 63)
    for epoch in range(7, 10):
        log.append_as_leader(build_batch([Record(None, b"x", NOW)] * 2), epoch, NOW)
    ends = [*range(2, 63, 2), 64, 66, 68]
    assert log.log_end_offset == 68
    for start, end in zip([0, *ends], ends, strict=False):
        for offset in range(start, end):
            for limit, last in ((None, 68), (end, end), (68, 68)):
                piece = log.read(offset, 1 << 20, limit)
                assert isinstance(piece, FileSlice)
                headers = [header for _, header in iterate_headers(piece.read())]
                assert (headers[0].base_offset, headers[-1].next_offset) == (start, last)
                assert headers[0].leader_epoch == log.epochs.epoch_of(offset)
