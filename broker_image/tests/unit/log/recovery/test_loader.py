"""What is left of a log after a crash.

Everything whole, nothing else, and indexes as if nothing had happened.
"""

import contextlib
from itertools import count, takewhile

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from logfleet.log.config import LogConfig
from logfleet.log.directories.trash import remove
from logfleet.log.segments.file_slice import FileSlice
from logfleet.log.segments.index_entries import OFFSET_ENTRY, TIME_ENTRY
from logfleet.records.batch import iterate_headers
from logfleet.records.record import ProducerStamp, Record, build_batch

from broker_image.tests.sim.disk import PowerLoss, SimDisk
from broker_image.tests.sim.rebuild import index_faults
from broker_image.tests.unit.log.log_rig import LogRig
from broker_image.tests.unit.log.searching import by_time

NOW = 1_700_000_000_000
VALUE = b"\xaa" * 50
CONFIG = LogConfig(segment_bytes=2000, index_interval_bytes=200)
MAGIC, PAYLOAD = 16, 70
"""Where in a batch to damage it: its header cannot be read, or its checksum is wrong."""


def append(log, count, *, epoch=0, producer_id=7):
    for _ in range(count):
        offset = log.log_end_offset
        stamp = ProducerStamp(producer_id, 0, offset)
        batch = build_batch([Record(None, VALUE, NOW + offset)], producer=stamp)
        assert log.append_as_leader(batch, epoch, NOW).base_offset == offset


def offsets(log):
    found, offset = [], log.log_start_offset
    while isinstance(piece := log.read(offset, 1 << 20), FileSlice):
        found += [header.base_offset for _, header in iterate_headers(piece.read())]
        offset = found[-1] + 1
    return found


def crash(rig, log):
    """The process dies; what it gave to the kernel is there, what it kept in memory is not."""
    del log
    rig.open_files = None


def closed(rig, count, config=CONFIG):
    log = rig.open(config)
    append(log, count)
    rig.close(log)
    return log


def damage(segment, number, at):
    position = [position for position, _ in segment.headers()][number]
    segment.file.pwrite(b"\xff", position + at)


def index_files(rig):
    found = {}
    for name in rig.names("index"):
        entry = TIME_ENTRY if name.endswith(".timeindex") else OFFSET_ENTRY
        content = (rig.files.open(f"{rig.directory}/{name}")).pread(1 << 20, 0)
        found[name] = list(entry.iter_unpack(content))
    return found


def test_a_crash_loses_nothing_that_was_written(rig):
    log = rig.open(CONFIG)
    append(log, 50)
    crash(rig, log)
    log = rig.open(CONFIG, clean=False)
    assert offsets(log) == list(range(50))
    assert log.epoch_end_offset(0) == (0, 50)
    assert log.producers.states.get(7).last_sequence == 49
    append(log, 10)
    assert offsets(log) == list(range(60))


def test_indexes_after_a_crash_are_those_of_a_clean_stop(rig, tmp_path):
    log = rig.open(CONFIG)
    append(log, 100)
    rig.flush(log)
    point = log.recovery_point
    append(log, 57)
    crash(rig, log)
    rig.close(rig.open(CONFIG, clean=False, recovery_point=point))
    recovered = index_files(rig)
    other = type(rig)(str(tmp_path / "other"))
    log = other.open(CONFIG)
    append(log, 157)
    other.close(log)
    assert recovered == index_files(other)
    for name in list(recovered):
        rig.files.remove(f"{rig.directory}/{name}")
    rig.close(rig.open(CONFIG))
    assert index_files(rig) == recovered, "missing indexes are rebuilt"


