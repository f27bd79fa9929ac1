"""Files and a metadata store that do not wait for the disk.

A killed broker loses nothing by that: what it has written is in the page cache.
"""

from pathlib import Path

from logfleet.config.broker import BrokerConfig
from logfleet.io.dead_mans_timer import NO_TIMER, DeadMansTimer
from logfleet.io.files import File, PosixFile, PosixFiles
from logfleet.io.sqlite import SqliteStore
from logfleet.metadata.store import MetadataStore
from logfleet.store.opening import embedded_file, open_store


class UnsyncedFile(PosixFile):
    """A file whose writes reach the disk when the system likes."""

    __slots__ = ()

    def fsync(self) -> None: ...


class UnsyncedFiles(PosixFiles):
    """The operating system's files, without waiting for the disk."""

    def open(self, path: str, *, create: bool = False) -> File:
        return UnsyncedFile(path, create=create)

    def fsync_directory(self, path: str) -> None: ...


async def open_unsynced_store(
    config: BrokerConfig, timer: DeadMansTimer = NO_TIMER
) -> MetadataStore:
    """As `store.opening.open_store`, but SQLite does not wait for the disk."""
    path: Path | None = embedded_file(config)
    if path is None:
        return await open_store(config, timer)
    return await SqliteStore.open(path, is_synced=False)
