"""The threads and timers that the other rooms share."""

import asyncio
from collections.abc import Callable
from concurrent.futures import Executor, ThreadPoolExecutor
from dataclasses import dataclass
from typing import Final, TypeVar

from logfleet.io.files import Files
from logfleet.io.timers import TimerWheel
from logfleet.log.flushing.flusher import Flusher
from logfleet.node.lifetime import Lifetime

T = TypeVar("T")

COMPUTE_THREADS: Final = 2
"""For work that releases the interpreter lock: compression, reading ahead, offsets by time."""


@dataclass(frozen=True, slots=True)
class Workers:
    """compute: threads for what takes long. timers: for parked requests and flush rules."""

    compute: Executor
    flusher: Flusher
    timers: TimerWheel

    async def run_in_thread(self, work: Callable[..., T], *args: object) -> T:
        """Run something that takes long and releases the interpreter lock."""
        return await asyncio.get_running_loop().run_in_executor(self.compute, work, *args)


def open_workers(files: Files, life: Lifetime) -> Workers:
    """The threads stop after all rooms that use them have closed."""
    compute = ThreadPoolExecutor(COMPUTE_THREADS, thread_name_prefix="compute")
    workers = Workers(compute, Flusher(files), TimerWheel())
    for stop in (compute.shutdown, workers.flusher.stop, workers.timers.stop):
        life.closing.callback(stop)
    return workers
