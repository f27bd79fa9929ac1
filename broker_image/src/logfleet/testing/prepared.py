"""The test process's side of the prepared process, and of each of its children."""

import atexit
import contextlib
import os
import socket
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from signal import Signals
from typing import Any, Final

from logfleet.testing.errors import ProcessEnded
from logfleet.testing.frames import Channel

START_S_MAX: Final = 60.0
"""For importing, on a busy machine; a fork and its broker need milliseconds."""
NOT_HANDED_ON: Final = {
    "PYTHONOPTIMIZE",  # a broker's assertions guard its data: none runs without them
    "PYTHONWARNINGS",  # the strictness of the user's tests is not ours
    "PYTHONDEVMODE",
    "PYTHONASYNCIODEBUG",
}


class Prepared:
    """A prepared process (see `testing.server`). It imports while this process goes on."""

    def __init__(self) -> None:
        self.owner = os.getpid()
        ours, theirs = socket.socketpair()
        environment = {key: os.environ[key] for key in os.environ.keys() - NOT_HANDED_ON}
        with theirs:
            # -P: the folder in which the tests run may have modules of the same names as ours
            self._process = subprocess.Popen(
                [sys.executable, "-P", "-m", "logfleet.testing.server", str(os.getpid())],
                stdin=theirs.fileno(),
                stdout=subprocess.DEVNULL,
                env=environment,
                start_new_session=True,
            )
        self._channel = Channel("the prepared process of logfleet.testing", ours)
        self.on_closed: list[Callable[[], None]] = []
        self._client: Child | None = None
        self._lock = threading.Lock()

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def running(self) -> bool:
        return self._process.poll() is None

    def order(self, do: str, **arguments: Any) -> Any:
        """Have it carry out an order. Raises OrderFailed."""
        return self._channel.ask(do, timeout_s=START_S_MAX, **arguments)

    def fork(self, role: str, name: str, log: Path, **order: Any) -> "Child":
        """Fork a child, which starts; see Child.started. name: for messages.

        order: settings of the child, and the directory that is removed at the latest when all ends.
        """
        ours, theirs = socket.socketpair()
        with theirs:
            try:
                pid = self.order("fork", fd=theirs.fileno(), role=role, log=str(log), **order)
            except BaseException:
                ours.close()
                raise
        return Child(self, pid, Channel(name, ours))

    def end(self, pid: int) -> int:
        """Kill a child and wait until it has ended; its exit code, negative for a signal."""
        self.order("signal", pid=pid, signal=Signals.SIGKILL)
        code: int = self.order("reap", pid=pid)
        return code

    def client(self) -> "Child":
        """The child that asks brokers for the tests; there is one."""
        with self._lock:
            if self._client is None:
                client = self.fork(
                    "client", "the client of logfleet.testing", Path(os.devnull), settings={}
                )
                client.started(START_S_MAX)
                self._client = client
            return self._client

    def close(self) -> None:
        """End it, and with it all its children."""
        self._channel.close()
        if self._client is not None:
            self._client.channel.close()
        self._process.wait()
        for callback in self.on_closed:
            callback()


class Child:
    """A child of the prepared process. pid: it is no other process's before `reap`."""

    def __init__(self, prepared: Prepared, pid: int, channel: Channel) -> None:
        self.pid = pid
        self.channel = channel
        self.exit_code: int | None = None
        self._prepared = prepared

    def started(self, timeout_s: float) -> Any:
        """Wait until it serves; what it reports of that. Raises OrderFailed, then it has ended."""
        try:
            return self.channel.started(timeout_s)
        except BaseException:
            self.kill()
            raise

    def ask(self, do: str, *, timeout_s: float, **arguments: Any) -> Any:
        """The result of an order. Raises OrderFailed."""
        return self.channel.ask(do, timeout_s=timeout_s, **arguments)

    def send(self, number: Signals) -> None:
        """Send a signal; it has its effect when this returns, if it stops or kills."""
        if self.exit_code is None:
            self._prepared.order("signal", pid=self.pid, signal=number)

    def kill(self) -> None:
        """It has ended, if it had not before."""
        if self.exit_code is not None:
            return
        try:
            self.exit_code = self._prepared.end(self.pid)
        except ProcessEnded:  # the prepared process has taken its children along
            self.exit_code = -Signals.SIGKILL
        self.channel.close()

    def stop(self, timeout_s: float) -> int:
        """Have it end in order; its exit code. Raises ProcessEnded, then it was killed."""
        if self.exit_code is not None:
            return self.exit_code
        with contextlib.suppress(ProcessEnded):
            self.channel.ask("stop", timeout_s=timeout_s)
        if not self.channel.wait_closed(timeout_s):
            self.kill()
            raise ProcessEnded(f"{self.channel.name} did not stop within {timeout_s:g} s")
        self.exit_code = self._prepared.order("reap", pid=self.pid)
        self.channel.close()
        return self.exit_code


_shared: Prepared | None = None
_shared_lock = threading.Lock()


def shared() -> Prepared:
    """The prepared process of this process, started if there is none.

    A fork of this process has to start its own.
    """
    global _shared
    with _shared_lock:
        if _shared is not None and _shared.owner == os.getpid():
            if _shared.running:
                return _shared
            _shared.close()
        _shared = Prepared()
        atexit.register(close_shared)
        return _shared


def close_shared() -> None:
    """End the prepared process of this process, if there is one."""
    global _shared
    with _shared_lock:
        if _shared is not None and _shared.owner == os.getpid():
            _shared.close()
        _shared = None
