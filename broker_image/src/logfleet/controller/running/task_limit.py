"""Runs a limited number of tasks at the same time."""

import asyncio
from collections.abc import Coroutine
from types import TracebackType
from typing import Any, Self


class TaskLimit:
    """`start` waits until fewer than `limit` tasks run; the block ends once all have ended.

    A failing task stops no other; the end of the block raises the first error. Cancelling the block
    cancels the tasks.
    """

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._running: set[asyncio.Task[None]] = set()
        self._error: BaseException | None = None

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if isinstance(error, asyncio.CancelledError):
            await self._cancel()
        await self._until_fewer_than(1)
        if self._error is not None and error is None:
            raise self._error

    async def start(self, work: Coroutine[Any, Any, None]) -> None:
        try:
            await self._until_fewer_than(self._limit)
        except asyncio.CancelledError:
            work.close()
            raise
        task = asyncio.get_running_loop().create_task(work)
        self._running.add(task)
        task.add_done_callback(self._ended)

    async def _until_fewer_than(self, count: int) -> None:
        try:
            while len(self._running) >= count:
                await asyncio.wait(self._running, return_when=asyncio.FIRST_COMPLETED)
        except asyncio.CancelledError:
            await self._cancel()
            raise

    async def _cancel(self) -> None:
        for task in self._running:
            task.cancel()
        if self._running:
            await asyncio.wait(self._running)

    def _ended(self, task: "asyncio.Task[None]") -> None:
        self._running.discard(task)
        if not task.cancelled() and self._error is None:
            self._error = task.exception()
