"""PartitionLog.written_end_offset: what of a log is in its files while the disk is held up."""

import asyncio
import random
from collections import Counter
from pathlib import Path

import pytest
from logfleet.io.files import PosixFile
from logfleet.log.directories.disk import HOLD_S_MAX, SLOW_S, WAITING_BYTES_MAX, DiskBusy
from logfleet.log.segments.segment import Segment
from logfleet.log.segments.valid_batches import scan_batches
from logfleet.records.batch import assign_offsets, iterate_headers
from logfleet.records.record import Record, build_batch
from logfleet.types import FILE_START, LeaderEpoch

from broker_image.tests.unit.log.directories import test_disk
from broker_image.tests.unit.log.directories.test_disk import Directory, SlowFiles
from broker_image.tests.unit.log.log_rig import LogRig, truncate

NOW = 1_700_000_000_000

pytestmark = pytest.mark.asyncio
clock, slow = test_disk.clock, test_disk.slow


def lead(log, count=1):
    for _ in range(count):
        log.append_as_leader(build_batch([Record(None, bytes(50), NOW)]), 0, NOW)


def follow(log, count=1):
    records = b""
    for offset in range(log.log_end_offset, log.log_end_offset + count):
        batch = build_batch([Record(None, bytes(50), NOW)])
        assign_offsets(batch, offset, LeaderEpoch(0))
        records += bytes(batch)
    log.append_as_follower(memoryview(records), 0, NOW)


class Held:
    """A log whose disk is held up once `hold_up` was called."""

    def __init__(self, path, slow: SlowFiles) -> None:
        self.slow = slow
        rig = LogRig(str(path), slow)
        self.log = rig.open()
        self.disk = self.log.disk

    def hold_up(self) -> None:
        self.slow.takes_s = 2 * SLOW_S
        lead(self.log)
        self.slow.takes_s = 0.0
        assert self.disk.is_held_up

    written = Directory.written


@pytest.fixture
def held(tmp_path, slow) -> Held:
    return Held(tmp_path, slow)


@pytest.mark.parametrize("append", [lead, follow])
async def test_what_waits_for_a_held_up_disk_is_not_written(held, slow, append) -> None:
    append(held.log, 3)
    assert held.log.written_end_offset == 3
    held.hold_up()
    assert held.log.written_end_offset == 4, "the slow write itself is done"
    slow.gate.clear()
    append(held.log)
    append(held.log, 7)
    assert (held.log.written_end_offset, held.log.log_end_offset) == (4, 12)
    told: list[int] = []
    held.disk.when_written(lambda: told.append(held.log.written_end_offset))
    slow.gate.set()
    await held.written()
    assert told == [12]
    assert held.log.written_end_offset == 12


async def test_a_reader_that_names_no_end_gets_what_is_written(held, slow) -> None:
    """As followers: a killed leader would have less than they, if they got the rest."""

    def bases(offset, end_offset=None):
        piece = held.log.read(offset, 1 << 20, end_offset)
        return piece and [header.base_offset for _, header in iterate_headers(piece.read())]

    held.hold_up()
    slow.gate.clear()
    lead(held.log, 2)
    assert (bases(0), bases(1)) == ([0], None)
    assert bases(0, 3) == [0, 1, 2]
    slow.gate.set()
    await held.written()
    assert bases(0) == [0, 1, 2]


async def test_a_log_that_goes_on_at_a_later_offset_is_written_that_far(held) -> None:
    held.hold_up()
    lead(held.log)
    held.log.skip_to(10, NOW)
    assert held.log.written_end_offset == 1
    await held.written()
    assert held.log.written_end_offset == held.log.log_end_offset == 10


async def test_it_moves_with_each_write_and_never_back(held, slow) -> None:
    held.hold_up()
    seen = [held.log.written_end_offset]
    for _ in range(200):
        lead(held.log)
        seen.append(held.log.written_end_offset)
        if len(seen) % 7 == 0:
            await asyncio.sleep(0)
            seen.append(held.log.written_end_offset)
    await held.written()
    assert seen == sorted(seen)
    assert held.log.written_end_offset == held.log.log_end_offset == 201


async def test_it_is_what_the_file_has_as_the_thread_begins_and_ends_to_write(
    held, slow, clock
) -> None:
    dice, held_up = random.Random(3), Counter[bool]()
    lead(held.log)
    file = Path(held.log.segments[0].log_path)
    batch_bytes, before = file.stat().st_size, 0
    for _ in range(600):
        is_held_up = held.disk.is_held_up
        held_up[is_held_up] += 1
        match dice.randrange(8):
            case 0 if not is_held_up:
                held.hold_up()
            case 1 | 2:
                clock.seconds += HOLD_S_MAX + 1
            case 3 | 4:
                await asyncio.sleep(0)
            case 5:
                await held.written()
            case _:
                lead(held.log, dice.randrange(4))
        now = held.log.written_end_offset
        assert before <= now <= file.stat().st_size // batch_bytes
        assert held.disk.is_held_up or now == held.log.log_end_offset
        before = now
    await held.written()
    headers = [
        header
        for _, header in scan_batches(
            PosixFile(str(file)).pread, FILE_START, file.stat().st_size, next_offset=0, verify=True
        )
    ]
    assert [header.base_offset for header in headers] == list(range(held.log.log_end_offset))
    assert min(held_up.values()) > 100, held_up


async def test_a_callback_from_before_a_truncation_is_ignored(held, slow) -> None:
    lead(held.log, 3)
    held.hold_up()
    slow.gate.clear()
    lead(held.log, 2)
    slow.gate.set()
    held.disk.drain()  # in this step: the loop has not heard of it yet
    truncate(held.log, 2)
    assert held.log.written_end_offset == 2
    slow.gate.clear()
    lead(held.log, 9)
    for _ in range(3):
        await asyncio.sleep(0)
    assert held.log.written_end_offset <= 2
    slow.gate.set()
    await held.written()
    assert held.log.written_end_offset == 11


async def test_a_truncation_that_failed_does_not_end_the_waiting(held, slow) -> None:
    held.hold_up()
    slow.gate.clear()
    lead(held.log, 3)
    truncation = held.log.begin_truncation(2, NOW, empties=False)
    truncation.find()
    held.log.lower_end(truncation.end_offset)
    held.log.abandon_truncation()
    slow.gate.set()
    await held.written()
    assert held.log.written_end_offset == held.log.log_end_offset == 4


async def test_a_follower_takes_no_more_than_may_wait(held, slow, monkeypatch) -> None:
    monkeypatch.setattr("logfleet.log.directories.disk.WAITING_BYTES_MAX", 5_000)
    assert WAITING_BYTES_MAX > 5_000
    held.hold_up()
    slow.gate.clear()
    follow(held.log)
    follow(held.log, 2)
    with pytest.raises(DiskBusy):
        follow(held.log)
    assert held.log.log_end_offset == 4
    slow.gate.set()
    await held.written()


async def test_batches_accounted_before_an_error_are_waited_for(held, slow, monkeypatch) -> None:
    held.hold_up()
    slow.gate.clear()
    note, count = Segment.account, [2]

    def failing(segment, header, base_offset):
        count[0] -= 1
        if count[0] == 0:
            raise OSError(5, "bad sector")
        note(segment, header, base_offset)

    monkeypatch.setattr(Segment, "account", failing)
    monkeypatch.setattr(Segment, "_give_up", lambda *_: None)
    with pytest.raises(OSError, match="bad sector"):
        follow(held.log, 2)
    assert (held.log.written_end_offset, held.log.log_end_offset) == (1, 2)
    slow.gate.set()
    await held.written()
