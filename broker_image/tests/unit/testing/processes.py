"""Waiting for processes to end."""

import os
import select

END_MS_MAX = 30_000


def ended(pids: list[int]) -> bool:
    """Whether none of the processes runs, waiting for those that are about to end."""
    for pid in pids:
        try:
            descriptor = os.pidfd_open(pid)
        except ProcessLookupError:
            continue
        try:
            readable, _, _ = select.select([descriptor], [], [], END_MS_MAX / 1000)
        finally:
            os.close(descriptor)
        if not readable:
            return False
    return True
