"""A time index that ends in zeros (Kafka's preallocation, a power loss), or is otherwise not true.

The log decides, not the index.
"""

from collections.abc import Callable
from pathlib import Path

import pytest
from logfleet.log.config import LogConfig
from logfleet.log.partition_log import PartitionLog
from logfleet.log.segments.index_entries import TIME_ENTRY
from logfleet.records.record import Record, build_batch
from logfleet.types import LeaderEpoch

from broker_image.tests.unit.log.log_rig import LogRig
from broker_image.tests.unit.log.retaining import retain
from broker_image.tests.unit.log.searching import by_time, youngest

NOW = 1_700_000_000_000
HOUR = 3_600_000
CONFIG = LogConfig(segment_bytes=8192, index_interval_bytes=300, retention_ms=HOUR)
RECORDS = 300


def append_all(log: PartitionLog) -> None:
    """Records of the last minutes, a second apart, some of them late."""
    for number in range(RECORDS):
        timestamp = NOW - HOUR // 4 + 1000 * (number - 40 * (number % 7 == 3))
        log.append_as_leader(build_batch([Record(None, bytes(60), timestamp)]), LeaderEpoch(0), NOW)


def preallocated(path: Path) -> None:
    with path.open("r+b") as file:
        file.truncate(10 * 1024 * 1024 // 12 * 12)


def zeros_only(path: Path) -> None:
    path.write_bytes(bytes(path.stat().st_size))


def one_zero_entry(path: Path) -> None:
    path.write_bytes(bytes(12))


def no_tail(path: Path) -> None:
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 24 * 12])


def emptied(path: Path) -> None:
    path.write_bytes(b"")


def of_long_ago(path: Path) -> None:
    entries = TIME_ENTRY.iter_unpack(path.read_bytes())
    path.write_bytes(b"".join(TIME_ENTRY.pack(time - 9 * HOUR, at) for time, at in entries))


def beyond_the_segment(path: Path) -> None:
    path.write_bytes(path.read_bytes() + TIME_ENTRY.pack(NOW * 2, 2**31 - 1))


def before_the_segment(path: Path) -> None:
    path.write_bytes(path.read_bytes() + TIME_ENTRY.pack(NOW * 2, -5))


DAMAGES = [
    preallocated,
    zeros_only,
    one_zero_entry,
    no_tail,
    emptied,
    of_long_ago,
    beyond_the_segment,
    before_the_segment,
]


@pytest.fixture(params=DAMAGES, ids=lambda each: each.__name__)
def rig(request, tmp_path) -> LogRig:
    """A log that was closed in order; then all its time indexes were damaged."""
    rig = LogRig(str(tmp_path))
    log = rig.open(CONFIG, now_ms=NOW)
    append_all(log)
    assert len(log.segments) > 3
    rig.close(log)
    damage(rig, request.param)
    return rig


def damage(rig: LogRig, how: Callable[[Path], None]) -> None:
    for name in rig.names(".timeindex"):
        how(Path(rig.directory) / name)
    if how is preallocated:  # Kafka makes both so
        for name in rig.names(".index"):
            how(Path(rig.directory) / name)


def test_no_young_record_is_deleted(rig: LogRig) -> None:
    log = rig.open(CONFIG, now_ms=NOW)
    assert retain(log, NOW, RECORDS) == 0
    assert log.log_start_offset == 0


def test_what_is_old_is_deleted_none_the_less(rig: LogRig) -> None:
    log = rig.open(CONFIG, now_ms=NOW)
    assert retain(log, NOW + 9 * HOUR, RECORDS) > 3
    assert log.log_start_offset == RECORDS


def test_records_are_found_by_time_as_before(rig: LogRig, tmp_path: Path) -> None:
    other = LogRig(str(tmp_path / "sound"))
    sound = other.open(CONFIG, now_ms=NOW)
    append_all(sound)
    log = rig.open(CONFIG, now_ms=NOW)
    for timestamp in range(NOW - HOUR, NOW + HOUR, 17_300):
        assert by_time(log, timestamp) == by_time(sound, timestamp)
    assert youngest(log) == youngest(sound)


def test_the_log_goes_on_with_a_true_index(rig: LogRig) -> None:
    log = rig.open(CONFIG, now_ms=NOW)
    append_all(log)
    rig.close(log)
    again = rig.open(CONFIG, now_ms=NOW)
    active = again.segments[-1]
    times = [entry[0] for entry in active.time_index]
    assert times == sorted(set(times))
    assert active.max_timestamp == max(header.max_timestamp for _, header in active.headers())
