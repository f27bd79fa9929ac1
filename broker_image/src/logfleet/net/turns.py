"""Whose pipelined requests are served next: the connections take turns, and all of them together leave room for others.

A peer may send thousands of requests at once. What of them is not served at once waits here, and in each step of the loop
one of the waiting connections has its turn, however many they are. So a new client comes after a few turns, not after a turn
of each. Kafka's Processor takes one request per channel and poll; a turn of several costs less where nobody else is waiting.
"""

import asyncio
from collections import deque
from collections.abc import Callable

# Small requests that are served in one step of the loop, about a millisecond's.
REQUESTS_PER_STEP_MAX = 16


class Turns:
    """The waiting connections of a listener, in the order in which they came.

    requests: how many of its requests a connection may have served before it must wait: one while others wait.
    """

    __slots__ = ("_waiting", "requests")

    def __init__(self) -> None:
        self.requests = REQUESTS_PER_STEP_MAX
        self._waiting: deque[Callable[[], None]] = deque()

    def __len__(self) -> int:
        return len(self._waiting)

    def wait(self, have_turn: Callable[[], None]) -> None:
        """Call `have_turn` in a later step, after those that wait already."""
        if not self._waiting:
            asyncio.get_running_loop().call_soon(self._next)
        self._waiting.append(have_turn)
        self.requests = 1

    def _next(self) -> None:
        have_turn = self._waiting[0]
        self.requests = REQUESTS_PER_STEP_MAX
        try:
            have_turn()  # it may wait again: behind the others, itself still among them
        finally:
            self._waiting.popleft()
            if self._waiting:
                self.requests = 1
                asyncio.get_running_loop().call_soon(self._next)
            else:
                self.requests = REQUESTS_PER_STEP_MAX
