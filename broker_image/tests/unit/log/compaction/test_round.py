import random

import msgspec
import pytest
from logfleet.log.compaction.round import Uncleanable
from logfleet.log.config import LogConfig
from logfleet.log.directories.trash import remove
from logfleet.log.segments.file_slice import FileSlice
from logfleet.records.compression import Codec
from logfleet.records.record import ProducerStamp, Record, build_batch

from broker_image.tests.unit.log.compaction.compaction_rig import (
    SETTINGS,
    append,
    batches,
    compact,
    flushed,
    latest,
    records,
)
from broker_image.tests.unit.log.retaining import retain
from broker_image.tests.unit.log.searching import by_time, youngest

NOW = 1_700_000_000_000
CONFIG = LogConfig(
    segment_bytes=2000,
    index_interval_bytes=200,
    file_delete_delay_ms=0,
    delete_retention_ms=1000,
    cleanup_policy=frozenset({"compact"}),
)
LARGE = msgspec.structs.replace(CONFIG, segment_bytes=1_000_000)


def write(log, *pairs, now=NOW, **how):
    made = [Record(key, value, now + n) for n, (key, value) in enumerate(pairs)]
    return append(log, build_batch(made, **how), now)


def fill(log, count, keys, seed=1, **how):
    dice = random.Random(seed)
    for n in range(count):
        write(log, (b"key %d" % dice.randrange(keys), b"value %d" % n * 3), now=NOW + n, **how)


@pytest.fixture
def log(rig):
    return rig.open(CONFIG)


@pytest.mark.parametrize("codec", list(Codec))
def test_the_newest_value_of_each_key_stays_where_it_was(rig, log, codec):
    fill(log, 200, keys=12, codec=codec)
    before, offsets = latest(log), {r.key: r.offset for r in records(log)}
    end, size = log.log_end_offset, log.size
    first_active = log.segments[-1].base_offset
    done = compact(flushed(log, rig.files), rig.files, NOW)
    assert done.end_offset == first_active
    assert latest(log) == before
    assert {r.key: r.offset for r in records(log)} == offsets
    below = [r for r in records(log) if r.offset < first_active]
    assert len({r.key for r in below}) == len(below)
    assert log.size < size / 3
    assert (log.log_start_offset, log.log_end_offset) == (0, end)
    assert (done.records_read, done.bytes_kept) == (
        first_active,
        sum(s.size for s in log.segments[:-1]),
    )


def test_small_neighbours_become_one_segment(rig, log):
    fill(log, 200, keys=5)
    boundary, count = log.segments[-1].base_offset, len(log.segments) - 1
    assert count > 5
    for _ in range(2):  # the first round goes by the sizes that were
        compact(flushed(log, rig.files), rig.files, NOW)
        fill(log, 50, keys=5, seed=2)
    assert [s.base_offset for s in log.segments if s.base_offset < boundary] == [0]


def test_indexes_of_a_new_segment_are_what_a_rebuild_gives(rig, log):
    fill(log, 300, keys=100)
    log.config = LARGE
    compact(flushed(log, rig.files), rig.files, NOW)
    for segment in log.segments[:-1]:
        entries = [segment.offset_index[n] for n in range(len(segment.offset_index))]
        times = [segment.time_index[n] for n in range(len(segment.time_index))]
        largest = segment.max_timestamp, segment.max_timestamp_offset
        assert len(entries) > 20
        segment.offset_index.truncate(0)
        segment.time_index.truncate(0)
        segment.restore(verify=True)
        segment.finish()
        assert entries == [segment.offset_index[n] for n in range(len(segment.offset_index))]
        assert times == [segment.time_index[n] for n in range(len(segment.time_index))]
        assert largest == (segment.max_timestamp, segment.max_timestamp_offset)


