"""A process without a free descriptor at any one moment.

The log is then what it was, goes on when there is one, and is whole on disk.
"""

import errno
from collections.abc import Callable

import pytest
from logfleet.io.files import PosixFiles, is_out_of_descriptors
from logfleet.log.config import LogConfig
from logfleet.log.partition_log import PartitionLog

from broker_image.tests.sim.rebuild import index_faults, producer_faults
from broker_image.tests.unit.log.log_rig import LogRig
from broker_image.tests.unit.log.searching import by_time, youngest
from broker_image.tests.unit.log.test_log_without_room import NOW, append, everything, flush

SMALL = LogConfig(segment_bytes=500, index_interval_bytes=100)
RECORDS = 12
IN_A_ROW = 2
"""Whatever is tried again at once finds none either."""


class NoDescriptors:
    """Raises EMFILE at the operation that needs a descriptor after so many, and at the next ones.

    hit: whether it came to that.
    """

    def __init__(self, monkeypatch: pytest.MonkeyPatch, operations: int) -> None:
        self.left = operations
        self.hit = False
        for name in ("open", "fsync_directory", "list_directory"):
            monkeypatch.setattr(PosixFiles, name, self._failing(getattr(PosixFiles, name)))

    def _failing(self, whole: Callable[..., object]) -> Callable[..., object]:
        def call(files: PosixFiles, path: str, **how: bool) -> object:
            self.left -= 1
            if -IN_A_ROW <= self.left < 0:
                self.hit = True
                raise OSError(errno.EMFILE, "Too many open files", path)
            return whole(files, path, **how)

        return call


def until_done(work: Callable[..., None], *args: object) -> None:
    """Again as long as there are no descriptors."""
    for _ in range(IN_A_ROW + 1):
        try:
            work(*args)
        except OSError as error:
            if not is_out_of_descriptors(error):
                raise
        else:
            return
    raise AssertionError("it failed more often than there was a reason")


def look(log: PartitionLog, expected: list[bytes]) -> None:
    """What readers ask for, at its beginning, in its middle and by time."""
    assert everything(log) == expected
    middle = len(expected) // 2
    found = by_time(log, NOW + middle)
    assert found is not None
    assert found.offset == middle
    newest = youngest(log)
    assert newest is not None
    assert newest.offset == len(expected) - 1


def write_all(rig: LogRig, log: PartitionLog, expected: list[bytes]) -> None:
    for number in range(RECORDS):
        until_done(append, log, number)
        if number % 6 == 5:
            until_done(flush, rig, log)
        until_done(look, log, expected[: number + 1])
    until_done(flush, rig, log)


@pytest.mark.parametrize("pending_bytes_max", [1, 4096], ids=["indexes at once", "indexes late"])
def test_no_want_of_descriptors_harms_the_log(rig, monkeypatch, pending_bytes_max) -> None:
    monkeypatch.setattr("logfleet.log.segments.index_file.PENDING_BYTES_MAX", pending_bytes_max)
    expected = [b"%d" % number for number in range(RECORDS)]
    operations, hits = 0, 0
    while True:
        with monkeypatch.context() as patched:
            log = rig.open(SMALL)
            rig.open_files._limit = 1  # nearly every file has to be reopened
            limit = NoDescriptors(patched, operations)
            write_all(rig, log, expected)
        assert log.recovery_point == RECORDS
        assert producer_faults(log) == []
        for segment in log.segments:
            assert index_faults(segment, SMALL.index_interval_bytes) == [], operations
        reopened = rig.open(SMALL, clean=False, recovery_point=log.recovery_point)
        look(reopened, expected)
        rig.truncate(reopened, 0)
        flush(rig, reopened)
        for discarded in rig.trash.take_due(NOW + 100_000):
            rig.files.remove(discarded.path)
        if not limit.hit:
            break
        hits += 1
        operations += 1
    assert hits > RECORDS
