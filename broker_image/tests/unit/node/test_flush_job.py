from typing import Any

import pytest
from logfleet.io.files import PosixFiles
from logfleet.node.flush_job import FlushJob


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
