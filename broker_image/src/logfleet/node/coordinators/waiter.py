"""A parked request of a coordinator."""

import asyncio
from collections.abc import Awaitable
from functools import partial
from typing import Generic, TypeVar

from logfleet.net.peer import Peer

R = TypeVar("R")


class Waiter(Generic[R]):
    """Receives the answer to one request."""

    __slots__ = ("_arrived", "response")

    def __init__(self) -> None:
        self.response: R | None = None
        self._arrived: asyncio.Future[None] | None = None

    def answer(self, response: R) -> None:
        """Set the answer to the request; only the first counts."""
        if self.response is not None:
            return
        self.response = response
        if self._arrived is not None and not self._arrived.done():
            self._arrived.set_result(None)

    def result(self, peer: Peer, otherwise: R) -> R | Awaitable[R]:
        """The answer, or what to await for it.

        otherwise: the answer if the connection is lost or the broker stops first.
        """
        return self.response if self.response is not None else self.wait(peer, otherwise)

    async def wait(self, peer: Peer, otherwise: R) -> R:
        """The answer, once it is there; see `result`."""
        if self.response is None:
            self._arrived = asyncio.get_running_loop().create_future()
            peer.on_leave = partial(self.answer, otherwise)
            try:
                await self._arrived
            finally:
                peer.on_leave = None
        assert self.response is not None
        return self.response
