"""The network of a simulated fleet: directed links that delay, hold and cut what goes over them.

Between two hosts there is one connection in each direction of asking; what goes over it stays in order. A blocked link keeps what is sent, as TCP does, and
brings it when it is open again: so a request may arrive long after its sender has given up. An answer finds nobody once the connection that it
belongs to is broken. Nothing is doubled on the way; duplicates come from asking again.
"""

from collections.abc import Callable
from typing import Any, Final, Protocol

from broker_image.tests.sim.kernel import Future, Host, Kernel

REQUEST_TIMEOUT_MS = 2_000
WAITING_MAX = 16
"""Requests of a connection that are kept before those that were answered are forgotten."""


class Disconnected:
    """What a request resolves to whose connection broke, or that nobody answered in time."""


DISCONNECTED: Final = Disconnected()
Reply = Callable[[Any], None]


class Server(Protocol):
    host: Host

    def serve(self, sender: str, request: Any, reply: Reply) -> None:
        """Answer now or later, or never."""
        ...


class _Connection:
    """breaks: how often it broke. last: when the last message sent over it arrives, by direction."""

    __slots__ = ("breaks", "last", "waiting")

    def __init__(self) -> None:
        self.breaks = 0
        self.last = [0, 0]
        self.waiting: list[Future] = []


class SimNet:
    """delay_ms: most messages take up to that. spikes: percent of them that take up to 2 s."""

    def __init__(self, kernel: Kernel) -> None:
        self.delay_ms = 1
        self.spikes = 0
        self.servers: dict[str, Server] = {}
        self._kernel = kernel
        self._blocked: dict[tuple[str, str], int] = {}
        self._held: dict[tuple[str, str], list[Callable[[], None]]] = {}
        self._connections: dict[tuple[str, str], _Connection] = {}

    def delay(self) -> int:
        tape = self._kernel.tape
        delay = 1 + tape.draw("net.delay", self.delay_ms)
        if self.spikes and tape.chance("net.spike", self.spikes):
            delay += tape.draw("net.spike_ms", 2_000)
        return delay

    def is_open(self, source: str, target: str) -> bool:
        return not self._blocked.get((source, target))

    def block(self, source: str, target: str) -> None:
        """May be said several times; each has to be taken back."""
        self._blocked[source, target] = self._blocked.get((source, target), 0) + 1

    def unblock(self, source: str, target: str) -> None:
        self._blocked[source, target] -= 1
        if self.is_open(source, target):
            for deliver in self._held.pop((source, target), []):
                deliver()

    def open_all(self) -> None:
        for link, count in list(self._blocked.items()):
            for _ in range(count):
                self.unblock(*link)

    def call(self, source: Host, target: str, request: Any) -> Future:
        """Resolves to the answer, or DISCONNECTED."""
        answer = Future()
        connection = self._connections.get((source.name, target))
        if connection is None:
            connection = self._connections[source.name, target] = _Connection()
        if len(connection.waiting) > WAITING_MAX:
            connection.waiting = [future for future in connection.waiting if not future.is_done]
        connection.waiting.append(answer)
        breaks = connection.breaks

        def reply(value: Any) -> None:
            self._send(target, source, connection, 1, arrived, value)

        def arrived(value: Any) -> None:
            if connection.breaks == breaks:
                answer.resolve(value)

        def arrive() -> None:
            server = self.servers[target]
            if server.host.is_up:
                server.serve(source.name, request, reply)
            else:
                refused()

        def refused() -> None:
            self._kernel.at(1, source, "refused", answer.resolve, DISCONNECTED)

        if self.servers[target].host.is_up:
            self._send(source.name, self.servers[target].host, connection, 0, arrive)
        else:
            refused()
        self._kernel.at(
            REQUEST_TIMEOUT_MS, source, "timeout", self._time_out, source.name, target, answer
        )
        return answer

    def break_connections(self, host: str) -> None:
        """Resets of all connections with that host, as when its process dies."""
        for source, target in list(self._connections):
            if host in (source, target):
                self.reset(source, target)

    def forget(self, source: str) -> None:
        """Its next process makes connections of its own; what this one sent may come later than what they bring."""
        for link in [link for link in self._connections if link[0] == source]:
            del self._connections[link]

    def reset(self, source: str, target: str) -> None:
        connection = self._connections.get((source, target))
        if connection is not None:
            connection.breaks += 1
            waiting, connection.waiting = connection.waiting, []
            for future in waiting:
                future.resolve(DISCONNECTED)

    def _time_out(self, source: str, target: str, answer: Future) -> None:
        if not answer.is_done:
            self.reset(source, target)

    def _send(
        self,
        source: str,
        target: Host,
        connection: _Connection,
        direction: int,
        action: Callable[..., None],
        *arguments: Any,
    ) -> None:
        link, life = (source, target.name), target.life

        def travel() -> None:
            deadline = max(self._kernel.now + self.delay(), connection.last[direction])
            connection.last[direction] = deadline
            label = "answer" if direction else "request"
            self._kernel.at(deadline - self._kernel.now, target, label, deliver)

        def deliver() -> None:
            if self.is_open(*link):
                action(*arguments)
            else:
                self._held.setdefault(link, []).append(retransmit)

        def retransmit() -> None:
            if target.life == life:  # else nobody listens any more
                travel()

        travel()
