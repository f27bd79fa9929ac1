"""A compacted log on a machine that stops in the middle of anything.

Every latest value is there, and nothing is where it was not.
"""

import errno
import random

import pytest
from logfleet.log.compaction.round import Uncleanable
from logfleet.log.config import LogConfig
from logfleet.log.directories import trash
from logfleet.log.directories.log_dir import LogDir
from logfleet.log.names import CLEANED, SWAP, TopicPartition
from logfleet.log.recovery import loader as log_loader
from logfleet.log.segments import swap as segment_swap
from logfleet.log.segments.open_files import OpenFiles
from logfleet.log.segments.swap import remove_cleaned
from logfleet.records.compression import Codec
from logfleet.records.record import ProducerStamp, Record, build_batch

from broker_image.tests.sim.disk import FSYNC_DIRECTORY, RENAME, PowerLoss, SimDisk, SimFile
from broker_image.tests.unit.log.compaction.compaction_rig import append, batches, compact

NOW = 1_700_000_000_000
PARTITION = TopicPartition("topic", 0)
CONFIG = LogConfig(
    segment_bytes=1500,
    index_interval_bytes=300,
    file_delete_delay_ms=0,
    delete_retention_ms=50,
    cleanup_policy=frozenset({"compact"}),
)
PRODUCER = 7


class Sent:
    """One batch as it was appended."""

    def __init__(self, base, pairs, sequence):
        self.base, self.pairs, self.sequence = base, pairs, sequence
        self.end = base + len(pairs)