def test_every_offset_and_time_is_found_as_before_or_behind_the_gap(rig, log):
    fill(log, 100, keys=30)
    compact(flushed(log, rig.files), rig.files, NOW)
    left = records(log)
    for offset in range(log.log_end_offset):
        piece = log.read(offset, 1)
        expected = next(h for h, _ in batches(log) if h.last_offset >= offset)
        assert isinstance(piece, FileSlice)
        assert int.from_bytes(piece.read()[:8], "big") == expected.base_offset
        found = by_time(log, NOW + offset)
        assert found.offset == next(r.offset for r in left if r.timestamp >= NOW + offset)
    assert youngest(log).offset == left[-1].offset


def test_a_fetch_under_way_reads_what_it_was_promised(rig, log):
    fill(log, 100, keys=3)
    piece = log.read(0, 1500)
    before = piece.read()
    compact(flushed(log, rig.files), rig.files, NOW)
    remove(rig.files, rig.trash.take_due(NOW))
    assert piece.read() == before
    assert not rig.names(".deleted")


def test_tombstones_go_when_their_time_is_over_and_their_keys_stay_deleted(rig, log):
    write(log, (b"a", b"1"), (b"b", b"2"))
    write(log, (b"a", None))
    fill(log, 60, keys=3)
    compact(flushed(log, rig.files), rig.files, NOW)
    assert [r.value for r in records(log) if r.key == b"a"] == [None]
    fill(log, 60, keys=3)
    compact(flushed(log, rig.files), rig.files, NOW + 999)
    assert [r.value for r in records(log) if r.key == b"a"] == [None]
    fill(log, 60, keys=3)
    compact(flushed(log, rig.files), rig.files, NOW + 1000)
    assert [r.value for r in records(log) if r.key == b"a"] == []
    assert latest(log)[b"b"] == b"2"


def test_a_round_goes_as_far_as_its_map_reaches_and_the_next_one_on_from_there(rig, log):
    fill(log, 300, keys=60)
    before, settings = latest(log), msgspec.structs.replace(SETTINGS, map_bytes=24 * 20)
    ends = []
    while done := compact(flushed(log, rig.files), rig.files, NOW, settings=settings):
        assert done.map_utilization <= 1
        ends.append(done.end_offset)
        assert latest(log) == before
    assert ends == sorted(set(ends))
    assert len(ends) > 5
    below = [r for r in records(log) if r.offset < log.segments[-1].base_offset]
    assert len({r.key for r in below}) == len(below)


def test_a_batch_with_more_keys_than_the_map_holds_cannot_be_compacted(rig, log):
    write(log, *((b"%d" % n, b"") for n in range(40)))
    fill(log, 50, keys=3)
    settings = msgspec.structs.replace(SETTINGS, map_bytes=24 * 20)
    with pytest.raises(Uncleanable, match=r"more keys than the 18 that log\.cleaner\.dedupe"):
        compact(flushed(log, rig.files), rig.files, NOW, settings=settings)
    assert len(records(log)) == 90


def test_an_idempotent_producer_goes_on_after_its_records_are_gone(rig, log):
    for n in range(3):
        write(log, (b"k", b"%d" % n), producer=ProducerStamp(7, 0, n))
    fill(log, 60, keys=1)
    write(log, (b"k", b"newer"))
    fill(log, 60, keys=1)
    write(log, (b"k", b"newest"))
    compact(flushed(log, rig.files), rig.files, NOW)
    kept = [(h, found) for h, found in batches(log) if h.producer_id == 7]
    assert [(h.base_sequence, found) for h, found in kept] == [(2, [])]
    rig.close(log)
    for name in rig.names(".snapshot"):
        rig.files.remove(f"{rig.directory}/{name}")
    log = rig.open(CONFIG, clean=False)
    assert write(log, (b"k", b"2"), producer=ProducerStamp(7, 0, 2)).duplicate
    assert not write(log, (b"k", b"3"), producer=ProducerStamp(7, 0, 3)).duplicate


def test_the_end_of_the_cleaned_part_stays_a_batch_boundary(rig, log):
    fill(log, 40, keys=1)
    write(log, (b"other", b""))
    fill(log, 20, keys=1, seed=3)
    compact(flushed(log, rig.files), rig.files, NOW)
    boundary = log.segments[-1].base_offset
    assert boundary in {header.next_offset for header, _ in batches(log)}


