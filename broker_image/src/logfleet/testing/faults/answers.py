"""Changes and delays what a handler answers, at once or later.

A handler returns its response, an awaitable of it, or a parked request, which replies in a later
step of the loop. None of them is changed itself: something that stands around it is returned.
"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import msgspec

from logfleet.net.connection import CloseConnection, Encoded
from logfleet.net.peer import Peer
from logfleet.node.dispatch import ParkedRequest

Result = Any  # Response | Awaitable[Response] | ParkedRequest
Change = Callable[[Any], Any]
"""Makes of a response the one that is sent; may raise CloseConnection."""


def lose(number: int, _: Any) -> Any:
    """The change that sends nothing: the connection ends."""
    raise CloseConnection(f"fault {number} loses the answer")


def changed(result: Result, change: Change) -> Result:
    """What a handler returned, with its response changed once it is there."""
    if isinstance(result, ParkedRequest):
        return _ChangedParked(result, change)
    if isinstance(result, Awaitable):
        return _changed_later(result, change)
    return change(result)


async def _changed_later(result: Awaitable[Any], change: Change) -> Any:
    return change(await result)


def delayed(result: Result, peer: Peer, delay_s: float) -> Result:
    """What a handler returned, answered that much later, or as soon as the client is gone."""
    if isinstance(result, ParkedRequest):
        return _DelayedParked(result, delay_s)
    return _delayed(result, peer, delay_s)


async def _delayed(result: Any, peer: Peer, delay_s: float) -> Any:
    pause = _Pause(peer)
    response = await result if isinstance(result, Awaitable) else result
    await pause.last(delay_s)
    return response


class _Pause:
    """A wait that ends early when the connection or the broker does, even before it began."""

    def __init__(self, peer: Peer) -> None:
        self._peer = peer
        self._over = asyncio.Event()
        self._also = peer.on_leave
        peer.on_leave = self._leave

    def _leave(self) -> None:
        self._over.set()
        if self._also is not None:
            self._also()

    async def last(self, seconds: float) -> None:
        """Wait for this time."""
        self._also, self._peer.on_leave = None, self._leave
        try:
            async with asyncio.timeout(seconds):
                await self._over.wait()
        except TimeoutError:
            pass
        finally:
            self._peer.on_leave = None


class _Around(ParkedRequest):
    """Stands for a parked request of the handler, which goes on waiting itself."""

    def __init__(self, inner: ParkedRequest) -> None:
        self._inner = inner

    def count_memory(self, memory: int) -> None:
        self._inner.count_memory(memory)

    def measure(self, request: msgspec.Struct, usage: Any) -> None:
        self._inner.measure(request, usage)


class _ChangedParked(_Around):
    """Its response is changed before it is encoded."""

    def __init__(self, inner: ParkedRequest, change: Change) -> None:
        super().__init__(inner)
        self._change = change

    def park(
        self, dispatcher: Any, served: Any, peer: Peer, correlation_id: int, started: float
    ) -> None:
        changing: Any = _ChangedAnswers(served, self._change)
        self._inner.park(dispatcher, changing, peer, correlation_id, started)


class _ChangedAnswers:
    """A version of an API (`node.dispatch`) whose responses are changed before it encodes them."""

    def __init__(self, served: Any, change: Change) -> None:
        self._served = served
        self._change = change

    def __getattr__(self, name: str) -> Any:
        return getattr(self._served, name)

    def answer(self, correlation_id: int, response: Any) -> Any:
        return self._served.answer(correlation_id, self._change(response))


class _DelayedParked(_Around):
    """Its answer is sent later."""

    def __init__(self, inner: ParkedRequest, delay_s: float) -> None:
        super().__init__(inner)
        self._delay_s = delay_s

    def park(
        self, dispatcher: Any, served: Any, peer: Peer, correlation_id: int, started: float
    ) -> None:
        late: Any = _LatePeer(peer, self._delay_s)
        self._inner.park(dispatcher, served, late, correlation_id, started)


class _LatePeer:
    """A connection that is answered later."""

    def __init__(self, peer: Peer, delay_s: float) -> None:
        self._peer = peer
        self._delay_s = delay_s
        self._pause = _Pause(peer)
        self._task: asyncio.Task[None] | None = None

    def answer(self, answer: Encoded) -> None:
        self._task = asyncio.get_running_loop().create_task(self._answer(answer))

    async def _answer(self, answer: Encoded) -> None:
        await self._pause.last(self._delay_s)
        self._peer.answer(answer)

    def refuse(self, reason: str) -> None:
        self._peer.refuse(reason)
