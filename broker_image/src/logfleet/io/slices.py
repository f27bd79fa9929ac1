"""Long work on the event loop, cut into slices: who walks over many things lets the loop do something else in between."""

import asyncio
import time
from typing import Final

SLICE_S: Final = 0.002
"""How long a slice lasts, and the step that ends it: most take well below a millisecond, a few calls of the file system two or three.
So clients wait for less than 5 ms."""


class Slices:
    """When the present slice ends. Those who share one have it together. rest_s: pause after each, for work that nobody waits for."""

    __slots__ = ("_end_s", "_rest_s")

    def __init__(self, rest_s: float = 0.0) -> None:
        self._end_s = 0.0
        self._rest_s = rest_s

    def begin(self) -> None:
        """A slice begins: the loop has just had its turn."""
        self._end_s = time.monotonic() + SLICE_S

    async def breathe(self) -> None:
        """Let the loop do something else if the slice is over; to be called between two steps."""
        if time.monotonic() >= self._end_s:
            await asyncio.sleep(self._rest_s)
            self.begin()