@settings(
    suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=60, deadline=None
)
@given(data=st.data())
def test_a_log_torn_anywhere_keeps_its_whole_batches(rig, data):
    for name in rig.names():
        if name != "partition.metadata":
            rig.files.remove(f"{rig.directory}/{name}")
    log = rig.open(CONFIG)
    append(log, data.draw(st.integers(1, 60)))
    point = 0
    if data.draw(st.booleans()):
        rig.flush(log)
        point = log.recovery_point
        append(log, data.draw(st.integers(1, 40)))
    last = log.segments[-1]
    sizes = {header.next_offset: position + header.size for position, header in last.headers()}
    durable = sizes.get(point, 0)
    cut = data.draw(st.integers(durable, last.size))
    file = last.file
    lost = file.pread(last.size - cut, cut)
    crash(rig, log)
    file.truncate(cut)
    garbage = data.draw(st.sampled_from([b"", bytes(100), b"\xff" * 30, b"\x00" * 7]))
    file.pwrite(garbage, cut)
    # Garbage that happens to be what was lost (a record ends with a zero) restores it.
    same = takewhile(lambda pair: pair[0] == pair[1], zip(lost, garbage, strict=False))
    kept = cut + sum(1 for _ in same)
    log = rig.open(CONFIG, clean=False, recovery_point=point)
    end = max([last.base_offset, *(o for o, position in sizes.items() if position <= kept)])
    assert log.log_end_offset == end
    assert offsets(log) == list(range(end))
    assert end >= point
    again = rig.open(CONFIG, clean=False, recovery_point=point)
    assert (again.log_end_offset, again.size) == (log.log_end_offset, log.size)
    append(again, 3)
    assert offsets(again) == list(range(end + 3))


def test_a_damaged_old_segment_ends_the_log_there(rig):
    log = rig.open(CONFIG)
    append(log, 100)
    victim = log.segments[2]
    position = [position for position, _ in victim.headers()][3]
    victim.file.pwrite(b"\xff", position + 70)
    crash(rig, log)
    log = rig.open(CONFIG, clean=False)
    assert offsets(log) == list(range(victim.base_offset + 3))
    assert log.segments[-1].base_offset == victim.base_offset
    assert any("cut off" in note for note in log.notes)
    append(log, 30)
    assert offsets(log) == list(range(victim.base_offset + 33))


def test_a_hole_between_segments_ends_the_log_before_it(rig):
    log = rig.open(CONFIG)
    append(log, 100)
    victim = log.segments[2]
    position = [position for position, _ in victim.headers()][3]
    victim.file.truncate(position)
    crash(rig, log)
    log = rig.open(CONFIG, clean=False)
    assert offsets(log) == list(range(victim.base_offset + 3))


def test_what_is_durable_is_not_read_again(rig):
    log = rig.open(CONFIG)
    append(log, 100)
    rig.flush(log)
    crash(rig, log)
    log = rig.open(CONFIG, clean=False, recovery_point=100)
    assert log.recovered_bytes <= CONFIG.segment_bytes
    assert log.recovery_point == 100


@pytest.mark.parametrize("suffix", ["index", "timeindex"])
@pytest.mark.parametrize(
    "damage", [b"", bytes(400), b"\x7f" * 40, bytes.fromhex("00000001 0000ffff")]
)
def test_damaged_indexes_of_the_active_segment_are_rebuilt(rig, suffix, damage):
    log = rig.open(LogConfig(index_interval_bytes=200))
    append(log, 100)
    rig.close(log)
    good = index_files(rig)
    path = f"{rig.directory}/{0:020d}.{suffix}"
    rig.files.open(path).truncate(0)
    rig.files.open(path).pwrite(damage, 0)
    log = rig.open(LogConfig(index_interval_bytes=200), clean=False, recovery_point=0)
    assert offsets(log) == list(range(100))
    rig.close(log)
    assert index_files(rig) == good


def test_garbage_behind_a_properly_closed_log_is_cut_off(rig):
    log = rig.open(CONFIG)
    append(log, 20)
    rig.close(log)
    last = log.segments[-1]
    last.file.pwrite(b"garbage", last.size)
    log = rig.open(CONFIG)
    assert offsets(log) == list(range(20))
    assert log.notes