def test_a_log_is_right_after_a_restart_of_any_kind(rig, log):
    fill(log, 200, keys=7)
    compact(flushed(log, rig.files), rig.files, NOW)
    fill(log, 20, keys=7)
    before, end = [(r.offset, r.value) for r in records(log)], log.log_end_offset
    first_dirty = log.first_dirty_offset
    rig.flush(log)
    for known in (
        {"recovery_point": end},
        {"recovery_point": first_dirty},
        {"first_dirty_offset": first_dirty},
        {"gaps_are_damage": False},
    ):
        log = rig.open(CONFIG, clean=False, **known)
        assert [(r.offset, r.value) for r in records(log)] == before
        assert log.log_end_offset == end
    rig.close(log)
    log = rig.open(CONFIG)
    assert [(r.offset, r.value) for r in records(log)] == before


def test_what_is_not_durable_or_not_committed_is_left_alone(rig, log):
    fill(log, 100, keys=2)
    assert compact(log, rig.files, NOW) is None
    assert compact(flushed(log, rig.files), rig.files, NOW, committed_end=3) is None
    boundary = log.segments[3].base_offset
    assert compact(log, rig.files, NOW, committed_end=boundary + 1).end_offset == boundary


def test_segments_that_changed_meanwhile_are_not_replaced(rig, log):
    fill(log, 100, keys=2)
    bases = [segment.base_offset for segment in log.segments]
    assert not log.begin_swap(bases, 0)  # the active one is among them
    assert not log.begin_swap([bases[0], bases[2]], 0)
    assert not log.begin_swap([bases[0] + 1], 0)
    rig.truncate(log, bases[-2])
    assert not log.begin_swap(bases[:2], 0)
    assert log.begin_swap(bases[:2], 1)
    assert not log.begin_swap(bases[:2], 1)  # already held
    log.delete_records_before(log.log_end_offset)
    assert retain(log, NOW, log.log_end_offset) == 0


def test_truncation_makes_dirty_what_is_behind_it(rig, log):
    fill(log, 100, keys=2)
    compact(flushed(log, rig.files), rig.files, NOW)
    assert log.first_dirty_offset == log.segments[-1].base_offset
    rig.truncate(log, 30)
    assert log.first_dirty_offset == log.log_end_offset <= 30


def test_a_damaged_batch_is_not_given_a_new_checksum(rig, log):
    fill(log, 60, keys=1)
    log = flushed(log, rig.files)
    log.segments[0].file.pwrite(b"\xff", log.segments[0].size - 1)
    with pytest.raises(Uncleanable, match="no whole valid batch at position"):
        compact(log, rig.files, NOW)


def test_a_round_that_changes_nothing_replaces_nothing(rig, log):
    for n in range(40):
        write(log, (b"%d" % n, bytes(50)))
    log = flushed(log, rig.files)
    before = log.segments[:-1]
    done = compact(log, rig.files, NOW)
    assert done.bytes_read == done.bytes_kept
    assert log.segments[: len(before)] == before
    assert not rig.names(".cleaned")


def test_a_new_segment_is_as_old_as_the_youngest_it_was_made_from(rig, log):
    fill(log, 60, keys=1)
    log = flushed(log, rig.files)
    for number, segment in enumerate(log.segments):
        rig.files.set_modified(segment.log_path, 1_000_000_000_000 + number)
    count = len(log.segments) - 1
    log.config = LARGE
    compact(log, rig.files, NOW)
    assert len(log.segments) == 2
    status = rig.files.status(log.segments[0].log_path)
    assert status.modified_ms == 1_000_000_000_000 + count - 1


def test_snapshots_of_merged_segments_go_with_them(rig, log):
    fill(log, 60, keys=1)
    log = flushed(log, rig.files)
    compact(log, rig.files, NOW)
    bases = {segment.base_offset for segment in log.segments}
    assert {int(name[:20]) for name in rig.names(".snapshot")} <= bases
