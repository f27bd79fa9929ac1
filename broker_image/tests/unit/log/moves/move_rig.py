"""A log in the first of two directories, and its move to the second."""

from logfleet.log.checkpoints.checkpointer import Checkpointer
from logfleet.log.config import LogConfig
from logfleet.log.directories.log_dir import LogDir
from logfleet.log.directories.log_dirs import LogDirs
from logfleet.log.flushing.flusher import Flusher
from logfleet.log.moves.log_move import LogMove, MoveTools
from logfleet.log.names import TopicPartition
from logfleet.log.segments.file_slice import FileSlice
from logfleet.log.segments.open_files import OpenFiles
from logfleet.records.record import ProducerStamp, Record, build_batch

NOW = 1_700_000_000_000
NAME = TopicPartition("topic", 0)
TOPIC_ID = "bQrxV1XaQAyDOV5OYVsTsQ"
SMALL = LogConfig(segment_bytes=1500, index_interval_bytes=300, file_delete_delay_ms=0)


def value_at(offset):
    return b"%d" % offset * 30


def append(log, count=1, epoch=0, records=1):
    for _ in range(count):
        stamp = ProducerStamp(7, 0, log.log_end_offset)
        record = Record(None, value_at(log.log_end_offset), NOW)
        log.append_as_leader(build_batch([record] * records, producer=stamp), epoch, NOW)


def content(log) -> dict[int, bytes]:
    """All batches, by the offset at which each begins to be read."""
    found, offset = {}, log.log_start_offset
    while isinstance(piece := log.read(offset, 1), FileSlice):
        data = piece.read()
        found[offset] = data
        offset = int.from_bytes(data[:8], "big") + 1 + int.from_bytes(data[23:27], "big")
    return found


class MoveRig:
    """dirs: opened on these files; they are loaded as a broker's are.

    wait_ms: asked by the move before each slice.
    """

    def __init__(self, files, paths, flusher=None, config=SMALL):
        self.files = files
        open_files = OpenFiles(files)
        self.dirs = LogDirs(open_files, [LogDir(open_files, path, "cluster", 1) for path in paths])
        self.one, self.two = self.dirs.dirs
        self.flusher = flusher or Flusher(files)
        self.checkpointer = Checkpointer(files, self.flusher)
        self.config = config
        self.copied = 0
        self.is_wanted = True
        self.wait_ms = lambda: 0

    async def load(self):
        await self.dirs.load(lambda _: self.config, NOW, 1)
        return self

    def create(self):
        return self.one.create(NAME, TOPIC_ID, self.config, NOW)

    @property
    def log(self):
        found = self.dirs.log_of(NAME)
        assert found is not None
        return found

    def move(self, target=None):
        def copied(size):
            self.copied += size

        tools = MoveTools(
            self.dirs,
            self.flusher,
            self.checkpointer,
            lambda name: self.log.log_end_offset if name == NAME else None,
            copied,
            self._wait_ms,
            lambda _: False,
        )
        return LogMove(self.log, target or self.two, tools, lambda: self.is_wanted).run()

    def _wait_ms(self):
        return self.wait_ms()

    def flush(self):
        job = self.log.begin_flush()
        job.run(self.files)
        self.log.complete_flush(job)
