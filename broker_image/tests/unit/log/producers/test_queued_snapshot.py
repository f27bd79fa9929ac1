"""A roll on a held-up disk: its producer snapshot is the disk's thread's work, not the loop's."""

import asyncio
from pathlib import Path

import pytest
import pytest_asyncio
from logfleet.io.files import write_file
from logfleet.log.config import LogConfig
from logfleet.log.directories.disk import SLOW_S
from logfleet.log.names import SNAPSHOT
from logfleet.log.producers import history, queued_snapshot
from logfleet.records.record import ProducerStamp, Record, build_batch
from logfleet.types import LeaderEpoch

from broker_image.tests.unit.log.directories import test_disk
from broker_image.tests.unit.log.directories.test_disk import SlowFiles
from broker_image.tests.unit.log.log_rig import LogRig, truncate
from broker_image.tests.unit.log.retaining import retain

NOW = 1_700_000_000_000
SMALL = LogConfig(segment_bytes=500, index_interval_bytes=100, file_delete_delay_ms=0)
PER_SEGMENT = 3

pytestmark = pytest.mark.asyncio
clock, slow = test_disk.clock, test_disk.slow


class Held:
    """A log of small segments whose disk is held up, with two of them; its thread cannot write."""

    def __init__(self, path: Path, slow: SlowFiles) -> None:
        self.slow = slow
        self.rig = LogRig(str(path), slow)
        self.log = self.rig.open(SMALL)
        self.disk = self.log.disk
        self.failures: list[OSError] = []
        self.disk.on_failure = lambda _, error: self.failures.append(error)
        self.send(1)
        slow.takes_s = 2 * SLOW_S
        self.send(1)
        slow.takes_s = 0.0
        assert self.disk.is_held_up
        slow.gate.clear()
        self.send(PER_SEGMENT)
        assert len(self.log.segments) == 2

    def send(self, count: int) -> None:
        for _ in range(count):
            stamp = ProducerStamp(7, 0, self.log.log_end_offset)
            batch = build_batch([Record(None, b"\xaa" * 60, NOW)], producer=stamp)
            self.log.append_as_leader(batch, LeaderEpoch(0), NOW)

    @property
    def snapshots(self) -> list[int]:
        return [int(name.removesuffix(SNAPSHOT)) for name in self.rig.names(SNAPSHOT)]

    async def written(self) -> None:
        """All that waits now is written, and the loop knows it."""
        written = asyncio.Event()
        self.disk.when_written(written.set)
        await written.wait()


@pytest_asyncio.fixture
async def held(tmp_path: Path, slow: SlowFiles) -> Held:
    """Nothing below waits for the gate but the disk's thread: the loop would wait for ever."""
    return Held(tmp_path, slow)


async def test_the_loop_goes_on_and_the_thread_writes_it(held: Held, slow: SlowFiles) -> None:
    base = held.log.segments[-1].base_offset
    assert held.snapshots == []
    slow.gate.set()
    await held.written()
    assert held.snapshots == [base] == sorted(held.log.producers.offsets)
    held.send(2)
    await held.written()
    again = held.rig.open(SMALL, clean=False)
    found, expected = (each.producers.states.get(7) for each in (again, held.log))
    assert found is not None
    assert expected is not None
    assert found.last_sequence == expected.last_sequence == held.log.log_end_offset - 1


async def test_it_removes_those_that_it_supersedes_only_once_it_is_there(
    held: Held, slow: SlowFiles
) -> None:
    slow.gate.set()
    await held.written()
    between = held.log.log_end_offset
    assert between not in {segment.base_offset for segment in held.log.segments}
    held.log.producers.write(held.log.segments, between)
    slow.gate.clear()
    held.send(PER_SEGMENT)
    assert between in held.snapshots
    slow.gate.set()
    await held.written()
    assert between not in held.snapshots
    assert held.snapshots == [segment.base_offset for segment in held.log.segments[1:]]


async def test_a_truncation_waits_for_it_and_then_removes_it(held: Held, slow: SlowFiles) -> None:
    cutting = asyncio.get_running_loop().run_in_executor(None, truncate, held.log, 2)
    await asyncio.sleep(0)
    slow.gate.set()
    await cutting
    await held.written()
    assert held.snapshots == []
    held.send(PER_SEGMENT + 1)
    await held.written()
    assert held.rig.open(SMALL, clean=False).producers.states.get(7) is not None


async def test_that_of_a_removed_segment_is_not_written(held: Held, slow: SlowFiles) -> None:
    held.send(PER_SEGMENT)
    oldest = held.log.segments[1].base_offset
    held.log.delete_records_before(held.log.segments[2].base_offset)
    retain(held.log, NOW, held.log.log_end_offset)
    slow.gate.set()
    await held.written()
    assert held.log.segments[0].base_offset > oldest
    assert held.snapshots == [segment.base_offset for segment in held.log.segments]


async def test_it_does_not_come_into_another_log_of_the_same_name(
    held: Held, slow: SlowFiles, tmp_path: Path
) -> None:
    (tmp_path / "topic-0").rename(tmp_path / "left")
    held.log.drop_files()
    (tmp_path / "topic-0").mkdir()
    slow.gate.set()
    await held.written()
    assert held.snapshots == []
    assert not list((tmp_path / "left").glob(f"*{SNAPSHOT}"))
    assert held.failures == []


async def test_one_begun_before_the_directory_left_is_removed_again(
    held: Held, slow: SlowFiles, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The thread has seen that it is wanted, and writes it once a new directory is there."""
    real = write_file

    def writing(*args: object, **kwargs: object) -> None:
        (tmp_path / "topic-0").rename(tmp_path / "left")
        held.log.producers.drop_queued()
        (tmp_path / "topic-0").mkdir()
        real(*args, **kwargs)  # type: ignore[arg-type]

    monkeypatch.setattr(queued_snapshot, "write_file", writing)
    slow.gate.set()
    await held.written()
    assert held.snapshots == []
    assert held.failures == []


async def test_without_its_directory_it_is_no_failure(
    held: Held, slow: SlowFiles, tmp_path: Path
) -> None:
    (tmp_path / "topic-0").rename(tmp_path / "left")
    slow.gate.set()
    await held.written()
    assert held.failures == []


async def test_with_too_many_producers_the_next_flush_writes_it(
    held: Held, slow: SlowFiles, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(history, "PRODUCERS_AT_ROLL_MAX", 0)
    slow.gate.set()
    await held.written()
    before = held.snapshots
    held.send(PER_SEGMENT)
    await held.written()
    assert held.snapshots == before
    assert held.log.producers.is_due
