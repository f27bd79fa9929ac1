"""Finds out how the broker's last run on a log directory ended: closed, killed or unknown.

The clean-shutdown file (Kafka: CleanShutdownFileHandler) is written when the directory is closed. A
running file is written while the broker runs: if the next start finds it, and the file system has
stayed mounted since, only the process has died, and everything that it wrote is there. Both files
name the broker epoch of the last registration that the controller made active; by it the controller
recognises a directory that is older than that (KIP-966).
"""

import contextlib
from typing import Final

import msgspec

from logfleet.io.files import Files, read_file, remove_if_there, write_file
from logfleet.log.checkpoints.files import (
    format_clean_shutdown,
    format_running,
    parse_clean_shutdown,
    parse_running,
)
from logfleet.log.names import CLEAN_SHUTDOWN, META_PROPERTIES, RUNNING
from logfleet.types import BrokerEpoch

IDENTIFIED_FILE: Final = META_PROPERTIES
"""The running file identifies the mount by this file: it is written once, and never again by a
broker."""


class LastRun(msgspec.Struct, frozen=True):
    """The end of the last run. was_clean: the directory was closed.

    was_killed: the process ended, but the file system stayed mounted. broker_epoch: of the last
    registration that was active, None if the directory has no trustworthy one.
    """

    was_clean: bool
    was_killed: bool
    broker_epoch: BrokerEpoch | None


def read_last_run(files: Files, path: str) -> LastRun:
    """Find out how the last run on the log directory `path` ended. It has meta.properties.

    Raises OSError.
    """
    marker = read_file(files, f"{path}/{CLEAN_SHUTDOWN}")
    if marker is not None:
        return LastRun(was_clean=True, was_killed=False, broker_epoch=parse_clean_shutdown(marker))
    content = read_file(files, f"{path}/{RUNNING}")
    running = None if content is None else parse_running(content)
    if running is None or running.identity != files.file_identity(f"{path}/{IDENTIFIED_FILE}"):
        return LastRun(was_clean=False, was_killed=False, broker_epoch=None)
    return LastRun(was_clean=False, was_killed=True, broker_epoch=running.broker_epoch)


def remove_run_files(files: Files, path: str, last: LastRun) -> None:
    """Remove both files: a crash from here on leaves a directory that has neither.

    Raises OSError.
    """
    remove_if_there(files, f"{path}/{RUNNING}")
    if last.was_clean:
        files.remove(f"{path}/{CLEAN_SHUTDOWN}")
        files.fsync_directory(path)


def write_running(files: Files, path: str, broker_epoch: BrokerEpoch) -> None:
    """Write the running file: from here on nothing is lost if only the process dies. Blocks.

    If it cannot be written, or the mount cannot be identified, the next start assumes that records
    may be lost.
    """
    with contextlib.suppress(OSError):
        identity = files.file_identity(f"{path}/{IDENTIFIED_FILE}")
        if identity is not None:
            content = format_running(identity, broker_epoch)
            write_file(files, f"{path}/{RUNNING}", content, durable=True)


def remove_running(files: Files, path: str) -> None:
    """Remove the running file: the disk has failed, so a killed process may have lost something."""
    with contextlib.suppress(OSError):
        remove_if_there(files, f"{path}/{RUNNING}")


def mark_closed(files: Files, path: str, broker_epoch: BrokerEpoch) -> None:
    """Write the clean-shutdown file, once everything is durable. Blocks. Raises OSError.

    Nothing may write to the directory any more.
    """
    marker = format_clean_shutdown(broker_epoch)
    write_file(files, f"{path}/{CLEAN_SHUTDOWN}", marker, durable=True)
