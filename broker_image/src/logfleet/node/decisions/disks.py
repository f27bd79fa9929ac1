"""Records disks that fail, fill up or stall as decisions: leadership may move because of them."""

from logfleet.log.directories.disk_failure import DiskFailure
from logfleet.log.directories.disk_space import DiskSpace
from logfleet.log.directories.log_dirs import LogDirs
from logfleet.log.names import TopicPartition
from logfleet.telemetry.decisions import Decision, Decisions, Kind


class RecordedDisks:
    """A DiskFailure that records what it decides; periodic calls of `check` find the rest."""

    def __init__(
        self, decisions: Decisions, failure: DiskFailure, log_dirs: LogDirs, disk_space: DiskSpace
    ) -> None:
        self._decisions = decisions
        self._failure = failure
        self._log_dirs = log_dirs
        self._disk_space = disk_space
        self._failed = 0
        self._full = frozenset[str]()
        self._held_up = frozenset[str]()
        log_dirs.open_files.on_write_failed.append(self.write_failed)

    def __call__(self, name: TopicPartition, error: OSError) -> None:
        """See DiskFailure."""
        self._failure(name, error)
        self.check(str(error))

    def write_failed(self, path: str, error: OSError) -> None:
        """See DiskFailure."""
        self._failure.write_failed(path, error)
        self.check(str(error))

    def check(self, reason: str = "it cannot be used at the start") -> None:
        """Record what has changed since the last check.

        reason: why a directory failed, if one did.
        """
        failed = self._log_dirs.failed
        for path in failed[self._failed :]:
            left = len(self._log_dirs.dirs)
            cause = f"log directory {path} is given up: {reason}"
            self._record(Kind.DIRECTORY_FAILED, path, cause, directories_left=left)
        self._failed = len(failed)
        full = frozenset(self._disk_space.full)
        for path in full - self._full:
            self._record(Kind.REFUSAL, path, f"the disk of {path} is full: records are refused")
        for path in self._full - full:
            self._record(
                Kind.REFUSAL, path, f"{path} is not full any more: records are taken again"
            )
        self._full = full
        disk = self._log_dirs.open_files.disk
        held_up = frozenset(each.path for each in self._log_dirs if disk(each.path).is_held_up)
        for path in held_up - self._held_up:
            self._record(Kind.STALL, path, f"the disk of {path} is slow: a thread writes to it")
        for path in self._held_up - held_up:
            self._record(Kind.STALL, path, f"{path} is not written by a thread any more")
        self._held_up = held_up

    def _record(self, kind: Kind, path: str, cause: str, **facts: object) -> None:
        self._decisions.record(Decision(kind, cause, facts={"path": path, **facts}))
