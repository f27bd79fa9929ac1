from logfleet.io.files import PosixFiles
from logfleet.log.directories.disk_space import DiskSpace
from logfleet.log.directories.free_space import DiskRoom
from logfleet.log.directories.log_dirs import LogDirs
from logfleet.log.flushing.flusher import Flusher
from logfleet.log.segments.open_files import OpenFiles
from logfleet.node.metrics.storage import disks

from broker_image.tests.unit.node.metrics.metric_values import metric_values


def test_a_disk_that_fills_up_is_reported() -> None:
    files = PosixFiles()
    log_dirs = LogDirs(OpenFiles(files), [])
    space = DiskSpace(files, Flusher(files), log_dirs, 0)
    space.rooms["/data"] = DiskRoom(1_000, 100, 100)
    space.full.add("/data")
    log_dirs.failed.append("/other")
    values = metric_values(disks(space, log_dirs))
    assert values("logfleet_disk_bytes", path="/data") == 1_000
    assert values("logfleet_disk_free_bytes", path="/data") == 200
    assert values("logfleet_disk_full", path="/data") == 1
    assert values("logfleet_disk_used_over", path="/data", percent="80") == 1
    assert values("logfleet_disk_used_over", path="/data", percent="95") == 0
    assert values("logfleet_offline_log_directories") == 1
