"""File descriptors: how many this process may have, and what they are used for.

Connections must not take what the logs need: without a descriptor a roll or a cold read fails, if
only for a while.
"""

import resource
from typing import Final

import msgspec

OPEN_FILES_MAX: Final = 4096
"""Segments and indexes kept open, over all log directories; more would save little."""
FILES_SHARE: Final = 4
"""With a low limit, one descriptor in this many is for the cache of open files."""
SPARE: Final = 64
"""Descriptors left for locks, the metadata store, listeners, log files, child processes ..."""
PER_CONNECTION: Final = 2
"""Descriptors of a connection: the socket, and its duplicate for sendfile (net.file_sender)."""
LIMIT_WANTED: Final = FILES_SHARE * OPEN_FILES_MAX
"""A limit that allows OPEN_FILES_MAX files, and thousands of connections."""
NO_LIMIT: Final = 2**31 - 1
TRY_AGAIN_S: Final = 1.0
"""Pause before a retry of what failed for want of descriptors, or of room."""


class Descriptors(msgspec.Struct, frozen=True):
    """The shares of a process's descriptors. limit: how many it may have, NO_LIMIT for any number.

    open_files: of the cache of segments and indexes. connections: limit over all listeners.
    """

    limit: int
    open_files: int
    connections: int


def shares_of(limit: int) -> Descriptors:
    """Divide the descriptors. limit: from getrlimit(2).

    A quarter of open_files is added for files that are in use after the cache has dropped them.
    """
    if limit in (resource.RLIM_INFINITY, NO_LIMIT):
        return Descriptors(NO_LIMIT, OPEN_FILES_MAX, NO_LIMIT)
    open_files = min(OPEN_FILES_MAX, limit // FILES_SHARE)
    reserve = open_files + open_files // 4 + SPARE
    return Descriptors(limit, open_files, max(1, (limit - reserve) // PER_CONNECTION))


def own() -> Descriptors:
    """How the descriptors of this process are shared."""
    return shares_of(resource.getrlimit(resource.RLIMIT_NOFILE)[0])


def raise_limit() -> str | None:
    """Raise this process's soft limit of open files to the hard one, as a JVM does.

    Shells and systemd start programs with a soft limit of 1,024, for the sake of select(2). Returns
    why it failed, else None.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == hard:
        return None
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    except (OSError, ValueError) as error:
        return str(error)
    return None
