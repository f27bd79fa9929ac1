"""Moves between two file systems, with power losses or kills at any moment.

One log is left, with everything that was flushed.
"""

import asyncio
import random

import pytest
from logfleet.log.config import LogConfig
from logfleet.log.flushing.flusher import Flusher
from logfleet.log.moves import log_move

from broker_image.tests.sim.disk import PowerLoss, SimDisk
from broker_image.tests.unit.log.moves.move_rig import (
    NAME,
    TOPIC_ID,
    MoveRig,
    append,
    content,
    value_at,
)

CONFIG = LogConfig(segment_bytes=1500, index_interval_bytes=300, file_delete_delay_ms=0)
PATHS = ("/a", "/b")
RECORDS = 3
"""Of a batch."""


class Inline(Flusher):
    """Whose threads are the caller's; others may append and flush before each of their steps."""

    def __init__(self, files, between):
        super().__init__(files)
        self._between = between

    async def run(self, work, *args):
        self._between()
        return work(*args)

    async def flush(self, log):
        self._between()
        await super().flush(log)


class Run:
    """One broker's life after another, each with moves and appends. Ends are exclusive."""

    def __init__(self, seed):
        self.dice = random.Random(seed)
        self.disk = SimDisk(seed)
        self.durable_end = self.written_end = self.start = 0
        self.moves = 0

    def live(self):
        self.disk.fuse = self.dice.randrange(1, 400)
        try:
            asyncio.run(self._live())
        except* PowerLoss:
            if self.dice.random() < 0.5:
                self.disk.lose_power()
                self.written_end = self.durable_end
            else:  # the process is killed there, and the machine runs on
                self.disk.locks.clear()
                self.disk.fuse = None

    async def _live(self):
        flusher = Inline(self.disk, self.between)
        self.rig = MoveRig(self.disk, PATHS, flusher, CONFIG)
        await self.rig.load()
        self.check()
        self.flush()
        while True:
            target = self.dice.choice(self.rig.dirs.dirs)
            if target is not self.rig.dirs.dir_of(NAME):
                await self.rig.move(target)
                self.moves += 1
            self.between()
            if self.dice.random() < 0.2:
                await self.delete()

    def check(self):
        self.rig.dirs.refuse_duplicates()
        if self.rig.dirs.log_of(NAME) is None:
            assert self.durable_end == 0
            self.rig.create()
        log = self.rig.log
        log.topic_id = TOPIC_ID  # as the check for strays sets it if the file is lost
        found = content(log)
        assert log.log_end_offset >= self.written_end, "what was written is lost"
        assert log.log_start_offset >= self.start, "deleted records are back"
        for offset, data in found.items():
            base_offset = int.from_bytes(data[:8], "big")
            assert base_offset <= offset, "a hole"
            assert value_at(base_offset) in data
        assert next(reversed(found), log.log_start_offset) in range(
            log.log_end_offset - RECORDS, log.log_end_offset + 1
        )

    def between(self):
        """A writer that appends and flushes while a move waits for the disk."""
        log = self.rig.log
        if self.dice.random() < 0.3:
            append(log, records=RECORDS)
            self.written_end = log.log_end_offset
        if self.dice.random() < 0.1 and id(log) not in self.rig.flusher._running:
            self.flush()

    def flush(self):
        end = self.rig.log.log_end_offset
        self.rig.flush()
        self.durable_end = self.written_end = end

    async def delete(self):
        """As DeleteRecords does."""
        log = self.rig.log
        log.delete_records_before(self.dice.randint(log.log_start_offset, log.log_end_offset))
        log_dir = self.rig.dirs.dir_of(NAME)
        assert log_dir is not None
        await self.rig.checkpointer.write_log_starts(log_dir)
        self.start = log.log_start_offset


@pytest.mark.parametrize("first", range(0, 200, 50))
def test_one_log_is_left_with_all_that_was_flushed(first, monkeypatch) -> None:
    monkeypatch.setattr(log_move, "SLICE_BYTES", 600)
    monkeypatch.setattr(log_move, "LAST_BYTES", 600)
    monkeypatch.setattr(log_move, "FLUSH_BYTES", 2000)
    monkeypatch.setattr(log_move, "TRY_AGAIN_S", 0)
    moves = 0
    for seed in range(first, first + 50):
        run = Run(seed)
        for _ in range(12):
            run.live()
        moves += run.moves
    assert moves > 50