def test_leftovers_of_a_crash_are_removed(rig):
    log = rig.open(CONFIG)
    append(log, 30)
    rig.close(log)
    for name in (f"{5:020d}.log.deleted", "leader-epoch-checkpoint.tmp", f"{3:020d}.index"):
        rig.files.open(f"{rig.directory}/{name}", create=True)
    log = rig.open(CONFIG)
    assert not any(name.endswith((".deleted", ".tmp")) for name in rig.names())
    assert f"{3:020d}.index" not in rig.names()
    assert offsets(log) == list(range(30))


def test_a_log_that_ends_before_its_start_is_emptied_there(rig):
    log = rig.open(CONFIG)
    append(log, 10)
    rig.close(log)
    log = rig.open(CONFIG, log_start_offset=500)
    assert (log.log_start_offset, log.log_end_offset) == (500, 500)
    append(log, 2, producer_id=8)
    assert offsets(log) == [500, 501]


def test_a_log_emptied_after_a_crash_can_be_flushed(rig):
    """DeleteRecords reaches the disk before the records do.

    The flush before leading is the first that comes.
    """
    log = rig.open(CONFIG)
    append(log, 60)
    assert len(log.segments) > 2
    damage(log.segments[-1], -1, PAYLOAD)
    crash(rig, log)
    log = rig.open(CONFIG, clean=False, log_start_offset=60)
    assert (log.log_start_offset, log.log_end_offset) == (60, 60)
    rig.flush(log)
    append(log, 2, producer_id=8)
    assert offsets(log) == [60, 61]


def test_an_unreadable_epoch_file_is_rebuilt_from_the_batches(rig):
    log = rig.open(CONFIG)
    append(log, 20, epoch=1)
    append(log, 20, epoch=4)
    rig.close(log)
    path = f"{rig.directory}/leader-epoch-checkpoint"
    rig.files.open(path).truncate(3)
    log = rig.open(CONFIG)
    assert [(e.epoch, e.start_offset) for e in log.epochs.entries] == [(1, 0), (4, 20)]
    assert log.notes


@pytest.mark.parametrize("log_start", [0, 1], ids=["deletion not acknowledged", "acknowledged"])
def test_a_missing_index_below_the_log_start_changes_no_later_epoch(rig, log_start):
    """The epoch file begins at the log start that was known then.

    The batches before it are none the less there.
    """
    log = rig.open(CONFIG)
    append(log, 20, epoch=6)
    append(log, 40, epoch=14)
    append(log, 40, epoch=15)
    first = log.segments[0]
    log.delete_records_before(log.segments[1].base_offset)
    rig.close(log)
    rig.files.remove(first.offset_index.path)
    log = rig.open(CONFIG, log_start_offset=log_start * log.log_start_offset)
    assert [log.epochs.epoch_of(offset) for offset in (19, 20, 59, 60)] == [6, 14, 14, 15]
    assert log.epochs.epoch_of(log.log_start_offset) == 6


class TestProducers:
    def test_the_last_five_batches_are_restored_after_a_clean_stop(self, rig):
        log = rig.open(CONFIG)
        append(log, 40)
        rig.close(log)
        log = rig.open(CONFIG)
        for offset in range(35, 40):
            batch = build_batch(
                [Record(None, VALUE, NOW + offset)], producer=ProducerStamp(7, 0, offset)
            )
            again = log.append_as_leader(batch, 0, NOW)
            assert (again.base_offset, again.duplicate) == (offset, True)
        assert log.log_end_offset == 40

    def test_a_damaged_snapshot_is_replaced_by_an_older_one_and_the_log(self, rig):
        log = rig.open(CONFIG)
        append(log, 40)
        rig.close(log)
        newest = rig.names(".snapshot")[-1]
        rig.files.open(f"{rig.directory}/{newest}").truncate(5)
        log = rig.open(CONFIG)
        assert log.producers.states.get(7).last_sequence == 39
        assert any("unreadable" in note for note in log.notes)

    def test_a_flush_of_much_data_brings_a_snapshot(self, rig, monkeypatch):
        monkeypatch.setattr("logfleet.log.producers.history.SNAPSHOT_INTERVAL_BYTES", 3000)
        log = rig.open()
        append(log, 10)
        rig.flush(log)
        assert rig.names(".snapshot") == []
        append(log, 20)
        rig.flush(log)
        assert rig.names(".snapshot") == [f"{30:020d}.snapshot"]
        append(log, 30)
        rig.flush(log)
        assert rig.names(".snapshot") == [f"{60:020d}.snapshot"]
        append(log, 1)
        crash(rig, log)
        log = rig.open(clean=False, recovery_point=60)
        assert log.producers.states.get(7).last_sequence == 60


