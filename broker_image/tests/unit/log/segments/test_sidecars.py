"""A sidecar that is declared, and nothing else, goes wherever its segment goes."""

import msgspec
import pytest
from logfleet.io.files import PosixFiles
from logfleet.log.config import LogConfig
from logfleet.log.directories.trash import remove
from logfleet.log.names import CLEANED, SWAP, offset_file
from logfleet.log.segments import sidecars, swap
from logfleet.log.segments.index_entries import OFFSET_ENTRY, RELATIVE_OFFSET_MAX
from logfleet.log.segments.index_file import IndexFile
from logfleet.log.segments.sidecars import IfMissing, SidecarKind
from logfleet.records.record import ProducerStamp, Record, build_batch

from broker_image.tests.sim.disk import SimDisk
from broker_image.tests.unit.log.compaction.compaction_rig import compact, flushed
from broker_image.tests.unit.log.log_rig import LogRig
from broker_image.tests.unit.log.moves.move_rig import MoveRig
from broker_image.tests.unit.log.retaining import retain

NOW = 1_700_000_000_000
CONFIG = LogConfig(
    segment_bytes=1500,
    index_interval_bytes=300,
    file_delete_delay_ms=0,
    cleanup_policy=frozenset({"compact"}),
)
LARGE = msgspec.structs.replace(CONFIG, segment_bytes=1_000_000)
EVERY_THIRD = 3


class Listing(IndexFile[tuple[int, int]]):
    """(offset of the last record, position) of the batches of some producers, none left out.

    only: the producer id; None for all.
    """

    base_offset = 0
    only: int | None = None

    def add(self, header, base_offset, position):
        last = base_offset + header.last_offset_delta - self.base_offset
        is_wanted = self.only is None or header.producer_id == self.only
        if is_wanted and (len(self) == 0 or last > self[-1][0]):
            self.append(last, position)

    def drop_unsound(self, log_bytes):
        self.keep_sound(first_max=RELATIVE_OFFSET_MAX, second_min=0, second_max=log_bytes)

    def keep_up_to(self, last):
        self.truncate(self.floor(last) + 1 if last >= 0 else 0)

    def copy(self, files):
        copied = super().copy(files)
        copied.base_offset = self.base_offset
        return copied

    def expected(self, segment):
        return [
            (header.last_offset - segment.base_offset, position)
            for position, header in segment.headers()
            if self.only is None or header.producer_id == self.only
        ]


class Marks(Listing):
    """Those of one producer. The file is made with the first entry."""

    only = EVERY_THIRD

    def write(self):
        if len(self) or self._exists():
            super().write()

    def file(self):
        return super().file() if self._exists() else None

    def _exists(self):
        try:
            self._files.files.status(self.path)
        except FileNotFoundError:
            return False
        return True


def kind(cls, suffix, if_missing):
    def opened(files, path, base_offset, is_new):
        made = cls(files, path, OFFSET_ENTRY, written=0 if is_new else -1)
        made.base_offset = base_offset
        return made

    return SidecarKind(suffix, opened, if_missing)


LISTING = kind(Listing, ".listing", IfMissing.READ_SEGMENT)
MARKS = kind(Marks, ".marks", IfMissing.IS_EMPTY)


@pytest.fixture(autouse=True)
def declared(monkeypatch):
    monkeypatch.setattr(sidecars, "KINDS", (*sidecars.KINDS, LISTING, MARKS))


