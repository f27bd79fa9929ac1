"""One listener: admits connections within the limits, and closes them when idle or at the end."""

import asyncio
import contextlib
import math
import socket
import time
from collections.abc import Awaitable, Callable, Iterable, Iterator
from concurrent.futures import Executor
from itertools import islice

import structlog

from logfleet.config.connection_limits import connection_limits
from logfleet.config.topic import BrokerLayers
from logfleet.io.logging import LogLimiter
from logfleet.net.connection import EVICTED, IDLE, REASONS, Connection, Service
from logfleet.net.connection_quotas import ConnectionQuotas
from logfleet.net.plain_transport import PlainTransport
from logfleet.net.sign_in import SignIn, anonymous
from logfleet.net.sockets import prepare_accepted
from logfleet.net.transport import TransportKind
from logfleet.net.turns import Turns
from logfleet.quotas.entities import address_of
from logfleet.telemetry.histogram import Histogram

log = structlog.get_logger(__name__)

# Default of socket.listen.backlog.size: connections that the kernel completes before the broker
# accepts them; the kernel may allow fewer.
BACKLOG = 1024
# Pause after a failure to accept, such as a lack of file descriptors: a retry at once would only
# burn CPU.
ACCEPT_AGAIN_S = 1.0
# Connections accepted in one step of the loop: about a millisecond.
ACCEPTED_PER_STEP_MAX = 16
# The sweep for idle connections checks this many per step of the loop (well below a millisecond).
SWEEP_STEP = 1000
TICK_S = 1.0
TICK_S_MIN = 0.01


