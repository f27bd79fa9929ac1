"""The simulated world's time: an event queue ordered by (deadline, sequence), hosts that stop and pause, and processes written as generators.

A process yields a number of milliseconds to sleep, or a `Future` to wait for; its value comes back. An event belongs to one life of its host:
of a host that died nothing happens any more, what falls due while it is paused happens when it goes on, in the old order.
"""

import hashlib
from collections import Counter
from collections.abc import Callable, Generator
from heapq import heappop, heappush
from typing import Any

from broker_image.tests.sim.tape import Tape

EVENTS_MAX = 150_000
"""Of one simulation; more means that something spins."""


class SimulationError(AssertionError):
    """The cluster did what it must never do, or did not what it must. The text says which invariant, and what happened."""


WALL_MS = 1_000_000
"""When a run begins."""


class Host:
    """A machine. life: number of its present process; a process of an earlier life is gone."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.life = 1
        self.is_up = True
        self.is_paused = False
        self.backlog: list[tuple[int, str, Callable[..., None], tuple[Any, ...]]] = []


class Future:
    """A value that is not there yet. What resolves it first counts."""

    __slots__ = ("is_done", "value", "waiter")

    def __init__(self) -> None:
        self.is_done = False
        self.value: Any = None
        self.waiter: Callable[[Any], None] | None = None

    def resolve(self, value: Any = None) -> None:
        if not self.is_done:
            self.is_done, self.value = True, value
            if self.waiter is not None:
                self.waiter(value)


Process = Generator[int | Future, Any, Any]


class Kernel:
    """now: milliseconds. events: how many there were.

    trace: all that happened, as (time, number, host, label), and notes: what a person wants to read
    of it. Both are kept only if somebody is going to read them (is_told).
    """

    def __init__(self, tape: Tape, *, is_told: bool = False) -> None:
        self.tape = tape
        self.now = self.events = 0
        self.trace: list[tuple[int, int, str, str]] = []
        self.notes: list[tuple[int, str, str]] = []
        self.labels: Counter[str] = Counter()
        self._is_told = is_told
        self._queue: list[
            tuple[int, int, Host, int, str, Callable[..., None], tuple[Any, ...]]
        ] = []
        self._sequence = 0

    @property
    def wall_ms(self) -> int:
        """What every host's wall clock says."""
        return WALL_MS + self.now

    def at(
        self, delay_ms: int, host: Host, label: str, action: Callable[..., None], *arguments: Any
    ) -> None:
        """Have `action` done in this life of the host."""
        self._push(self.now + delay_ms, host, host.life, label, action, arguments)

    def _push(
        self,
        deadline: int,
        host: Host,
        life: int,
        label: str,
        action: Callable[..., None],
        arguments: tuple[Any, ...],
    ) -> None:
        self._sequence += 1
        heappush(self._queue, (deadline, self._sequence, host, life, label, action, arguments))

    def run(self, until_ms: int, done: Callable[[], bool] | None = None) -> bool:
        """Go on up to that time, or until `done`, which is looked at after each event; whether it came to that."""
        queue = self._queue
        while queue and queue[0][0] <= until_ms:
            deadline, sequence, host, life, label, action, arguments = heappop(queue)
            if host.life != life:
                continue
            self.now = deadline
            if host.is_paused:
                host.backlog.append((life, label, action, arguments))
                continue
            self.events += 1
            if self._is_told:
                self.trace.append((deadline, sequence, host.name, label))
            if self.events > EVENTS_MAX:
                raise SimulationError(f"L2: {EVENTS_MAX} events, last {self.trace[-20:]}")
            action(*arguments)
            if done is not None and done():
                return True
        self.now = until_ms
        return done is not None and done()

    def pause(self, host: Host) -> None:
        host.is_paused = True

    def resume(self, host: Host) -> None:
        host.is_paused = False
        backlog, host.backlog = host.backlog, []
        for life, label, action, arguments in backlog:
            self._push(self.now, host, life, label, action, arguments)

    def kill(self, host: Host) -> None:
        """Nothing of its present process happens any more."""
        host.life += 1
        host.is_up = host.is_paused = False
        host.backlog = []

    def spawn(self, host: Host, name: str, process: Process) -> None:
        self.at(0, host, name, self._step, host, name, process, None)

    def _step(self, host: Host, name: str, process: Process, value: Any) -> None:
        while True:
            try:
                wanted = process.send(value)
            except StopIteration:
                return
            if not isinstance(wanted, Future):
                self.at(wanted, host, name, self._step, host, name, process, None)
                return
            if not wanted.is_done:
                wanted.waiter = self._goer(host, name, process)
                return
            value = wanted.value

    def _goer(self, host: Host, name: str, process: Process) -> Callable[[Any], None]:
        life = host.life

        def go_on(value: Any) -> None:
            self._push(self.now, host, life, name, self._step, (host, name, process, value))

        return go_on

    def expire(self, host: Host, future: Future, delay_ms: int, value: Any) -> Future:
        """The future, which has that value at the latest then."""
        self.at(delay_ms, host, "timeout", future.resolve, value)
        return future

    def draw(self, label: str, n: int) -> int:
        return self.tape.draw(label, n)

    def note(self, host: str, text: str, *arguments: object) -> None:
        """A line of the timeline. `text` is formatted (%) only if somebody is going to read it."""
        if self._is_told:
            self.notes.append((self.now, host, text % arguments if arguments else text))

    def sometimes(self, label: str) -> None:
        """Say that something worth testing has happened: of a green run without it nothing follows."""
        self.labels[label] += 1

    def trace_hash(self) -> str:
        return hashlib.sha256(repr(self.trace).encode()).hexdigest()[:16]