class Run:
    """One broker's life after another on one disk.

    Each ends with the process or with the machine.
    """

    def __init__(self, seed):
        self.dice = random.Random(seed)
        self.disk = SimDisk(seed)
        self.now = NOW
        self.sent = []
        self.durable = 0  # offsets below this were flushed
        self.surely = 0  # offsets below this are there at the next start
        self.compacted_to = 0  # records below this may be gone if there are newer ones
        self.compactions = 0
        self.without_room = 0
        self.is_open = False

    def live(self):
        self.disk.fuse = self.dice.randrange(1, 400)
        self.is_open = False
        try:
            self.begin()
            while True:
                self.dice.choice(
                    [self.append] * 12
                    + [self.flush] * 2
                    + [self.compact] * 2
                    + [self.merge, self.compact_without_room, self.restart]
                )()
        except PowerLoss:
            if self.dice.random() < 0.5:
                self.disk.lose_power()
                self.surely = self.durable
            else:  # only the process was killed: all it wrote is there, except the last step
                self.disk.fuse = None
                self.disk.locks.clear()
                if self.is_open and self.sent:
                    self.surely = max(self.durable, self.sent[-1].base)

    def begin(self):
        self.open()
        self.check()
        self.is_open = True
        content = self.content()
        if self.dice.random() < 0.2:  # opening twice is opening once
            self.disk.locks.clear()
            self.is_open = False
            self.open()
            self.is_open = True
            assert self.content() == content

    def open(self):
        self.log_dir = LogDir(OpenFiles(self.disk), "/logs", "cluster", 1)
        for _ in self.log_dir.load(lambda _topic: CONFIG, self.now):
            pass
        if PARTITION not in self.log_dir.logs:
            assert self.durable == 0
            self.log_dir.create(PARTITION, "bQrxV1XaQAyDOV5OYVsTsQ", CONFIG, self.now)
        self.log = self.log_dir.logs[PARTITION]
        names = [entry.name for entry in self.disk.list_directory("/logs/topic-0")]
        assert not [name for name in names if name.endswith((CLEANED, SWAP))]

    def content(self):
        return self.log.log_end_offset, [
            (header, [(r.offset, r.key, r.value) for r in found])
            for header, found in batches(self.log)
        ]

    def check(self):
        end, content = self.content()
        assert end >= self.surely, "what was flushed is lost"
        self.sent = [batch for batch in self.sent if batch.end <= end]
        assert end == (self.sent[-1].end if self.sent else 0)
        expected = {b.base + n: pair for b in self.sent for n, pair in enumerate(b.pairs)}
        found = {o: (key, value) for _, each in content for o, key, value in each}
        assert found == {offset: expected[offset] for offset in found}
        assert list(found) == sorted(found)
        assert set(found) >= set(range(min(self.compacted_to, end), end))
        assert without_deleted(found) == without_deleted(expected), "a latest value is lost"
        known = self.log.producers.states.get(PRODUCER)
        last = next((b for b in reversed(self.sent) if b.sequence is not None), None)
        if last is not None:
            assert known is not None
            assert known.last_sequence == last.sequence + len(last.pairs) - 1

    def append(self):
        self.now += 7
        pairs = [
            (b"key %d" % self.dice.randrange(6), self.dice.choice([None, self.dice.randbytes(60)]))
            for _ in range(self.dice.randrange(1, 4))
        ]
        sequence = stamp = None
        if self.dice.random() < 0.3:
            earlier = [b for b in self.sent if b.sequence is not None]
            sequence = earlier[-1].sequence + len(earlier[-1].pairs) if earlier else 0
            stamp = ProducerStamp(PRODUCER, 0, sequence)
        records = [Record(key, value, self.now) for key, value in pairs]
        codec = self.dice.choice([Codec.NONE, Codec.NONE, Codec.LZ4])
        self.sent.append(Sent(self.log.log_end_offset, pairs, sequence))
        batch = build_batch(records, producer=stamp, codec=codec)
        result = append(self.log, batch, self.now)
        assert result.last_offset == self.sent[-1].end - 1

    def flush(self):
        end = self.log.log_end_offset
        job = self.log.begin_flush()
        job.run(self.disk)
        self.log.complete_flush(job)
        self.durable = max(self.durable, end)
        self.checkpoint()

    def checkpoint(self):
        job = self.log_dir.checkpoint({PARTITION: self.log.log_end_offset})
        job.run(self.disk)
        for _ in self.log_dir.complete_checkpoint(job):
            pass

    def compact(self):
        # until it ends one cannot know how much of it is there
        self.compacted_to = max(self.compacted_to, self.log.checkpointed_point)
        if compact(self.log, self.disk, self.now) is not None:
            self.compactions += 1
            self.checkpoint()
        trash.remove(self.disk, self.log_dir.take_removals(self.now))

    def compact_without_room(self):
        """The disk is full at one step of a round.

        Steps for which that was tried twice are in cleaning.test_swap.
        """
        self.disk.fail_after(
            self.dice.randrange(25), errno.ENOSPC, frozenset({RENAME, FSYNC_DIRECTORY})
        )
        try:
            self.compact()
        except OSError as error:
            if error.errno != errno.ENOSPC:
                raise
            self.without_room += 1
        finally:
            self.disk.fail_after(0, 0, times=0)
        remove_cleaned(self.disk, self.log.directory)

    def merge(self):
        """Rounds over what is clean already, which is merged, and whose tombstones go."""
        self.now += 60
        self.log.ends.compacted(0)
        self.compact()

    def restart(self):
        end = self.log.log_end_offset
        self.log_dir.close({PARTITION: end})
        self.durable = self.surely = end
        self.begin()
        assert self.log.log_end_offset == end


def without_deleted(records):
    values = {key: value for _, (key, value) in sorted(records.items())}
    return {key: value for key, value in values.items() if value is not None}


def live_through(seed):
    run = Run(seed)
    for _ in range(10):
        run.live()
    run.begin()
    return run.compactions, run.without_room


@pytest.mark.parametrize("seed", range(100))
def test_every_latest_value_survives_a_crash_at_any_moment(seed):
    live_through(seed)


def test_the_lives_are_long_enough_to_compact():
    compactions, without_room = zip(*map(live_through, range(8)), strict=True)
    assert sum(compactions) > 20
    assert sum(without_room) > 2


def fails_within(seeds):
    with pytest.raises((AssertionError, OSError, Uncleanable)):
        list(map(live_through, range(seeds)))


def test_a_disk_that_lies_about_syncing_is_noticed(monkeypatch):
    monkeypatch.setattr(SimFile, "fsync", lambda self: self._disk.step())
    fails_within(50)


def test_a_swap_that_is_not_completed_at_the_start_is_noticed(monkeypatch):
    monkeypatch.setattr(log_loader, "recover", lambda *_: [])
    fails_within(50)


def test_a_swap_that_leaves_the_old_segments_is_noticed(monkeypatch):
    monkeypatch.setattr(segment_swap, "replaced_files", lambda *_: [])
    fails_within(200)
