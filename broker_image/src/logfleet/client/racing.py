"""Connects to the first of several brokers that responds.

A broker that is gone for good, or a wrong address, must not delay a client that another broker can
serve. After STAGGER_S without a response, or at once after a failure, the next one is tried as well
(RFC 8305, Happy Eyeballs, does it for the addresses of one name).
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Final

from logfleet.client.connection import Connection
from logfleet.client.errors import ClientError, ConnectionLost, UnknownHost

STAGGER_S: Final = 0.25


async def first_connection(attempts: Sequence[Callable[[], Awaitable[Connection]]]) -> Connection:
    """The first connection that succeeds; later ones are closed.

    Raises ConnectionLost, with all reasons, if none does: UnknownHost if no name has an address.
    """
    failures: list[ClientError] = []
    running: set[asyncio.Future[Connection]] = set()
    left = list(attempts)
    try:
        while left or running:
            if left:
                running.add(asyncio.ensure_future(left.pop(0)()))
            ended, running = await asyncio.wait(
                running,
                timeout=STAGGER_S if left else None,
                return_when=asyncio.FIRST_COMPLETED,
            )
            for task in ended:
                error = task.exception()
                if error is None:
                    running |= ended - {task}
                    return task.result()
                if not isinstance(error, ClientError):
                    raise error
                failures.append(error)
    finally:
        for task in running:
            task.cancel()
            task.add_done_callback(_drop)
    unknown = all(isinstance(failure, UnknownHost) for failure in failures)
    kind = UnknownHost if unknown else ConnectionLost
    raise kind("; ".join(map(str, failures)))


def _drop(task: "asyncio.Future[Connection]") -> None:
    if not task.cancelled() and task.exception() is None:
        task.result().close()
