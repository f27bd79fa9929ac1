"""A parked request of a coordinator."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Generic, TypeVar

from logfleet.net.peer import Peer

A = TypeVar("A")
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
        if self.response is not None:
            return self.response
        peer.on_leave = partial(self.answer, otherwise)
        try:
            return await self.arrived()
        finally:
            peer.on_leave = None

    def mapped(self, made: Callable[[R], A], peer: Peer, otherwise: R) -> A | Awaitable[A]:
        """What is made of the answer, or what to await for it; see `result`."""
        return when_all([self], lambda answers: made(answers[0]), peer, otherwise)

    async def arrived(self) -> R:
        """The answer, once it is there."""
        if self.response is None:
            self._arrived = asyncio.get_running_loop().create_future()
            await self._arrived
        assert self.response is not None
        return self.response


def when_all(
    waiters: Sequence[Waiter[A]], made: Callable[[list[A]], R], peer: Peer, otherwise: A
) -> R | Awaitable[R]:
    """What is made of all answers, or what to await for it; see `Waiter.result`."""
    answers = [waiter.response for waiter in waiters if waiter.response is not None]
    if len(answers) == len(waiters):
        return made(answers)

    async def later() -> R:
        return made(await all_arrived(waiters, peer, otherwise))

    return later()


async def all_arrived(waiters: Sequence[Waiter[A]], peer: Peer, otherwise: A) -> list[A]:
    """All answers, once they are there.

    otherwise: what those that have none by then get if the connection is lost or the broker stops.
    """

    def leave() -> None:
        for waiter in waiters:
            waiter.answer(otherwise)

    peer.on_leave = leave
    try:
        return [await waiter.arrived() for waiter in waiters]
    finally:
        peer.on_leave = None
