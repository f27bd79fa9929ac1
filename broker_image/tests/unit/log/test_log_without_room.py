"""A disk that has no room at any one moment.

The log is then what it was, goes on when there is room, and is whole after a crash.
"""

import errno

import pytest
from logfleet.io.files import PosixFile, PosixFiles
from logfleet.log.config import LogConfig
from logfleet.log.partition_log import PartitionLog
from logfleet.log.segments.file_slice import FileSlice
from logfleet.log.validation import Appended
from logfleet.records.record import ProducerStamp, Record, build_batch, read_records
from logfleet.types import LeaderEpoch

from broker_image.tests.unit.log.searching import by_time

NOW = 1_700_000_000_000
SMALL = LogConfig(segment_bytes=700, index_interval_bytes=100)
RECORDS = 30


class FullDisk:
    """Raises ENOSPC once, at the write after so many, having written half of it.

    hit: whether it came to that.
    """

    def __init__(self, monkeypatch: pytest.MonkeyPatch, writes: int) -> None:
        self.left = writes
        self.hit = False
        pwrite, opened = PosixFile.pwrite, PosixFiles.open

        def write(file, data, position) -> None:
            if self._is_now():
                pwrite(file, bytes(data[: len(data) // 2]), position)
                raise OSError(errno.ENOSPC, "No space left on device", file.path)
            pwrite(file, data, position)

        def create(files, path, *, create=False):
            if create and self._is_now():
                raise OSError(errno.ENOSPC, "No space left on device", path)
            return opened(files, path, create=create)

        monkeypatch.setattr(PosixFile, "pwrite", write)
        monkeypatch.setattr(PosixFiles, "open", create)

    def _is_now(self) -> bool:
        self.left -= 1
        if self.left == -1:
            self.hit = True
        return self.left == -1


def append(log: PartitionLog, number: int) -> None:
    batch = build_batch(
        [Record(b"key", b"%d" % number, NOW + number)], producer=ProducerStamp(7, 0, number)
    )
    result = log.append_as_leader(batch, LeaderEpoch(3 + number // 20), NOW)
    assert isinstance(result, Appended)
    assert (result.base_offset, result.duplicate) == (number, False)


def flush(rig, log: PartitionLog) -> None:
    """As node.flusher does it."""
    try:
        job = log.begin_flush()
        job.run(rig.files)
        log.complete_flush(job)
    except OSError:
        log.abandon_flush()
        raise


def again(work, *args) -> None:
    """Once more after there was no room."""
    try:
        work(*args)
    except OSError as error:
        if error.errno != errno.ENOSPC:
            raise
        work(*args)


def everything(log: PartitionLog) -> list[bytes | None]:
    found: list[bytes | None] = []
    while isinstance(piece := log.read(len(found), 1 << 20), FileSlice):
        found += [record.value for record in read_records(piece.read())]
    return found


def test_no_write_without_room_harms_the_log(rig, monkeypatch) -> None:
    expected = [b"%d" % number for number in range(RECORDS)]
    writes, hits = 0, 0
    while True:
        with monkeypatch.context() as patched:
            log = rig.open(SMALL)
            disk = FullDisk(patched, writes)
            for number in range(RECORDS):
                again(append, log, number)
                if number % 8 == 7:
                    again(flush, rig, log)
                assert everything(log) == expected[: number + 1], (writes, number)
            again(flush, rig, log)
            assert log.recovery_point == RECORDS
        for recovery_point in (0, log.recovery_point):
            reopened = rig.open(SMALL, clean=False, recovery_point=recovery_point)
            assert everything(reopened) == expected, writes
            assert reopened.log_end_offset == RECORDS
            found = by_time(reopened, NOW + 17)
            assert found is not None
            assert found.offset == 17
        rig.truncate(reopened, 0)
        flush(rig, reopened)
        for path in rig.trash.take_due(NOW + 100_000):
            rig.files.remove(path.path)
        if not disk.hit:
            break
        hits += 1
        writes += 1
    assert hits > RECORDS


def test_a_topic_id_that_found_no_room_is_durable_after_the_next_flush(rig, monkeypatch) -> None:
    """Of a log that was found without one."""
    rig.files.remove(f"{rig.directory}/partition.metadata")
    log = rig.open()
    assert log.topic_id is None
    flush(rig, log)
    assert "partition.metadata" not in rig.names()
    log.topic_id = "A" * 22
    with monkeypatch.context() as patched:
        FullDisk(patched, 0)
        with pytest.raises(OSError, match="No space"):
            flush(rig, log)
    flush(rig, log)
    assert rig.open().topic_id == "A" * 22
    with monkeypatch.context() as patched:
        disk = FullDisk(patched, 0)
        flush(rig, log)
        assert not disk.hit, "once is enough"
