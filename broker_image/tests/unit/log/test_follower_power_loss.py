"""A follower's log on a disk that loses power in the middle of anything, truncations too.

A prefix of what it was told, never a hole.
"""

import asyncio
import random

import pytest
from logfleet.log.checkpoints.checkpointer import Checkpointer
from logfleet.log.config import LogConfig
from logfleet.log.directories.log_dir import LogDir
from logfleet.log.directories.log_dirs import LogDirs
from logfleet.log.flushing.flusher import Flusher
from logfleet.log.names import TopicPartition
from logfleet.log.recovery.truncater import Truncater
from logfleet.log.segments.file_slice import FileSlice
from logfleet.log.segments.open_files import OpenFiles
from logfleet.records.batch import assign_offsets, iterate_headers
from logfleet.records.control import marker_batch
from logfleet.records.record import ProducerStamp, Record, build_batch
from logfleet.types import LeaderEpoch

from broker_image.tests.sim.disk import PowerLoss, SimDisk
from broker_image.tests.sim.rebuild import index_faults, producer_faults, transaction_faults

NOW = 1_700_000_000_000
PARTITION = TopicPartition("topic", 0)
CONFIG = LogConfig(segment_bytes=1500, index_interval_bytes=300, file_delete_delay_ms=0)


class Inline(Flusher):
    """Whose threads are the caller's."""

    async def run(self, work, *args):
        return work(*args)


def batch(base_offset, epoch, dice):
    count = dice.randrange(1, 4)
    producer_id = dice.choice([7, 8, 9])  # the last two write in transactions
    stamp = ProducerStamp(producer_id, epoch, base_offset, transactional=producer_id > 7)
    value = b"%d" % dice.randrange(1 << 30) * dice.randrange(1, 20)
    made = build_batch([Record(None, value, NOW + base_offset)] * count, producer=stamp)
    if stamp.transactional and dice.random() < 0.4:
        count = 1
        made = marker_batch(
            producer_id,
            epoch,
            commit=dice.random() < 0.3,
            coordinator_epoch=epoch,
            now_ms=NOW + base_offset,
        )
    assign_offsets(made, base_offset, epoch)
    return bytes(made), base_offset + count


class Run:
    """A follower of leaders that change.

    History: what the present one wrote, as (bytes, base offset, end offset, epoch).
    """

    def __init__(self, seed):
        self.dice = random.Random(seed)
        self.disk = SimDisk(seed)
        self.history = []
        self.known = []  # what the log may hold after a crash: histories, of which it has a prefix
        self.durable = 0
        self.epoch = 0

    def live(self):
        self.disk.fuse = self.dice.randrange(1, 200)
        try:
            self.begin()
            while True:
                steps = [self.fetch] * 6 + [self.flush, self.checkpoint, self.follow_another]
                self.dice.choice([*steps, self.restart])()
        except PowerLoss:
            self.disk.lose_power()

    def begin(self):
        self.log_dir = LogDir(OpenFiles(self.disk), "/logs", "cluster", 1)
        list(self.log_dir.load(lambda _topic: CONFIG, NOW))
        if PARTITION not in self.log_dir.logs:
            assert self.durable == 0
            self.log_dir.create(PARTITION, "bQrxV1XaQAyDOV5OYVsTsQ", CONFIG, NOW)
        self.log = self.log_dir.logs[PARTITION]
        self.truncater = Truncater(
            LogDirs(OpenFiles(self.disk), [self.log_dir]),
            flusher := Inline(self.disk),
            Checkpointer(self.disk, flusher),
            lambda *_: pytest.fail("the disk is sound"),
        )
        self.check()
        self.flush()
        self.agree()

    def check(self):
        found, offset = [], 0
        while isinstance(piece := self.log.read(offset, 1 << 20), FileSlice):
            content = piece.read()
            for position, header in iterate_headers(content):
                offset = header.next_offset
                found.append(content[position : position + header.size])
                assert self.log.epochs.epoch_of(header.last_offset) == header.leader_epoch
        assert offset == self.log.log_end_offset >= self.durable, "what was flushed is lost"
        assert (
            any(found == [each[0] for each in history[: len(found)]] for history in self.known)
            or not found
        ), "a hole, or what nobody wrote"
        for segment in self.log.segments:
            assert index_faults(segment, CONFIG.index_interval_bytes) == []
        assert producer_faults(self.log) == transaction_faults(self.log) == []

    def follow_another(self):
        """A leader that has only a part of its predecessor's batches, and writes others."""
        self.epoch += 1
        keep = self.dice.randrange(max(0, len(self.history) - 8), len(self.history) + 1)
        self.history = self.history[:keep]
        self.agree()

    def agree(self):
        """Truncate to where the leader's history and the log differ."""
        self.known = [*self.known, self.history]
        common = 0
        for data, base, end, _ in self.history:
            piece = self.log.read(base, 1)
            if end > self.log.log_end_offset or not isinstance(piece, FileSlice):
                break
            if piece.read() != data:
                break
            common = end
        if common < self.log.log_end_offset:
            self.durable = min(self.durable, common)
            assert asyncio.run(self.truncater.truncate(self.log, common, lambda: True))
        assert self.log.log_end_offset == common
        self.check()
        self.known = [self.history]

    def fetch(self):
        end = self.history[-1][2] if self.history else 0
        gap = self.dice.choice([0, 0, 0, 3])  # the leader compacts
        for _ in range(self.dice.randrange(4)):
            data, next_offset = batch(end + gap, self.epoch, self.dice)
            self.history.append((data, end + gap, next_offset, self.epoch))
            end = next_offset
        rest = [data for data, base, _, _ in self.history if base >= self.log.log_end_offset]
        records = b"".join(rest[: self.dice.randrange(1, 6)])
        self.log.append_as_follower(
            memoryview(records[: -self.dice.choice([1, 50])]), LeaderEpoch(self.epoch), NOW
        )

    def flush(self):
        end = self.log.log_end_offset
        job = self.log.begin_flush()
        job.run(self.disk)
        self.log.complete_flush(job)
        self.durable = end

    def checkpoint(self):
        self.log_dir.checkpoint({}).run(self.disk)

    def restart(self):
        end = self.log.log_end_offset
        self.log_dir.close({})
        self.durable = end
        self.begin()
        assert self.log.log_end_offset == end


def live_through(seed):
    run = Run(seed)
    for _ in range(12):
        run.live()
    run.begin()


@pytest.mark.parametrize("seed", range(60))
def test_a_follower_holds_a_prefix_of_what_its_leader_wrote_whenever_the_power_fails(seed):
    live_through(seed)


def test_checkpoints_beyond_a_cut_are_noticed(monkeypatch):
    async def nothing(*_):
        pass

    monkeypatch.setattr(Checkpointer, "write_bounds", nothing)
    with pytest.raises(AssertionError):
        list(map(live_through, range(400)))