STOPPED = pytest.mark.parametrize(
    "stopped", [{"clean": True}, {"clean": False, "recovery_point": 100}], ids=["clean", "killed"]
)


class TestDamageInWhatIsDurable:
    """A segment without its offset index ends where it is damaged; no other segment does."""

    @STOPPED
    def test_a_wrong_checksum_and_a_missing_time_index_cost_no_record(self, rig, stopped):
        log = closed(rig, 100)
        victim = log.segments[2]
        damage(victim, 3, PAYLOAD)
        rig.files.remove(victim.time_index.path)
        for _ in range(2):
            log = rig.open(CONFIG, **stopped)
            assert (offsets(log), log.has_lost) == (list(range(100)), False)
            rig.flush(log)
            assert index_faults(log.segments[2], CONFIG.index_interval_bytes) == []
        append(log, 30, producer_id=8)
        rig.close(log)
        assert offsets(rig.open(CONFIG)) == list(range(130))
        assert {base[:20] for base in rig.names(".log")} == {
            base[:20] for base in rig.names(".timeindex")
        }

    @pytest.mark.parametrize("at", [MAGIC, PAYLOAD], ids=["header", "checksum"])
    @pytest.mark.parametrize("first", [0, 3])
    @STOPPED
    def test_a_segment_without_index_is_cut_at_the_damage_and_no_other_is(
        self, rig, stopped, first, at
    ):
        log = closed(rig, 100)
        victim, behind = log.segments[2:4]
        gone = range(victim.base_offset + first, behind.base_offset)
        damage(victim, first, at)
        rig.files.remove(victim.offset_index.path)
        rest = [offset for offset in range(100) if offset not in gone]
        log = rig.open(CONFIG, **stopped)
        assert (offsets(log), log.has_lost) == (rest, True)
        (note,) = log.notes
        assert f"{victim.base_offset:020d}.log" in note
        assert "cut off" in note
        again = rig.open(CONFIG, **stopped)
        assert (offsets(again), again.notes) == (rest, [])
        append(again, 30, producer_id=8)
        rig.close(again)
        log = rig.open(CONFIG)
        assert (offsets(log), log.notes) == (rest + list(range(100, 130)), [])
        assert by_time(log, NOW + gone[0]).offset == behind.base_offset
        for segment in log.segments:
            assert index_faults(segment, CONFIG.index_interval_bytes) == []

    @pytest.mark.parametrize("at", [MAGIC, PAYLOAD], ids=["header", "checksum"])
    def test_the_active_segment_of_a_closed_log_is_cut_at_the_damage_without_its_index(
        self, rig, at
    ):
        config = LogConfig(index_interval_bytes=200)
        log = closed(rig, 100, config)
        damage(log.segments[0], 40, at)
        rig.files.remove(log.segments[0].offset_index.path)
        log = rig.open(config)
        assert (offsets(log), log.has_lost) == (list(range(40)), True)
        append(log, 1, producer_id=8)
        rig.close(log)
        again = rig.open(config)
        assert (offsets(again), again.notes) == (list(range(41)), [])

    def test_with_its_index_the_active_segment_of_a_closed_log_loses_what_no_reader_can_find(
        self, rig
    ):
        """A wrong checksum is for readers to find; a header that is none ends the log."""
        config = LogConfig(index_interval_bytes=200)
        log = closed(rig, 100, config)
        damage(log.segments[0], 40, PAYLOAD)
        damage(log.segments[0], -1, PAYLOAD)
        log = rig.open(config)
        assert (offsets(log), log.notes) == (list(range(100)), [])
        damage(log.segments[0], -1, MAGIC)
        log = rig.open(config)
        assert (offsets(log), log.has_lost) == (list(range(99)), True)
        append(log, 1, producer_id=8)
        rig.close(log)
        assert offsets(rig.open(config)) == list(range(100))

    @pytest.mark.parametrize("at", [MAGIC, PAYLOAD], ids=["header", "checksum"])
    @pytest.mark.parametrize("indexed", [False, True])
    def test_damage_before_the_recovery_point_takes_no_segment_behind_it(self, rig, at, indexed):
        log = rig.open(CONFIG)
        append(log, 100)
        victim, behind = log.segments[2:4]
        point = behind.base_offset - 1
        number = point - victim.base_offset - 1
        damage(victim, number, at)
        crash(rig, log)
        if not indexed:
            rig.files.remove(victim.offset_index.path)
        gone = range(victim.base_offset + number, behind.base_offset)
        rest = [offset for offset in range(100) if offset not in gone]
        for _ in range(2):  # the second time as after a crash before the first flush
            log = rig.open(CONFIG, clean=False, recovery_point=point)
            assert (offsets(log), log.has_lost) == (rest, True)
        append(log, 30, producer_id=8)
        assert offsets(log) == rest + list(range(100, 130))

    def test_a_tail_torn_behind_the_recovery_point_is_no_damage(self, rig):
        config = LogConfig(index_interval_bytes=200)
        log = rig.open(config)
        append(log, 60)
        rig.flush(log)
        append(log, 40)
        torn = log.segments[0]
        torn.file.truncate(torn.size - 1)
        crash(rig, log)
        log = rig.open(config, clean=False, recovery_point=60)
        assert (offsets(log), log.has_lost) == (list(range(99)), False)

    def test_a_header_that_claims_the_offsets_of_the_next_segment_is_not_believed(self, rig):
        log = closed(rig, 100)
        victim = log.segments[2]
        last = [position for position, _ in victim.headers()][-1]
        victim.file.pwrite((2**31 - 1).to_bytes(4, "big"), last + 23)
        rig.files.remove(victim.offset_index.path)
        gone = log.segments[3].base_offset - 1
        assert offsets(rig.open(CONFIG)) == [offset for offset in range(100) if offset != gone]

    def test_a_crash_while_a_segment_is_cut_loses_no_other_batch(self):
        for fuse in count(1):
            disk = SimDisk(fuse)
            rig = LogRig("", disk)
            log = closed(rig, 40)
            victim, behind = log.segments[1:3]
            gone = range(victim.base_offset + 3, behind.base_offset)
            damage(victim, 3, MAGIC)
            victim.file.fsync()
            disk.remove(victim.offset_index.path)
            disk.fsync_directory(rig.directory)
            disk.fuse = fuse
            with contextlib.suppress(PowerLoss):
                rig.flush(rig.open(CONFIG, clean=False, recovery_point=40))
            whole, disk.fuse = disk.fuse > 0, None
            if not whole:
                disk.lose_power()
            log = rig.open(CONFIG, clean=False, recovery_point=40)
            assert offsets(log) == [offset for offset in range(40) if offset not in gone]
            assert all(isinstance(log.read(offset, 1), FileSlice) for offset in range(40))
            if whole:
                return


def test_segments_behind_a_torn_one_are_only_renamed_at_first(rig):
    log = rig.open(CONFIG)
    append(log, 100)
    victim, following = log.segments[2], log.segments[3:]
    damage(victim, 3, PAYLOAD)
    crash(rig, log)
    rig.open(msgspec.structs.replace(CONFIG, file_delete_delay_ms=60_000), clean=False, now_ms=NOW)
    for segment in following:
        assert f"{segment.base_offset:020d}.log.deleted" in rig.names(".deleted")
        assert f"{segment.base_offset:020d}.log" not in rig.names(".log")
    assert rig.trash.take_due(NOW + 59_999) == []
    remove(rig.files, rig.trash.take_due(NOW + 60_000))
    assert rig.names(".deleted") == []
