"""The checks of `logfleet doctor` on one entry of log.dirs: its owner, its lock, its disk."""

import os
import time
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from logfleet.config.broker import BrokerConfig
from logfleet.io.files import FileLocked, Files, Space, process_name, read_file
from logfleet.log.checkpoints.files import CorruptCheckpoint, parse_properties
from logfleet.log.directories.free_space import wanted_reserve
from logfleet.log.directories.log_dirs import logs_in
from logfleet.log.names import HIGH_WATERMARKS, LOCK, META_PROPERTIES, RECOVERY_POINTS
from logfleet.node.cluster.own_data import data_without_identity
from logfleet.node.tools.finding import Finding, Level

USED_WARNING: Final = 0.80
USED_FAILED: Final = 0.95
FSYNC_MS_MAX: Final = 200
"""A slower disk, by the time to make 4 KiB durable, stalls producers now and then."""
CLOCK_BEHIND_MS_MAX: Final = 1000
SAMPLE_BYTES: Final = 4096


class DirectoryCheck:
    """One entry of log.dirs. is_locked: a broker is running on it.

    cluster_id, directory_id: of its meta.properties.
    """

    def __init__(self, files: Files, path: str, config: BrokerConfig) -> None:
        self._files = files
        self._path = path
        self._config = config
        self.is_locked = False
        self.cluster_id: str | None = None
        self.directory_id: str | None = None

    def findings(self) -> Iterator[Finding]:
        path = Path(self._path)
        there = path
        try:
            while not there.exists() and there != there.parent:
                there = there.parent
        except OSError as error:
            yield cannot_be_entered("log directory", there, error)
            return
        if there != path:
            yield Finding("log directory", Level.OK, f"{path} will be made at the first start")
        else:
            yield self._check_lock()
            yield self._check_identity()
            yield from self._check_times()
        try:
            taken_ms = _fsync_ms(there)
        except OSError as error:
            yield Finding(
                "log directory",
                Level.FAILED,
                f"{there} cannot be written: {error.strerror}; give it to the user that runs the "
                "broker, or mend the disk",
            )
            return
        yield judge_fsync(str(there), taken_ms)
        space = self._files.space(str(there))
        yield judge_space(self._path, space, self._config.logfleet_disk_reserve_bytes)

    def _check_lock(self) -> Finding:
        try:
            if (Path(self._path) / LOCK).exists():
                self._files.lock(f"{self._path}/{LOCK}", process_name()).release()
        except FileLocked as error:
            self.is_locked = True
            return Finding(
                "log directory",
                Level.OK,
                f"{self._path} is in use by {error.holder or 'another process'}",
            )
        except OSError as error:
            return Finding(
                "log directory",
                Level.FAILED,
                f"{error.filename} cannot be locked: {error.strerror}; give it to the user that "
                "runs the broker",
            )
        return Finding("log directory", Level.OK, f"{self._path} is in use by nobody")

    def _check_identity(self) -> Finding:
        name = f"{self._path}/{META_PROPERTIES}"
        try:
            data = read_file(self._files, name)
            if data is None and (logs := logs_in(self._files, self._path)):
                return Finding(
                    "identity",
                    Level.FAILED,
                    f"{data_without_identity({self._path: logs})}: bring it back from a copy, or "
                    "start the broker, which says what to write",
                )
            if data is None:
                return Finding("identity", Level.OK, f"{self._path} holds no data yet")
            properties = parse_properties(data)
            self.cluster_id, node_id = properties["cluster.id"], properties["node.id"]
            self.directory_id = properties.get("directory.id")
        except (CorruptCheckpoint, KeyError, OSError) as error:
            return Finding(
                "identity",
                Level.FAILED,
                f"{name} cannot be used ({error}): bring it back from a copy of the directory",
            )
        if node_id != str(self._config.node_id):
            return Finding(
                "identity",
                Level.FAILED,
                f"{self._path} is of node {node_id}, node.id is {self._config.node_id}: set "
                f"node.id={node_id}, or name this broker's own directory",
            )
        return Finding(
            "identity", Level.OK, f"{self._path} is of node {node_id} of cluster {self.cluster_id}"
        )

    def _check_times(self) -> Iterator[Finding]:
        """Report a checkpoint from the future: the clock was set back since."""
        now_ms = time.time_ns() // 1_000_000
        for name in (RECOVERY_POINTS, HIGH_WATERMARKS):
            try:
                written_ms = self._files.status(f"{self._path}/{name}").modified_ms
            except OSError:
                continue
            if written_ms > now_ms + CLOCK_BEHIND_MS_MAX:
                yield Finding(
                    "clock",
                    Level.FAILED,
                    f"{self._path}/{name} was written {(written_ms - now_ms) / 1000:.0f} s from "
                    "now: set the clock (chrony or systemd-timesyncd), retention by time goes by "
                    "it",
                )
                return


def cannot_be_entered(check: str, path: Path, error: OSError) -> Finding:
    """The finding that even the existence of the path cannot be checked."""
    return Finding(
        check,
        Level.FAILED,
        f"{path} cannot be checked: {error.strerror}; let the user that runs the broker enter "
        f"{path.parent} and what is above it",
    )


def _fsync_ms(directory: Path) -> float:
    """Measure the time until 4 KiB are durable in a directory. Raises OSError."""
    name = directory / f".doctor-{uuid.uuid4().hex}"
    began_s = time.monotonic()
    fd = os.open(name, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        os.write(fd, bytes(SAMPLE_BYTES))
        os.fsync(fd)
    finally:
        os.close(fd)
        name.unlink()
    return (time.monotonic() - began_s) * 1000


def judge_fsync(path: str, taken_ms: float) -> Finding:
    """Judge a disk by its speed. taken_ms: for one small write and its fsync."""
    measured = f"{path} makes 4 KiB durable in {taken_ms:.1f} ms"
    if taken_ms > FSYNC_MS_MAX:
        return Finding(
            "disk",
            Level.WARNING,
            f"{measured}: producers would feel it; use a faster disk, or one that others use less",
        )
    return Finding("disk", Level.OK, measured)


def judge_space(path: str, space: Space, reserve_bytes: int) -> Finding:
    """Judge a disk by its free space. reserve_bytes: as configured; small disks keep less."""
    free = space.usable_bytes / space.total_bytes if space.total_bytes else 1.0
    measured = f"{free:.0%} of the disk of {path} is free"
    if (
        space.usable_bytes <= 2 * wanted_reserve(reserve_bytes, space.total_bytes)
        or free < 1 - USED_FAILED
    ):
        return Finding(
            "disk",
            Level.FAILED,
            f"{measured}: make room or shorten retention, producing stops when the reserve is "
            "reached",
        )
    if free < 1 - USED_WARNING:
        return Finding(
            "disk", Level.WARNING, f"{measured}: plan for more room, or shorten retention"
        )
    return Finding("disk", Level.OK, measured)
