"""Long work on the event loop, cut into slices: who walks over many things lets the loop do something else in between."""

import asyncio
import time
from typing import Final

SLICE_S: Final = 0.002
"""How long a slice lasts, and the step that ends it: most take well below a millisecond, a few calls of the file system two or three.
So clients wait for less than 5 ms."""


class Slices:
    """When the present slice ends. Those who share one have it together."""

    __slots__ = ("_end_s",)

    def __init__(self) -> None:
        self._end_s = 0.0

    async def breathe(self) -> None:
        """Let the loop do something else if the slice is over; to be called between two steps."""
        if time.monotonic() >= self._end_s:
            await asyncio.sleep(0)
            self._end_s = time.monotonic() + SLICE_S
