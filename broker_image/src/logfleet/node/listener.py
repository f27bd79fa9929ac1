"""One listening socket: accepts connections, closes idle ones, ends them all when the broker stops."""

import asyncio
from collections.abc import Awaitable, Iterator
from concurrent.futures import Executor
from itertools import islice

import structlog

from logfleet.node.connection import Connection, Service

log = structlog.get_logger(__name__)

# Connections that the kernel completes before the broker accepts them; the kernel may allow fewer.
BACKLOG = 1024
# The sweep for idle connections looks at this many per step of the loop (well below a millisecond).
SWEEP_STEP = 1000
TICK_S = 1.0


class Listener:
    """A listening socket and its connections.

    name: the listener's name, as in Kafka's `listeners`.
    request_bytes_max: socket.request.max.bytes.
    idle_s_max: connections.max.idle.ms in seconds; a connection on which nothing moved for so long is
        closed, also when a request is in progress (as Kafka's Selector does).
    disk: threads that read cold segments ahead.
    """

    def __init__(
        self,
        name: str,
        service: Service,
        *,
        disk: Executor,
        request_bytes_max: int = 100 * 1024 * 1024,
        idle_s_max: float = 600.0,
    ) -> None:
        self.name = name
        self.service = service
        self.disk = disk
        self.request_bytes_max = request_bytes_max
        self.idle_s_max = idle_s_max
        self.host = ""
        self.port = 0
        self.now = 0.0
        self.accepted = 0
        self.connections: set[Connection] = set()
        self._work: set[asyncio.Task[None]] = set()
        self._server: asyncio.Server | None = None
        self._ticker: asyncio.Task[None] | None = None
        self._empty: asyncio.Event = asyncio.Event()

    async def bind(self, host: str, port: int) -> int:
        """Take the port, not serving yet; returns it (a free one for 0). Raises OSError if it is taken.

        host "" means all addresses.
        """
        self._server = await asyncio.get_running_loop().create_server(
            lambda: Connection(self), host or None, port, backlog=BACKLOG, start_serving=False
        )
        self.host = host
        self.port = int(self._server.sockets[0].getsockname()[1])
        return self.port

    async def serve(self) -> None:
        """Accept connections from now on."""
        assert self._server is not None, "bind comes first"
        loop = asyncio.get_running_loop()
        self.now = loop.time()
        await self._server.start_serving()
        self._ticker = loop.create_task(self._tick())

    async def stop(self, grace_s: float) -> None:
        """Accept nothing more, answer what is in progress, close; what is left after grace_s is cut."""
        if self._server is None:
            return
        self._server.close()
        for connection in list(self.connections):
            connection.finish()
        try:
            async with asyncio.timeout(grace_s):
                await self._until_empty()
        except TimeoutError:
            log.warning("connections_cut", count=len(self.connections), grace_s=grace_s)
            for connection in list(self.connections):
                connection.abort()
            await self._until_empty()
        if self._ticker is not None:
            self._ticker.cancel()
        for task in self._work:
            task.cancel()
        await asyncio.gather(*self._work, return_exceptions=True)

    async def _until_empty(self) -> None:
        while self.connections:
            self._empty.clear()
            await self._empty.wait()

    # --- for connections

    def opened(self, connection: Connection) -> None:
        self.accepted += 1
        self.connections.add(connection)

    def closed(self, connection: Connection) -> None:
        self.connections.discard(connection)
        if not self.connections:
            self._empty.set()

    def supervise(self, work: Awaitable[None]) -> None:
        """Run what answers a parked request; its failure is a bug and reaches the loop's handler."""
        task = asyncio.ensure_future(work)
        self._work.add(task)
        task.add_done_callback(self._work_done)

    def _work_done(self, task: "asyncio.Task[None]") -> None:
        self._work.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            log.error("answering_failed", exc_info=error)

    # --- idle connections

    async def _tick(self) -> None:
        """Keep the coarse clock, and look at every connection a few times per idle limit."""
        loop = asyncio.get_running_loop()
        next_sweep = self.now
        while True:
            self.now = loop.time()
            if self.now >= next_sweep:
                await self._close_idle()
                next_sweep = self.now + self.idle_s_max / 10
            await asyncio.sleep(min(TICK_S, self.idle_s_max / 10))

    async def _close_idle(self) -> None:
        connections: Iterator[Connection] = iter(list(self.connections))
        while step := list(islice(connections, SWEEP_STEP)):
            for connection in step:
                if self.now - connection.last_active <= self.idle_s_max:
                    continue
                if connection.finishing:
                    connection.abort()  # closed long ago, but the peer does not take what is left
                else:
                    connection.finish()
            await asyncio.sleep(0)
