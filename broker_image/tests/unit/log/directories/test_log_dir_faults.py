"""A log directory on a disk that fails.

Nothing flushed is lost and nothing is invented, whichever operation it was. EIO ends the use of a
directory, as Kafka's LogDirFailureChannel does; a disk without room does not, and the log goes on
where it was.
"""

import errno
import random
from itertools import repeat

import pytest
from logfleet.log.flushing.job import FlushJob
from logfleet.log.segments.file_slice import FileSlice
from logfleet.records.batch import iterate_headers
from logfleet.records.errors import CorruptRecords

from broker_image.tests.sim.disk import CHANGES, FSYNC, NEEDS_ROOM, PowerLoss
from broker_image.tests.sim.rebuild import index_faults, producer_faults
from broker_image.tests.unit.log.directories.test_log_dir_power_loss import CONFIG, Run


class Offline(BaseException):
    """The directory is not used any more in this life."""


class FaultyRun(Run):
    """Each life may meet failures; it ends with the process or with the machine."""

    def __init__(self, seed, error, kinds):
        super().__init__(seed)
        self.faults = random.Random(f"faults {seed}")
        self.error, self.kinds = error, kinds

    def live(self):
        self.disk.fuse = self.dice.randrange(1, 150)
        self.disk.fail_after(
            self.faults.randrange(60), self.error, self.kinds, times=self.faults.randrange(3)
        )
        power_lost = False
        try:
            self.attempt(self.begin)
            while True:
                steps = [self.append] * 8 + [self.flush] * 2
                steps += [self.lead, self.delete, self.retain]
                self.attempt(self.dice.choice([*steps, self.restart]))
        except PowerLoss:
            power_lost = True
        except Offline:
            # a process that starts again on what a failed fsync has left finds it, and cannot know:
            # the machine restarts
            power_lost = self.error == errno.EIO or self.dice.random() < 0.5
        self.disk.fail_after(0, 0, times=0)
        if power_lost:
            self.disk.lose_power()
        self.disk.locks.clear()
        self.disk.fuse = None

    def attempt(self, step):
        try:
            step()
        except OSError as error:
            if error.errno != self.error:
                raise
            if self.error == errno.EIO or step in (self.begin, self.restart):
                raise Offline from None
            self.check_in_memory()

    def check_in_memory(self):
        """The content of the log without a reopen."""
        end, offset = self.log.log_end_offset, self.log.log_start_offset
        assert end <= len(self.values)
        assert end >= self.durable
        del self.values[end:]
        while isinstance(piece := self.log.read(offset, 1), FileSlice):
            headers = list(piece_headers(piece))
            assert headers
            offset = headers[-1].next_offset
        assert offset == end
        assert producer_faults(self.log) == []

    def flush_log(self):
        try:
            super().flush_log()
        except OSError:
            self.log.abandon_flush()
            raise


def piece_headers(piece):
    return [header for _, header in iterate_headers(piece.read())]


def live_through(seed, error, kinds):
    run = FaultyRun(seed, error, kinds)
    for _ in range(12):
        run.live()
    run.begin()
    assert producer_faults(run.log) == []
    for segment in run.log.segments:
        assert index_faults(segment, CONFIG.index_interval_bytes) == []
    return run.disk.faults


@pytest.mark.parametrize("seed", range(100))
def test_what_was_flushed_survives_a_disk_that_fails(seed):
    live_through(seed, errno.EIO, CHANGES)


@pytest.mark.parametrize("seed", range(100))
def test_a_full_disk_costs_nothing_but_what_it_refused(seed):
    live_through(seed, errno.ENOSPC, NEEDS_ROOM)


def test_the_disk_does_fail():
    assert sum(live_through(seed, errno.EIO, CHANGES) for seed in range(20)) > 20
    assert sum(live_through(seed, errno.ENOSPC, NEEDS_ROOM) for seed in range(20)) > 20


def test_to_go_on_after_a_failed_fsync_is_noticed(monkeypatch):
    whole = FlushJob.run

    def trusting(job, files):
        try:
            whole(job, files)
        except OSError:
            whole(job, files)  # and now it says that all is well

    monkeypatch.setattr(FlushJob, "run", trusting)
    with pytest.raises((AssertionError, CorruptRecords)):
        list(map(live_through, range(100), repeat(errno.EIO), repeat(frozenset({FSYNC}))))
