import errno
from typing import Any

import pytest
from logfleet.io.files import PosixFiles
from logfleet.log.flushing.job import FlushJob


class Disk(PosixFiles):
    """Notes the order in which things become durable."""

    def __init__(self):
        self.order = []

    def rename(self, source, target):
        super().rename(source, target)
        self.order.append(("renamed", target))

    def fsync_directory(self, path):
        super().fsync_directory(path)
        self.order.append(("names", path))


class Segment:
    def __init__(self, disk, *, fails=False):
        self.disk, self.fails = disk, fails

    def fsync(self):
        if self.fails:
            raise OSError(5, "Input/output error")
        self.disk.order.append(("data", self))


def test_data_comes_before_names(tmp_path):
    disk = Disk()
    one: Any = Segment(disk)
    two: Any = Segment(disk)
    writes = [(f"{tmp_path}/leader-epoch-checkpoint", b"0\n0\n")]
    FlushJob(7, [one, two], writes, [str(tmp_path)]).run(disk)
    assert disk.order == [
        ("data", one),
        ("data", two),
        ("renamed", writes[0][0]),
        ("names", str(tmp_path)),
        ("names", str(tmp_path)),
    ]
    assert (tmp_path / "leader-epoch-checkpoint").read_bytes() == b"0\n0\n"


def test_a_failing_disk_stops_the_job(tmp_path):
    disk = Disk()
    failing: Any = Segment(disk, fails=True)
    with pytest.raises(OSError, match="Input/output"):
        FlushJob(7, [failing], [(f"{tmp_path}/x", b"")], []).run(disk)
    assert disk.order == []


def test_records_lost_for_want_of_room_are_a_failure(tmp_path, monkeypatch):
    """A checkpoint that finds no room is none: ENOSPC stays what it is there."""
    file = PosixFiles().open(f"{tmp_path}/segment", create=True)

    def no_room(self):
        raise OSError(errno.ENOSPC, "No space left on device", self.path)

    monkeypatch.setattr(type(file), "fsync", no_room)
    with pytest.raises(OSError, match="not written: No space left") as lost:
        FlushJob(7, [file], [], []).run(PosixFiles())
    assert (lost.value.errno, lost.value.filename) == (errno.EIO, file.path)
    with pytest.raises(OSError, match="No space left") as full:
        FlushJob(7, [], [(f"{tmp_path}/x", b"")], []).run(PosixFiles())
    assert full.value.errno == errno.ENOSPC
