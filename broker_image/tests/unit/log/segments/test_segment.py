from pathlib import Path
from typing import Any

import pytest
from logfleet.io.files import PosixFiles
from logfleet.log.segments.index_entries import OFFSET_ENTRY
from logfleet.log.segments.open_files import OpenFiles
from logfleet.log.segments.segment import Segment, segment_number
from logfleet.records.batch import parse_header
from logfleet.records.record import Record, build_batch

NOW = 1_700_000_000_000


@pytest.fixture
def directory(tmp_path):
    return str(tmp_path)


def new(directory, base_offset=100):
    return Segment.create(
        OpenFiles(PosixFiles()), directory, base_offset, interval_bytes=300, created_ms=NOW
    )


def reopened(segment, directory):
    size = PosixFiles().status(segment.log_path).size
    return Segment(
        OpenFiles(PosixFiles()),
        directory,
        segment.base_offset,
        size=size,
        interval_bytes=300,
        created_ms=NOW,
    )


def fill(segment, count, start=100, *, timestamps=None):
    for number in range(count):
        timestamp = timestamps[number] if timestamps else NOW + number
        batch = build_batch(
            [Record(None, bytes(60), timestamp)] * 2, base_offset=start + 2 * number
        )
        segment.append(batch, parse_header(batch), start + 2 * number)


def test_every_offset_is_found_in_its_batch(directory):
    segment = new(directory)
    fill(segment, 50)
    positions = {header.base_offset: position for position, header in segment.headers()}
    for offset in range(100, 200):
        assert segment.position_of(offset) == positions[offset - offset % 2]
    assert segment.position_of(200) == segment.size
    assert segment.position_of(0) == 0


def damage_position(segment, number, position):
    """Put another position into one of the index's entries on the disk."""
    path = Path(segment.offset_index.path)
    entries = list(OFFSET_ENTRY.iter_unpack(path.read_bytes()))
    entries[number] = (entries[number][0], position)
    path.write_bytes(b"".join(OFFSET_ENTRY.pack(*entry) for entry in entries))


@pytest.mark.parametrize("position", [-(2**31), -1, 2**31 - 1])
@pytest.mark.parametrize("number", [0, 7, -1])
def test_an_index_that_leads_out_of_the_segment_is_rebuilt(directory, number, position):
    segment = new(directory)
    fill(segment, 50)
    segment.finish()
    positions = {header.base_offset: position for position, header in segment.headers()}
    entries = list(segment.offset_index)
    damage_position(segment, number, position)
    found = reopened(segment, directory)
    for offset in range(100, 200):
        assert found.position_of(offset) == positions[offset - offset % 2]
    assert list(found.offset_index) == entries
    found.finish()
    assert list(reopened(segment, directory).offset_index) == entries
    damage_position(segment, number, position)
    found = reopened(segment, directory)
    for at in range(segment.size):
        boundary = found.boundary_before(at)
        assert boundary <= at
        assert boundary in positions.values()


def test_a_last_index_entry_that_leads_before_the_segment_is_no_error_at_a_start(directory):
    segment = new(directory)
    fill(segment, 50)
    segment.finish()
    entries = list(segment.offset_index)
    damage_position(segment, -1, -5)
    found = reopened(segment, directory)
    assert found.restore(verify=False) == 200
    assert list(found.offset_index) == entries


def test_a_readers_next_position_is_cached_until_it_is_cut_off(directory):
    segment = new(directory)
    fill(segment, 200)
    positions = {header.base_offset: position for position, header in segment.headers()}
    for position in positions.values():
        segment.add_resumption(position)
    with pytest.raises(FileNotFoundError):  # the first ones were forgotten for later ones
        move_away(segment, lambda: segment.position_of(102))
    last = 100 + 2 * 199
    assert move_away(segment, lambda: segment.position_of(last)) == positions[last]
    assert all(segment.position_of(offset) == at for offset, at in positions.items())
    segment.truncate(positions[last])
    assert (segment.position_of(last), segment.size) == (positions[last], positions[last])
    fill(segment, 1, start=last + 4)
    assert segment.position_of(last) == positions[last], "the first batch with a later offset"


def move_away(segment, call):
    """What `call` gives while nothing can be read from the log."""
    path = Path(segment.log_path)
    hidden = path.rename(path.with_suffix(".hidden"))
    segment._files.drop(segment.log_path)
    try:
        return call()
    finally:
        hidden.rename(path)
        segment._files.drop(segment.log_path)


def test_boundaries_are_batches_beginnings(directory):
    segment = new(directory)
    fill(segment, 50)
    beginnings = {position for position, _ in segment.headers()}
    for position in range(0, segment.size, 37):
        boundary = segment.boundary_before(position)
        assert boundary in beginnings
        assert position - 700 < boundary <= position
    assert segment.boundary_before(segment.size + 5) == segment.size


def test_a_finished_segment_loads_without_reading_its_log(directory):
    segment = new(directory)
    fill(segment, 20, timestamps=[NOW + n % 7 for n in range(20)])
    segment.finish()
    again = reopened(segment, directory)
    assert (again.max_timestamp, again.max_timestamp_offset) == (NOW + 6, 113)
    assert again.size == segment.size
    assert again.as_active().first_timestamp == NOW
    assert again.largest_timestamp() == NOW + 6


def test_leftovers_of_the_same_name_do_not_come_back(directory):
    segment = new(directory)
    fill(segment, 50)
    segment.finish()
    again = new(directory)
    assert (again.size, len(again.offset_index), len(again.time_index)) == (0, 0, 0)
    assert again.file.size() == 0
    fill(again, 3)
    again.finish()
    assert reopened(again, directory).restore(verify=True) == 106


def test_an_index_that_leads_astray_is_not_followed(directory):
    segment = new(directory)
    fill(segment, 50)
    segment.finish()
    good = list(segment.offset_index)
    for relative, position in ((99, 5), (98, 10**6), (7, segment.size - 100)):
        astray = reopened(segment, directory)
        astray.offset_index.truncate(3)
        astray.offset_index.append(relative, position)
        assert astray.restore(verify=False) == 200
        assert astray.size == segment.size
        assert list(astray.offset_index) == good


def test_a_damaged_batch_under_the_last_index_entry_is_not_the_end_of_what_is_before_it(directory):
    segment = new(directory)
    fill(segment, 50)
    segment.finish()
    position = segment.offset_index[-1][1]
    damaged = parse_header(segment.file.pread(61, position))
    segment.file.pwrite(b"\xff", position + 80)
    again = reopened(segment, directory)
    assert again.restore(verify=True, distrust_offset=200) == damaged.base_offset
    assert again.size == position
    assert again.offset_index[-1][1] < position


def test_a_segment_is_found_by_offset():
    class At:
        def __init__(self, base_offset):
            self.base_offset = base_offset

    segments: Any = [At(10), At(20), At(30)]
    found = [segment_number(segments, offset) for offset in (0, 10, 19, 20, 30, 99)]
    assert found == [0, 0, 0, 1, 2, 2]
