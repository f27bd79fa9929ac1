"""Decides whose pipelined requests are served next.

Connections take turns, and leave time for others. A peer may send thousands of requests at once.
Those that are not served at once wait here, and each step of the loop gives one waiting connection
its turn, however many there are. So a new client waits for a few turns, not for a turn of each.
Kafka's Processor takes one request per channel and poll; a turn of several is cheaper if nobody
else waits.
"""

import asyncio
from collections import deque
from collections.abc import Callable

# Small requests that are served in one step of the loop: about a millisecond.
REQUESTS_PER_STEP_MAX = 16


class Turns:
    """The waiting connections of a listener, in their order of arrival.

    requests: how many of its requests a connection may have served before it must wait: one while
    others wait.
    """

    __slots__ = ("_waiting", "requests")

    def __init__(self) -> None:
        self.requests = REQUESTS_PER_STEP_MAX
        self._waiting: deque[Callable[[], None]] = deque()

    def __len__(self) -> int:
        return len(self._waiting)

    def wait(self, have_turn: Callable[[], None]) -> None:
        """Call `have_turn` in a later step, after the connections that already wait."""
        if not self._waiting:
            asyncio.get_running_loop().call_soon(self._next)
        self._waiting.append(have_turn)
        self.requests = 1

    def _next(self) -> None:
        have_turn = self._waiting[0]
        self.requests = REQUESTS_PER_STEP_MAX
        try:
            have_turn()  # if it waits again, it is queued behind the others
        finally:
            self._waiting.popleft()
            if self._waiting:
                self.requests = 1
                asyncio.get_running_loop().call_soon(self._next)
            else:
                self.requests = REQUESTS_PER_STEP_MAX