class Listener:
    """A listening socket and its connections.

    name: the listener's name, as in Kafka's `listeners`.
    request_bytes_max: socket.request.max.bytes.
    idle_s_max: connections.max.idle.ms in seconds; a connection without any traffic for this
        long is closed, even with a request in progress (as Kafka's Selector does). Below 0: never.
    disk: threads that read cold segments ahead.
    quotas: connection limits, counted over all listeners of a broker. None: unlimited.
    backlog, send_buffer_bytes: None for BACKLOG and the system's default.
    throttle: milliseconds to keep a new connection from an address before it is closed, 0 to
        serve it.
    sign_in: decides who is at the other end of a connection.
    transport: the kind of its connections' transports.
    """

    def __init__(
        self,
        name: str,
        service: Service,
        *,
        disk: Executor,
        request_bytes_max: int = 100 * 1024 * 1024,
        idle_s_max: float = 600.0,
        quotas: ConnectionQuotas | None = None,
        backlog: int | None = None,
        send_buffer_bytes: int | None = None,
        throttle: Callable[[str], int] = lambda _: 0,
        sign_in: SignIn = anonymous,
        transport: TransportKind = PlainTransport,
    ) -> None:
        self.name = name
        self.service = service
        self.disk = disk
        self.request_bytes_max = request_bytes_max
        self.idle_s_max = idle_s_max if idle_s_max >= 0 else math.inf
        self.throttle = throttle
        self.sign_in = sign_in
        self._transport = transport
        self.turns = Turns()
        self.host = ""
        self.port = 0
        self.now = 0.0
        self.quotas = quotas or unlimited(name)
        self.accepted = self.refused = 0
        self._impossible = LogLimiter()
        self.closed_by = dict.fromkeys(REASONS, 0)
        self.send_time = Histogram()
        self.waited_s = 0.0
        self.connections: set[Connection] = set()
        self._backlog = backlog or BACKLOG
        self._send_buffer_bytes = send_buffer_bytes
        self._entering: set[Connection] = set()  # counted, but not opened yet
        self._work: set[asyncio.Task[None]] = set()
        self._sockets: list[socket.socket] = []
        self._accepting: list[asyncio.Task[None]] = []
        self._admissions: set[asyncio.Task[None]] = set()
        self._ticker: asyncio.Task[None] | None = None
        self._empty: asyncio.Event = asyncio.Event()

    def take(self, host: str, sockets: list[socket.socket]) -> int:
        """Take bound sockets without serving yet (see bind_tcp); return their port.

        `stop` closes them. host: the address that they are bound to, "" for all addresses.
        """
        self._sockets = sockets
        self.host = host
        self.port = int(sockets[0].getsockname()[1])
        return self.port

    async def serve(self) -> None:
        """Accept connections from now on."""
        assert self._sockets, "`take` comes first"
        loop = asyncio.get_running_loop()
        self.now = loop.time()
        for listening in self._sockets:
            listening.listen(self._backlog)
            task = loop.create_task(self._accept(listening))
            task.add_done_callback(_accepting_ended)
            self._accepting.append(task)
        self._ticker = loop.create_task(self._tick())

    async def stop(self, grace_s: float) -> None:
        """Stop accepting, answer requests in progress, close; after grace_s the rest is aborted."""
        if not self._sockets:
            return
        for task in self._accepting:
            task.cancel()
        await asyncio.gather(*self._accepting, *self._admissions, return_exceptions=True)
        for listening in self._sockets:
            # uvloop closes a socket one step later; until then new clients are to be refused, not
            # kept waiting
            with contextlib.suppress(OSError):
                listening.shutdown(socket.SHUT_RDWR)
            listening.close()
        self._sockets = []
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

    # --- new connections

    async def _accept(self, listening: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        while True:
            try:
                accepted, address = await loop.sock_accept(listening)
                await self._admit(accepted, address)
                # All that wait, in this step: a busy loop takes few steps a second, and its peers
                # give up and connect again sooner than one connection a step can be accepted.
                for _ in range(ACCEPTED_PER_STEP_MAX - 1):
                    accepted, address = listening.accept()
                    await self._admit(accepted, address)
            except (BlockingIOError, ConnectionAbortedError):
                continue  # none waits, or it was closed before it was accepted
            except OSError as error:
                log.warning("accept_failed", listener=self.name, error=str(error))
                await asyncio.sleep(ACCEPT_AGAIN_S)

    async def _admit(self, accepted: socket.socket, address: tuple[str, int]) -> None:
        """Count the connection once the quotas admit it, and begin to make its transport."""
        began = time.monotonic()
        try:
            await self.quotas.until_admitted(self.name)
        except BaseException:
            accepted.close()
            raise
        self.waited_s += time.monotonic() - began
        host, port = address[:2]
        if self._has_entered(accepted, _address(host)):
            # a task of its own, or `stop` would leave a half-made transport that nothing closes
            work = self._open(Connection(self, host, port), accepted, _address(host))
            admission = asyncio.get_running_loop().create_task(work)
            self._admissions.add(admission)
            admission.add_done_callback(self._admissions.discard)

    def _has_entered(self, accepted: socket.socket, address: str) -> bool:
        """Count the connection; False if it is refused, and closed."""
        if not self.quotas.is_possible(self.name):
            self.refused += 1
            if count := self._impossible.count_event():
                log.warning(
                    "connections_refused",
                    listener=self.name,
                    count=count,
                    open=self.quotas.total,
                    note="no file descriptors are left: raise the limit of open files "
                    "(LimitNOFILE, ulimit -Hn)",
                )
            accepted.close()
            return False
        limit = self.quotas.enter(self.name, address)
        if limit is not None:
            self.refused += 1
            log.info(
                "connection_refused", peer=address, reason=f"{limit} connections are its limit"
            )
            accepted.close()
            return False
        return True

    async def _open(self, connection: Connection, accepted: socket.socket, address: str) -> None:
        """Make the transport of a connection that was counted."""
        self._entering.add(connection)
        try:
            prepare_accepted(accepted, self._send_buffer_bytes)
            await asyncio.get_running_loop().connect_accepted_socket(
                lambda: self._transport(connection, self), accepted
            )
        except OSError as error:  # the peer has gone
            accepted.close()
            log.info("connection_lost_early", peer=address, error=str(error))
        finally:
            if connection in self._entering:
                self._entering.discard(connection)
                self.quotas.leave(self.name, address)

    # --- for connections

    def opened(self, connection: Connection) -> int:
        self._entering.discard(connection)
        self.accepted += 1
        self.connections.add(connection)
        return self.throttle(connection.peer.host)

    def closed(self, connection: Connection) -> None:
        self.connections.discard(connection)
        self.closed_by[connection.end_reason] += 1
        self.quotas.leave(self.name, _address(connection.peer.host))
        if not self.connections:
            self._empty.set()

    def supervise(self, work: Awaitable[None]) -> None:
        """Run the work that answers a request later; a failure is a bug and logged."""
        task = asyncio.ensure_future(work)
        self._work.add(task)
        task.add_done_callback(self._work_done)

    def _work_done(self, task: "asyncio.Task[None]") -> None:
        self._work.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            log.error("answering_failed", exc_info=error)

    # --- idle connections

    async def _tick(self) -> None:
        """Keep the coarse clock, and check all connections several times per idle limit."""
        loop = asyncio.get_running_loop()
        next_sweep = self.now
        while True:
            self.now = loop.time()
            if self.now >= next_sweep:
                await self._close_idle()
                next_sweep = self.now + self.idle_s_max / 10
            await asyncio.sleep(max(TICK_S_MIN, min(TICK_S, self.idle_s_max / 10)))

    async def _close_idle(self) -> None:
        connections: Iterator[Connection] = iter(list(self.connections))
        while step := list(islice(connections, SWEEP_STEP)):
            for connection in step:
                connection.check_activity()
                if self.now - connection.last_active <= self.idle_s_max:
                    continue
                if connection.finishing:
                    connection.abort()  # already closing, but the peer does not read the rest
                else:
                    connection.finish(IDLE)
            await asyncio.sleep(0)


def close_least_recently_used(listeners: Iterable[Listener], excess: int) -> None:
    """End this many connections, the least recently active first.

    Those that are already ending count.
    """
    open_now = [(each, owner) for owner in listeners for each in owner.connections]
    ending = sum(connection.finishing for connection, _ in open_now)
    staying = [(each, owner) for each, owner in open_now if not each.finishing]
    for connection, _ in staying:
        connection.check_activity()
    staying.sort(key=lambda pair: pair[0].last_active)
    for connection, _ in staying[: max(0, excess - ending)]:
        connection.finish(EVICTED)


def unlimited(listener: str) -> ConnectionQuotas:
    """Quotas without limits."""
    limits = connection_limits(BrokerLayers(), [listener])
    return ConnectionQuotas(limits, lambda: time.monotonic_ns() // 1_000_000)


def _address(host: str) -> str:
    """A canonical text of an address; the host unchanged if it is none."""
    return address_of(host) or host


def _accepting_ended(task: "asyncio.Task[None]") -> None:
    if not task.cancelled() and (error := task.exception()) is not None:
        log.critical("accepting_failed", exc_info=error)
