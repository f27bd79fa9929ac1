"""How the broker's last run on a log directory ended: closed, killed or unknown.

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
from logfleet.log.checkpoints import (
    format_clean_shutdown,
    format_running,
    parse_clean_shutdown,
    parse_running,
)
from logfleet.log.names import CLEAN_SHUTDOWN, META_PROPERTIES, RUNNING

NAMED: Final = META_PROPERTIES
"""The running file identifies the mount by this file: it is written once, and never again by a
broker."""


class LastLife(msgspec.Struct, frozen=True):
    """was_clean: the directory was closed.

    was_killed: the process ended, but the file system stayed mounted.

    broker_epoch: of the last registration that was active, None if the directory has no trustworthy
    one.
    """

    was_clean: bool
    was_killed: bool
    broker_epoch: int | None


def read_last_life(files: Files, path: str) -> LastLife:
    """Read it from the log directory at `path`, which has its meta.properties. Raises OSError."""
    marker = read_file(files, f"{path}/{CLEAN_SHUTDOWN}")
    if marker is not None:
        return LastLife(was_clean=True, was_killed=False, broker_epoch=parse_clean_shutdown(marker))
    note = read_file(files, f"{path}/{RUNNING}")
    named = None if note is None else parse_running(note)
    if named is None or named.life != files.life_of(f"{path}/{NAMED}"):
        return LastLife(was_clean=False, was_killed=False, broker_epoch=None)
    return LastLife(was_clean=False, was_killed=True, broker_epoch=named.broker_epoch)


def forget_last_life(files: Files, path: str, last: LastLife) -> None:
    """Remove both files: a crash from here on leaves a directory that has neither.

    Raises OSError.
    """
    remove_if_there(files, f"{path}/{RUNNING}")
    if last.was_clean:
        files.remove(f"{path}/{CLEAN_SHUTDOWN}")
        files.fsync_directory(path)


def note_running(files: Files, path: str, broker_epoch: int) -> None:
    """Write the running file: from here on nothing is lost if only the process dies. Blocks.

    If it cannot be written, or the mount cannot be identified, the next start assumes that records
    may be lost.
    """
    with contextlib.suppress(OSError):
        life = files.life_of(f"{path}/{NAMED}")
        if life is not None:
            note = format_running(life, broker_epoch)
            write_file(files, f"{path}/{RUNNING}", note, durable=True)


def forget_running(files: Files, path: str) -> None:
    """Remove the running file: the disk has failed, so a killed process may have lost something."""
    with contextlib.suppress(OSError):
        remove_if_there(files, f"{path}/{RUNNING}")


def mark_closed(files: Files, path: str, broker_epoch: int) -> None:
    """Write the clean-shutdown file, once everything is durable. Blocks. Raises OSError.

    Nothing may write to the directory any more.
    """
    marker = format_clean_shutdown(broker_epoch)
    write_file(files, f"{path}/{CLEAN_SHUTDOWN}", marker, durable=True)
