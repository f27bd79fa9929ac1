"""How long a broker lives: its tasks, what closes it again, and why it ended by itself."""

import asyncio
from collections.abc import Coroutine
from contextlib import AsyncExitStack
from typing import Any

import structlog

from logfleet.io.tasks import cancel
from logfleet.metadata.store import StoreError
from logfleet.node.cluster.registration.errors import RegistrationError

log = structlog.get_logger(__name__)


class Lifetime:
    """One broker's. closing: rooms register their closing here; the newest is closed first.

    failure: why the broker cannot go on, None while it can.
    """

    def __init__(self, node_id: int) -> None:
        self.failure: str | None = None
        self.closing = AsyncExitStack()
        self._node_id = node_id
        self._ended = asyncio.Event()

    def spawn(self, name: str, work: Coroutine[Any, Any, None]) -> None:
        """Run something for as long as the broker lives; the broker cannot go on without it."""
        task = asyncio.get_running_loop().create_task(work, name=name)
        task.add_done_callback(self._task_ended)
        self.closing.push_async_callback(cancel, task)

    def fail(self, reason: str) -> None:
        """Record that the broker cannot go on, and end it. The first reason is kept."""
        self.failure = self.failure or reason
        log.critical("broker_failed", broker=self._node_id, reason=reason)
        self._ended.set()

    def end(self) -> None:
        """Ask `until_ended` to return."""
        self._ended.set()

    async def until_ended(self) -> None:
        """Return when `end` or `fail` was called."""
        await self._ended.wait()

    def _task_ended(self, task: "asyncio.Task[None]") -> None:
        if task.cancelled():
            return
        error = task.exception()
        if error is not None and not isinstance(error, StoreError | RegistrationError):
            log.error("task_failed", task=task.get_name(), exc_info=error)
        self.fail(f"{task.get_name()}: {error}")
