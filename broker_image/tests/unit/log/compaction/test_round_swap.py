"""A disk that has no room at one step of a swap, or at several.

The log is then as before or compacted, in memory and for a start.
"""

import errno
import shutil
from pathlib import Path

import pytest
from logfleet.io.files import PosixFiles, is_out_of_space
from logfleet.log.compaction.process import CleanerProcess
from logfleet.log.compaction.round import Cleaning
from logfleet.log.directories.log_dir import LogDir
from logfleet.log.segments.open_files import OpenFiles

from broker_image.tests.unit.log.compaction.compaction_rig import SALT, latest
from broker_image.tests.unit.log.compaction.test_cleaner import CONFIG, NOW, Rig

pytestmark = pytest.mark.asyncio


class NoRoom(PosixFiles):
    """Changes of names, and what makes them durable, fail with `error`.

    `times` of them after the first `steps`, once it is `on`.
    """

    def __init__(self, steps: int, times: int, error: int) -> None:
        self.on = False
        self.steps, self.times, self.error = steps, times, error
        self.failed: list[str] = []

    def _step(self, what: str, path: str) -> None:
        if self.on and self.times:
            self.steps -= 1
            if self.steps < 0:
                self.times -= 1
                self.failed.append(f"{what} {Path(path).name}")
                raise OSError(self.error, "No room", path)

    def rename(self, source: str, target: str) -> None:
        self._step("rename", source)
        super().rename(source, target)

    def fsync_directory(self, path: str) -> None:
        self._step("fsync", path)
        super().fsync_directory(path)


@pytest.fixture(autouse=True)
def in_process(monkeypatch):
    """What the child does has tests of its own; here its disk has room."""

    async def run(_self, job):
        for event in Cleaning(PosixFiles(), job, salt=SALT, account=lambda _: None).run():
            yield event

    monkeypatch.setattr(CleanerProcess, "run", run)


class Fixture:
    """A log compacted on such a disk, and what a start would find after each failed step."""

    def __init__(self, path, files) -> None:
        self.path, self.files = path, files
        self.rig = Rig(path / "log", files)
        self.partition = self.rig.add(0, count=25)
        self.before = latest(self.partition.log)
        self.rig.cleaner._on_disk_failure = self.failed
        self.given_up = self.rig.failed
        self.crashes = 0

    def failed(self, name, error) -> None:
        self.crash()
        if not is_out_of_space(error):
            self.given_up.append((name, error))
            self.rig.partitions.clear()
            self.rig.cleaner._log_dirs.dirs.clear()

    def crash(self) -> None:
        """What a start finds if the broker is killed now."""
        self.crashes += 1
        copy = self.path / f"copy{self.crashes}"
        shutil.copytree(self.rig.log_dir.path, copy)
        log_dir = LogDir(OpenFiles(PosixFiles()), str(copy), "cluster", 1)
        (log,) = log_dir.load(lambda _topic: CONFIG, NOW)
        assert latest(log) == self.before
        assert log.log_end_offset == self.partition.log.log_end_offset
        log_dir.abandon()

    def is_over(self) -> bool:
        self.files.on = True
        if not self.given_up:
            assert latest(self.partition.log) == self.before
        return bool(self.given_up) or self.is_clean()

    def is_clean(self) -> bool:
        log = self.partition.log
        return (
            log.first_dirty_offset == log.segments[-1].base_offset and not self.rig.cleaner._rounds
        )


@pytest.mark.parametrize("times, error", [(1, errno.ENOSPC), (2, errno.EDQUOT)])
async def test_a_swap_without_room_at_any_step_is_undone_or_completed(tmp_path, times, error):
    seen: set[str] = set()
    for steps in range(200):
        fixture = Fixture(tmp_path / str(steps), NoRoom(steps, times, error))
        await fixture.rig.checkpoint(fixture.rig.log_dir)
        await fixture.rig.clean_until(fixture.is_over)
        fixture.crash()
        log = fixture.partition.log
        if fixture.given_up:  # twice at a step from which there is no way back
            assert times > 1
        else:
            assert fixture.is_clean()
            log.delete_records_before(log.log_end_offset)
            assert log.apply_retention(NOW, log.log_end_offset) is not None  # nothing holds it
        seen.update(fixture.files.failed)
        if not fixture.files.failed:
            break
    base = "0" * 20
    assert seen >= {
        f"rename {base}{name}"
        for suffix in (".log", ".index", ".timeindex")
        for name in (suffix + ".cleaned", suffix + ".swap", suffix)
    }
    assert "fsync topic-0" in seen