def append(log, count, producers=EVERY_THIRD + 1):
    for _ in range(count):
        offset = log.log_end_offset
        stamp = ProducerStamp(1 + offset % producers, 0, offset // producers)
        record = Record(b"%d" % (offset % 7), b"\xaa" * 50, NOW + offset)
        log.append_as_leader(build_batch([record], producer=stamp), 0, NOW)


def check(log):
    """Each segment's sidecars are what its batches say."""
    for segment in log.segments:
        for sidecar in segment.sidecars.others:
            assert list(sidecar) == sidecar.expected(segment)


def bases(log):
    return [segment.base_offset for segment in log.segments]


def listed(rig, suffix):
    return [int(name.split(".")[0]) for name in rig.names(suffix)]


def test_it_is_made_with_each_segment_and_read_again_after_a_stop(rig):
    log = rig.open(CONFIG)
    append(log, 60)
    assert len(log.segments) > 3
    rig.close(log)
    assert listed(rig, ".listing") == bases(log)
    again = rig.open(CONFIG)
    check(again)
    append(again, 30)
    check(again)


def test_one_that_is_made_with_its_first_entry_is_not_there_before(rig):
    log = rig.open(CONFIG)
    append(log, 2)
    rig.close(log)
    assert (listed(rig, ".listing"), listed(rig, ".marks")) == ([0], [])
    log = rig.open(CONFIG)
    append(log, 2)
    rig.close(log)
    assert listed(rig, ".marks") == [0]


@pytest.mark.parametrize("offset", [0, 1, 17, 30, 44, 45])
def test_a_truncation_cuts_it(rig, offset):
    log = rig.open(CONFIG)
    append(log, 45)
    rig.truncate(log, offset)
    check(log)
    append(log, 20)
    check(log)
    rig.close(log)
    check(rig.open(CONFIG))
    assert listed(rig, ".listing") == bases(log)


@pytest.mark.parametrize("recovery_point", [0, 20, 60])
def test_it_is_rebuilt_after_a_crash(rig, recovery_point):
    log = rig.open(CONFIG)
    append(log, 60)
    durable = log.segments[2].base_offset <= recovery_point
    if not durable:
        file = rig.files.open(log.segments[1].sidecars.others[0].path)
        file.truncate(file.size() - 3)
    del log
    check(rig.open(CONFIG, clean=False, recovery_point=recovery_point))


def test_one_that_is_needed_and_missing_is_rebuilt_even_after_a_clean_stop(rig):
    log = rig.open(CONFIG)
    append(log, 60)
    rig.close(log)
    rig.files.remove(log.segments[1].sidecars.others[0].path)
    again = rig.open(CONFIG)
    check(again)
    rig.close(again)
    assert listed(rig, ".listing") == bases(again)


@pytest.mark.parametrize("seed", range(20))
def test_what_was_flushed_of_it_survives_a_power_loss(seed):
    disk = SimDisk(seed)
    rig = LogRig("/data", disk)
    disk.fsync_directory("/data")
    log = rig.open(CONFIG)
    append(log, 25)
    rig.flush(log)
    append(log, 10)
    disk.lose_power()
    names = rig.names(".listing")
    assert names[0] == offset_file(0, ".listing")
    again = rig.open(CONFIG, clean=False, recovery_point=25)
    assert again.log_end_offset >= 25
    check(again)


def test_without_its_segment_it_is_removed(rig):
    log = rig.open(CONFIG)
    append(log, 10)
    rig.close(log)
    for suffix in (".listing", ".marks", ".unknown"):
        rig.files.open(f"{rig.directory}/{offset_file(4711, suffix)}", create=True)
    again = rig.open(CONFIG)
    assert 4711 not in listed(rig, ".listing") + listed(rig, ".marks")
    assert listed(rig, ".unknown") == [4711]
    assert any(".listing has no segment" in note for note in again.notes)


def test_compaction_writes_and_swaps_it(rig):
    log = rig.open(CONFIG)
    append(log, 60)
    log.config = LARGE
    before = len(log.segments)
    compact(flushed(log, rig.files), rig.files, NOW)
    assert len(log.segments) < before
    check(log)
    remove(rig.files, rig.trash.take_due(NOW))
    assert listed(rig, ".listing") == bases(log)
    rig.close(log)
    check(rig.open(CONFIG))


def test_a_segment_without_the_optional_one_is_swapped_too(rig):
    log = rig.open(CONFIG)
    append(log, 60, producers=2)
    log.config = LARGE
    compact(flushed(log, rig.files), rig.files, NOW)
    check(log)
    assert listed(rig, ".marks") == []


@pytest.mark.parametrize("done", range(6))
def test_a_swap_that_a_crash_interrupted_is_completed_with_it(rig, done):
    log = rig.open(CONFIG)
    append(log, 60)
    rig.close(log)
    names = [name for name in rig.names() if name.startswith(offset_file(0, "."))]
    renames = swap.Swap.of(log.segments[:2]).renames
    for number, (source, target) in enumerate(renames):
        if target in names and number >= done:
            rig.files.rename(f"{rig.directory}/{target}", f"{rig.directory}/{source}")
    again = rig.open(CONFIG)
    check(again)
    assert rig.names(SWAP) == rig.names(CLEANED) == []
    assert listed(rig, ".listing") == bases(again)


@pytest.mark.asyncio
async def test_a_move_takes_it_along(tmp_path):
    rig = await MoveRig(
        PosixFiles(), [str(tmp_path / "a"), str(tmp_path / "b")], config=CONFIG
    ).load()
    log = rig.create()
    append(log, 60)
    await rig.move()
    assert rig.log is log
    check(log)
    append(log, 30)
    check(log)
    log.segments[-1].finish()
    found = sorted(path.name for path in (tmp_path / "b" / "topic-0").glob("*.listing"))
    assert found == [offset_file(base, ".listing") for base in bases(log)]
    for log_dir in rig.dirs:
        log_dir.abandon()
    rig.flusher.stop()


def test_retention_retires_it(rig):
    log = rig.open(msgspec.structs.replace(CONFIG, cleanup_policy=frozenset({"delete"})))
    append(log, 60)
    rig.flush(log)
    log.delete_records_before(40)
    retain(log, NOW, 60)
    assert bases(log)[0] > 0
    assert min(listed(rig, ".listing")) == bases(log)[0]
    assert rig.names(".listing.deleted")
    remove(rig.files, rig.trash.take_due(NOW))
    assert rig.names(".deleted") == []
