"""File descriptors: how many this process may have, and who gets how many of them.

Connections must not take what the logs need: a roll or a cold read that finds no descriptor fails, if only for a while.
"""

import resource
from typing import Final

import msgspec

OPEN_FILES_MAX: Final = 4096
"""Segments and indexes that are kept open, over all log directories; more of them would save little."""
FILES_SHARE: Final = 4
"""A process that may open fewer keeps one file in so many descriptors."""
SPARE: Final = 64
"""For locks, the metadata store, listeners, log files, child processes and the admin port."""
PER_CONNECTION: Final = 2
"""Its socket, and the duplicate on which fetched records are sent (`logfleet.net.file_sender`)."""
LIMIT_WANTED: Final = FILES_SHARE * OPEN_FILES_MAX
"""With this one a process has all the files that it would keep open, and thousands of connections."""
NO_LIMIT: Final = 2**31 - 1
TRY_AGAIN_S: Final = 1.0
"""How long nothing is done about what failed for want of descriptors, or of room."""


class Descriptors(msgspec.Struct, frozen=True):
    """How a process's descriptors are shared out. limit: what it may open, NO_LIMIT for any number.

    open_files: kept open by the cache of segments and indexes. connections: of all listeners together, at most.
    """

    limit: int
    open_files: int
    connections: int


def shared_out(limit: int) -> Descriptors:
    """limit: as getrlimit(2) tells it.

    A quarter as many files as are kept open may besides be in use after the cache has dropped them.
    """
    if limit in (resource.RLIM_INFINITY, NO_LIMIT):
        return Descriptors(NO_LIMIT, OPEN_FILES_MAX, NO_LIMIT)
    open_files = min(OPEN_FILES_MAX, limit // FILES_SHARE)
    reserve = open_files + open_files // 4 + SPARE
    return Descriptors(limit, open_files, max(1, (limit - reserve) // PER_CONNECTION))


def own() -> Descriptors:
    """Of this process."""
    return shared_out(resource.getrlimit(resource.RLIMIT_NOFILE)[0])


def raise_limit() -> str | None:
    """Let this process, and those that it starts, open as many files as they ever may, as a JVM does (-XX:+MaxFDLimit).

    Shells and systemd start programs with a soft limit of 1,024, for the sake of select(2). Why it stayed as it was, else None.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == hard:
        return None
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    except (OSError, ValueError) as error:
        return str(error)
    return None
