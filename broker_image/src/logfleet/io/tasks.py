"""What stands on a loop alone: ending its tasks."""

import asyncio
from typing import Any


async def cancel(task: "asyncio.Task[Any]") -> None:
    """Return once the task has ended, as it was told to; how it ended is for who made it."""
    task.cancel()
    await asyncio.wait([task])
