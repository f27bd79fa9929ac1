"""The order of calls that may have to wait before they take effect."""

import asyncio
from types import TracebackType
from typing import Self

from logfleet.client.errors import ClientError


class CallOrder:
    """Use as `async with`: the blocks run one at a time, in the order in which they were entered.

    A waiting caller may be cancelled; the others keep their order (asyncio.Lock is fair).
    """

    __slots__ = ("_failure", "_lock")

    def __init__(self) -> None:
        self._failure: ClientError | None = None
        self._lock = asyncio.Lock()

    async def __aenter__(self) -> Self:
        """Raises the error that `fail` was called with, if it was."""
        await self._lock.acquire()
        if self._failure is not None:
            self._lock.release()
            raise self._failure
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._lock.release()

    def fail(self, error: ClientError) -> None:
        """Let all callers that wait for their turn raise this error instead."""
        self._failure = error
