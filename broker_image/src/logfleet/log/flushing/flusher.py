"""Makes logs durable in threads of their own, one flush per log at a time.

Each log directory has its own threads for flushes, so that a disk that hangs holds up no other. The
threads do nothing but wait for the disk; the default executor is left to name look-ups and the
like.
"""

import asyncio
from collections import defaultdict
from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from typing import TypeVar

from logfleet.io.files import Files
from logfleet.log.flushing.job import FlushJob
from logfleet.log.partition_log import PartitionLog

T = TypeVar("T")

# Concurrent flushes of a caller that has many logs to flush in one directory: enough to share the
# journal commits of a file system, few enough for a slow disk.
THREADS = 4
# Left for flushes that clients wait for, and for checking disks.
SPARE_THREADS = 1


class Flusher:
    """Runs flush jobs.

    Disk errors are raised to the caller; they mean that the log directory failed.
    """

    def __init__(self, files: Files) -> None:
        self._files = files
        self._pool = _threads()
        # log directory -> its threads
        self._pools: dict[str, ThreadPoolExecutor] = defaultdict(_threads)
        self._running: dict[int, asyncio.Future[None]] = {}

    async def flush(self, log: PartitionLog) -> None:
        """Return once everything that is in the log now is durable. Raises OSError.

        The flush is finished even if the caller is cancelled: the log relies on it.
        """
        await self.until_idle(log)  # a running one may have begun before the newest append
        try:
            job = log.begin_flush()
        except OSError:
            log.abandon_flush()
            raise
        running = asyncio.get_running_loop().create_task(self._complete(log, job))
        self._running[id(log)] = running
        await asyncio.shield(running)

    async def flush_to(
        self, log: PartitionLog, end_offset: int, is_wanted: Callable[[], bool]
    ) -> bool:
        """Return once everything below end_offset is durable; callers of one log share its flushes.

        Raises OSError.

        is_wanted: whether the log may still be flushed; called before each flush. Returns False if
        it may not and end_offset is not durable.
        """
        while log.recovery_point < end_offset:
            running = self._running.get(id(log))
            if running is not None:
                await asyncio.shield(running)
            elif is_wanted():
                await self.flush(log)  # begins at once: nothing came in between
            else:
                return False
        return True

    async def _complete(
        self, log: PartitionLog, job: FlushJob, pool: ThreadPoolExecutor | None = None
    ) -> None:
        loop = asyncio.get_running_loop()
        try:
            pool = pool or self._pools[log.disk.path]
            await loop.run_in_executor(pool, job.run, self._files)
            log.complete_flush(job)
        except OSError:
            log.abandon_flush()
            raise
        finally:
            if (
                self._running.get(id(log)) is asyncio.current_task()
            ):  # else a `holding` waits for this flush
                del self._running[id(log)]

    async def until_all_idle(self) -> None:
        """Return once all flushes that have begun by now have ended: before logs are closed.

        Raises OSError if one fails.
        """
        if self._running:
            done, _ = await asyncio.wait(list(self._running.values()))
            for each in done:
                each.result()

    async def close(self, logs: Iterable[PartitionLog], threads: int) -> None:
        """Complete logs that are not appended to any more and make them durable.

        Raises OSError at the end.

        threads: how many logs at a time, at least THREADS. None of the logs may be in the middle of
        a flush.
        """
        threads = max(threads, THREADS)
        rest = iter(list(logs))
        with ThreadPoolExecutor(threads, thread_name_prefix="close") as pool:
            ended = await asyncio.gather(
                *(self._close_some(rest, pool) for _ in range(threads)), return_exceptions=True
            )
        for error in ended:
            if error is not None:
                raise error

    async def _close_some(self, rest: Iterator[PartitionLog], pool: ThreadPoolExecutor) -> None:
        """Close logs from the shared iterator `rest`.

        After an error the others are still closed.
        """
        failed = None
        for log in rest:
            try:
                await self._complete(log, log.close(), pool)
            except OSError as error:
                failed = error
        if failed is not None:
            raise failed

    async def until_idle(self, log: PartitionLog) -> None:
        """Return once no flush of the log runs and nobody holds it.

        Call it before renaming its files.
        """
        while (running := self._running.get(id(log))) is not None:
            await asyncio.wait([running])

    @asynccontextmanager
    async def holding(self, log: PartitionLog) -> AsyncIterator[None]:
        """Hold the log to change its files: inside no flush of it runs, and nobody else holds it.

        Later callers wait from the first moment on, so that a log that is flushed without a pause
        can be held, too.
        """
        before = self._running.get(id(log))
        held = self._running[id(log)] = asyncio.get_running_loop().create_future()
        try:
            if before is not None:
                await asyncio.wait([before])
            yield
        finally:
            if before is not None and not before.done():  # cancelled: the next caller keeps waiting
                before.add_done_callback(lambda _: self._release(log, held))
            else:
                self._release(log, held)

    def _release(self, log: PartitionLog, held: "asyncio.Future[None]") -> None:
        if self._running.get(id(log)) is held:
            del self._running[id(log)]
        held.set_result(None)

    async def run(self, work: Callable[..., T], *args: object) -> T:
        """Run something that waits for the disk."""
        return await asyncio.get_running_loop().run_in_executor(self._pool, work, *args)

    def stop(self) -> None:
        """Wait for the running jobs. Blocks."""
        for pool in (self._pool, *self._pools.values()):
            pool.shutdown(wait=True)


def _threads() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(THREADS + SPARE_THREADS, thread_name_prefix="flush")
