"""A peer's connection without a socket, for answers in a later step of the loop."""

import asyncio
from collections.abc import Awaitable
from typing import Any

from logfleet.net.connection import CloseConnection
from logfleet.net.peer import PARKED, Peer
from logfleet.node.dispatch import Dispatcher, ParkedRequest
from logfleet.telemetry.request_stats import RequestStats

PATIENCE_S = 20


class FakeLink:
    """throttles: in ms, as they came."""

    def __init__(self, peer: Peer) -> None:
        peer.link = self
        self.throttles: list[int] = []
        self._answers: asyncio.Queue[Any] = asyncio.Queue()

    def answer(self, answer: Any) -> None:
        self._answers.put_nowait(answer)

    def refuse(self, reason: str) -> None:
        self._answers.put_nowait(CloseConnection(reason))

    def throttle(self, throttle_ms: int) -> None:
        self.throttles.append(throttle_ms)

    @property
    def has_answered(self) -> bool:
        return not self._answers.empty()

    async def wait(self, given: Any) -> Any:
        """The answer, whenever it comes. given: what the dispatcher returned.

        Raises CloseConnection.
        """
        if isinstance(given, Awaitable):
            return await given
        if given is not PARKED:
            return given
        async with asyncio.timeout(PATIENCE_S):
            answer = await self._answers.get()
        if isinstance(answer, CloseConnection):
            raise answer
        return answer


class _Unencoded:
    """Stands for a version of an API whose answers are left as they are."""

    is_fenced = False

    def __init__(self) -> None:
        self.stats = RequestStats()

    def answer(self, correlation_id: int, response: Any) -> Any:
        del correlation_id
        return response

    def counts(self, error: Exception) -> bool:
        raise error


def response_to(parked: ParkedRequest, peer: Peer) -> Awaitable[Any]:
    """The response that a handler gives to a request that it has parked."""
    served: Any = _Unencoded()
    parked.park(Dispatcher(None, {}), served, peer, 1, 0.0)
    return FakeLink(peer).wait(PARKED)
