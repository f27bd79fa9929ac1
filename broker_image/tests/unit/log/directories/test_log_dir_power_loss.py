"""A log directory on a disk that loses power in the middle of anything.

What was flushed is there, and nothing but a prefix of the rest.
"""

import random

import pytest
from logfleet.log.config import LogConfig
from logfleet.log.directories import trash
from logfleet.log.directories.log_dir import LogDir
from logfleet.log.names import LOG_STARTS, TopicPartition
from logfleet.log.segments.file_slice import FileSlice
from logfleet.log.segments.open_files import OpenFiles
from logfleet.records.batch import iterate_headers
from logfleet.records.record import ProducerStamp, Record, build_batch, read_records
from logfleet.types import LeaderEpoch

from broker_image.tests.sim.disk import PowerLoss, SimDisk, SimFile
from broker_image.tests.unit.log.retaining import retain
from broker_image.tests.unit.log.searching import by_time

NOW = 1_700_000_000_000
PARTITION = TopicPartition("topic", 0)
CONFIG = LogConfig(segment_bytes=1500, index_interval_bytes=300, file_delete_delay_ms=0)


class Run:
    """One broker's life after another on one disk, with one producer that never repeats itself."""

    def __init__(self, seed):
        self.dice = random.Random(seed)
        self.disk = SimDisk(seed)
        self.values = []  # the value of each record that may be there, by offset
        self.durable = 0  # offsets below this were flushed
        self.start = 0
        self.told_start = 0  # records below it are deleted, and clients were told so
        self.epoch = 0
        self.next_value = 0

    def live(self):
        """Start, work until the power fails; in some lives so soon that no flush is due."""
        flushes = [self.flush] * self.dice.choice([0, 2])
        self.disk.fuse = self.dice.randrange(1, 150)
        try:
            self.begin()
            while True:
                steps = [self.append] * 8 + flushes
                steps += [self.lead, self.delete, self.retain, self.restart]
                self.dice.choice(steps)()
        except PowerLoss:
            self.disk.lose_power()

    def begin(self):
        self.log_dir = LogDir(OpenFiles(self.disk), "/logs", "cluster", 1)
        for _ in self.log_dir.load(lambda _topic: CONFIG, NOW):
            pass
        if PARTITION not in self.log_dir.logs:
            assert self.durable == 0
            self.log_dir.create(PARTITION, "bQrxV1XaQAyDOV5OYVsTsQ", CONFIG, NOW)
        self.log = self.log_dir.logs[PARTITION]
        self.check()
        self.lead()
        self.flush()  # as every broker does before it serves

    def check(self):
        found, offset = {}, self.log.log_start_offset
        while isinstance(piece := self.log.read(offset, 1 << 20), FileSlice):
            content = piece.read()
            for position, header in iterate_headers(content):
                offset = header.next_offset
                for record in read_records(content, position):
                    found[record.offset] = record.value
                assert self.log.epochs.epoch_of(header.last_offset) == header.leader_epoch
        end = self.log.log_end_offset
        assert offset == end
        assert end >= self.durable, "what was flushed is lost"
        assert self.told_start <= self.log.log_start_offset <= self.start
        expected = dict(list(enumerate(self.values))[:end])
        assert found == {o: v for o, v in expected.items() if o in found}
        assert set(found) >= set(range(self.start, end))
        self.values = self.values[:end]
        self.start = self.log.log_start_offset
        for offset in self.dice.sample(range(self.start, end), min(3, end - self.start)):
            found_at = by_time(self.log, NOW + offset)
            assert found_at is not None
            assert found_at.offset == offset

    def append(self):
        count = self.dice.randrange(1, 4)
        stamp = ProducerStamp(7, self.epoch, 0) if self.dice.random() < 0.5 else None
        base = len(self.values)
        new = [b"%d" % (self.next_value + n) * 30 for n in range(count)]
        self.next_value += count
        records = [Record(None, value, NOW + base + n) for n, value in enumerate(new)]
        self.values += new  # from the first write on they may be there
        before = self.log.log_end_offset
        result = self.log.append_as_leader(
            build_batch(records, producer=stamp), LeaderEpoch(self.epoch), NOW
        )
        if self.log.log_end_offset == before:  # out of sequence: it is not there
            assert stamp is not None
            assert result is not None
            del self.values[base:]

    def flush(self):
        self.flush_log()
        self.log_dir.checkpoint({PARTITION: self.log.log_end_offset}).run(self.disk)

    def flush_log(self):
        end = self.log.log_end_offset
        job = self.log.begin_flush()
        job.run(self.disk)
        self.log.complete_flush(job)
        self.durable = max(self.durable, end)

    def lead(self):
        self.epoch += 1
        self.log.start_epoch(LeaderEpoch(self.epoch))

    def delete(self):
        """As DeleteRecords, up to the high watermark.

        With one replica that is the log's end, flushed or not. Streams purges all.
        """
        end = self.log.log_end_offset
        bases = [each.base_offset for each in self.log.segments if each.base_offset >= self.start]
        self.start = self.dice.choice([self.dice.randint(self.start, end), end, *bases])
        self.log.delete_records_before(self.start)
        if self.dice.random() < 0.5:
            self.tell_starts()
            self.told_start = self.start

    def retain(self):
        retain(self.log, NOW, self.log.log_end_offset)
        if self.dice.random() < 0.5:  # records of another log are deleted
            self.tell_starts()
        trash.remove(self.disk, self.log_dir.take_removals(NOW))

    def tell_starts(self):
        job = self.log_dir.begin_checkpoint([LOG_STARTS])
        self.log_dir.add_to_checkpoint(job, PARTITION, None)
        job.run(self.disk)

    def restart(self):
        end = self.log.log_end_offset
        self.log_dir.close({PARTITION: end})
        self.durable = end
        self.begin()
        assert self.log_dir.was_clean
        assert self.log.log_end_offset == end


def live_through(seed):
    run = Run(seed)
    for _ in range(12):
        run.live()
    run.begin()


@pytest.mark.parametrize("seed", range(100))
def test_what_was_flushed_survives_the_loss_of_power_at_any_moment(seed):
    live_through(seed)


def test_a_disk_that_lies_about_syncing_is_noticed(monkeypatch):
    monkeypatch.setattr(SimFile, "fsync", lambda self: self._disk.step())
    with pytest.raises(AssertionError, match="what was flushed is lost"):
        list(map(live_through, range(50)))
