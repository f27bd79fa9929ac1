"""Cuts long work on the event loop into slices, so that the loop can do other things in between."""

import asyncio
import time
from typing import Final

SLICE_S: Final = 0.002
"""Length of a slice, without the step that ends it: most take well below a millisecond, a few
file system calls two or three. So clients wait for less than 5 ms."""


class Slices:
    """The end of the present slice, shared by all users of the object.

    rest_s: pause after each slice, for work that nobody waits for.
    """

    __slots__ = ("_end_s", "_rest_s")

    def __init__(self, rest_s: float = 0.0) -> None:
        self._end_s = 0.0
        self._rest_s = rest_s

    def begin(self) -> None:
        """Begin a slice: the loop has just had its turn."""
        self._end_s = time.monotonic() + SLICE_S

    async def pause_if_due(self) -> None:
        """Let the loop do something else if the slice is over; call it between two steps."""
        if time.monotonic() >= self._end_s:
            await asyncio.sleep(self._rest_s)
            self.begin()
