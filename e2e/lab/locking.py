"""One lab at a time: its names in the kernel are the machine's, whoever's clone they came from."""

import fcntl
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from e2e.lab.commands import LabError
from e2e.lab.settings import Settings


@contextmanager
def only_lab(settings: Settings, wait_s: float = 0.0) -> Iterator[None]:
    """Hold the machine's lab. Raises LabError naming the holder if another run has it after `wait_s`.

    The kernel lets go of the lock with the process, however that ends.
    """
    settings.state.mkdir(parents=True, exist_ok=True)
    end = time.monotonic() + wait_s
    with (settings.state / "lock").open("a+") as lock:
        while not _try(lock.fileno()):
            if time.monotonic() >= end:
                lock.seek(0)
                raise LabError(f"another run uses the local Kubernetes: {lock.read().strip()}")
            time.sleep(0.2)
        lock.truncate(0)
        lock.write(f"process {os.getpid()} in {Path.cwd()}\n")
        lock.flush()
        yield


def _try(file: int) -> bool:
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
