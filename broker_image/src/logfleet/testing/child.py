"""What all forked processes share: they serve the orders of their control channel on a loop."""

import asyncio
import contextlib
import socket
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, TypeVar

import structlog

from logfleet.testing.errors import OrderFailed
from logfleet.testing.frames import LENGTH, STARTED, decode, frame

log = structlog.get_logger(__name__)

T = TypeVar("T")
Order = Callable[[T, Mapping[str, Any]], Awaitable[object]]
"""What a child does for an order, on its loop. The second argument is the order with its keys.

The result is what the test gets; an OrderFailed reaches it with its text.
"""


class Control:
    """A child's end of its control channel. Used on the child's loop."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer
        self._tasks: set[asyncio.Task[None]] = set()

    @classmethod
    async def over(cls, end: socket.socket) -> "Control":
        return cls(*await asyncio.open_connection(sock=end))

    def started(self, result: object) -> None:
        """Report that the child serves."""
        self._send({"id": STARTED, "result": result})

    async def failed(self, reason: str) -> None:
        """Report that the child cannot start; nothing is sent after that."""
        self._send({"id": STARTED, "error": reason})
        await self._writer.drain()

    async def serve(self, subject: T, orders: Mapping[str, Order[T]]) -> None:
        """Carry out orders, side by side, until the test process closes the channel."""
        with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):
            while True:
                (length,) = LENGTH.unpack(await self._reader.readexactly(LENGTH.size))
                order = decode(await self._reader.readexactly(length))
                task = asyncio.create_task(self._carry_out(subject, orders, order))
                self._tasks.add(task)
                task.add_done_callback(self._tasks.discard)

    async def _carry_out(
        self, subject: T, orders: Mapping[str, Order[T]], order: Mapping[str, Any]
    ) -> None:
        answer: dict[str, object] = {"id": order["id"]}
        try:
            answer["result"] = await orders.get(order["do"], _unknown)(subject, order)
        except OrderFailed as error:
            answer["error"] = str(error)
        except Exception as error:  # the test has to see a bug of an order, and the broker goes on
            log.exception("order_failed", order=order["do"])
            answer["error"] = f"{order['do']}: {type(error).__name__}: {error}"
        self._send(answer)

    def _send(self, message: dict[str, Any]) -> None:
        self._writer.write(frame(message))


async def _unknown(_: object, order: Mapping[str, Any]) -> object:
    raise OrderFailed(f"there is no order {order['do']!r}")
