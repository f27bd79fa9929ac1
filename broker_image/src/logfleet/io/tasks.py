"""Cancels asyncio tasks and waits for their end."""

import asyncio
from typing import Any


async def cancel(task: "asyncio.Task[Any]") -> None:
    """Cancel the task and return once it has ended; its result or error is left to its owner."""
    task.cancel()
    await asyncio.wait([task])
