"""Searches by time while the log goes on.

What is found where nothing happens is shown by test_partition_log.
"""

import asyncio
import errno
import itertools
from collections.abc import Callable, Coroutine, Iterator
from functools import partial
from typing import Any

import msgspec
import pytest
from logfleet.log.config import LogConfig
from logfleet.log.partition_log import PartitionLog
from logfleet.log.search import first_record_since, record_of_largest_timestamp
from logfleet.records.record import Record, build_batch

from broker_image.tests.sim.disk import SimDisk
from broker_image.tests.unit.log.compaction.compaction_rig import append, compact, flushed, records
from broker_image.tests.unit.log.log_rig import LogRig

NOW = 1_700_000_000_000
CONFIG = LogConfig(
    segment_bytes=500, index_interval_bytes=100, cleanup_policy=frozenset({"compact", "delete"})
)
RECORDS = 60
KEYS = 7

Search = Callable[[PartitionLog, Any], Coroutine[Any, Any, Any]]


def rising(offset: int) -> int:
    return NOW + offset


def hill(offset: int) -> int:
    """The youngest record is one of the first."""
    return NOW - abs(offset - 5)


def written(log: PartitionLog, count: int, time_of: Callable[[int], int]) -> None:
    for number in range(count):
        record = Record(b"%d" % (number % KEYS), bytes(100), time_of(log.log_end_offset))
        append(log, build_batch([record]), NOW)


def started(time_of: Callable[[int], int] = rising) -> PartitionLog:
    """Some segments as after a start: none of their times is cached."""
    rig = LogRig("/data", SimDisk(seed=1))
    log = rig.open(CONFIG)
    written(log, RECORDS, time_of)
    rig.close(log)
    found: PartitionLog = flushed(rig.open(CONFIG, recovery_point=RECORDS), rig.files)
    return found


def known(log: PartitionLog) -> PartitionLog:
    """The same log, after somebody has looked for a time."""
    assert all(segment.max_timestamp for segment in log.segments)
    return log


def expire(log: PartitionLog) -> None:
    """The oldest segments go."""
    log.config = msgspec.structs.replace(CONFIG, retention_bytes=2000)
    assert log.apply_retention(NOW, log.log_end_offset)


def delete_records(log: PartitionLog) -> None:
    log.delete_records_before(log.log_start_offset + 13)


def clean(log: PartitionLog) -> None:
    """Compacted segments take the place of the old ones, under the name of the first."""
    compact(log, log.files, NOW)


def roll(log: PartitionLog) -> None:
    """What is appended makes new segments."""
    written(log, 8, rising)


def since(timestamp: int) -> Search:
    return lambda log, run_in_thread: first_record_since(log, timestamp, run_in_thread)


class Interruption:
    """Something that happens to the log as the thread is asked for the `turn`th time.

    Before it reads anything, or after.
    """

    def __init__(self, change: Callable[[], None], turn: int, *, is_after: bool) -> None:
        self.has_happened = False
        self._change = change
        self._left = turn
        self._is_after = is_after

    async def run_in_thread(self, work: Callable[..., Any], *args: object) -> Any:
        self._left -= 1
        if self._left == 0 and not self._is_after:
            self.happen()
        found = work(*args)
        if self._left == 0 and self._is_after:
            self.happen()
        return found

    def happen(self) -> None:
        self.has_happened = True
        self._change()


def interrupted(
    start: Callable[[], PartitionLog], search: Search, change: Callable[[PartitionLog], None]
) -> Iterator[tuple[Any, PartitionLog]]:
    """Each result, and the log from `start`, with `change` at each possible moment."""
    for is_after in (False, True):
        for turn in itertools.count(1):
            log = start()
            interruption = Interruption(partial(change, log), turn, is_after=is_after)
            found = asyncio.run(search(log, interruption.run_in_thread))
            if not interruption.has_happened:
                assert turn > 1
                break
            yield found, log


def place(found: Any) -> Any:
    return found and (found.offset, found.timestamp)


@pytest.fixture(autouse=True)
def few_at_once(monkeypatch) -> None:
    monkeypatch.setattr("logfleet.log.search.SEGMENTS_AT_ONCE", 3)


@pytest.mark.parametrize("change", [expire, delete_records, clean, roll])
@pytest.mark.parametrize("wanted", [0, 14, 30, 59])
@pytest.mark.parametrize("start", [started, lambda: known(started())], ids=["new", "known"])
def test_what_is_found_by_time_is_there_whatever_happened_to_the_log_meanwhile(
    start, wanted, change
) -> None:
    for found, log in interrupted(start, since(NOW + wanted), change):
        left = ((each.offset, each.timestamp) for each in records(log))
        assert place(found) == next((each for each in left if each[1] >= NOW + wanted), None)


@pytest.mark.parametrize("change", [expire, clean])
def test_the_youngest_record_is_found_whatever_happened_to_the_log_meanwhile(change) -> None:
    for found, log in interrupted(partial(started, hill), record_of_largest_timestamp, change):
        assert place(found) == place(max(records(log), key=lambda each: each.timestamp))


@pytest.mark.parametrize(
    "search", [since(NOW + 30), record_of_largest_timestamp], ids=["since", "youngest"]
)
def test_an_error_under_unchanged_segments_is_raised(search) -> None:
    async def run_in_thread(*_: object) -> Any:
        raise OSError(errno.EIO, "bad sector")

    with pytest.raises(OSError, match="bad sector"):
        asyncio.run(search(started(), run_in_thread))
