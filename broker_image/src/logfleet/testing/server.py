"""The prepared process: it has imported a broker, and forks one for each order.

Run as `python -m logfleet.testing.server PARENT_PID`, with its control channel as stdin. It has one
thread and no loop, and opens nothing: a fork of it is a process as if freshly started, without the
half second that importing takes. Most of its memory is shared with its children; what exists before
the first fork is frozen, so that no collection of theirs copies it.

Nothing outlives the test process. This process ends when its channel is closed, as a killed
process's are, or when it has another parent (a fork of the test process may keep the channel open).
It then ends its children and removes their directories; should it be killed itself, the kernel
kills them, stopped ones too (PR_SET_PDEATHSIG). It leads a session of its own, so that Ctrl-C at a
terminal reaches only the test process, which ends its brokers by itself.

Orders: `fork` (role, log, settings; the child's channel goes along) and `run` (a program, as etcd)
return a pid, which is no other process's until `reap`. With a `directory` they have it removed at
the end, until `keep`. `signal` waits until a stopped or killed child is so. `prepare` imports what
a fleet needs.
"""

import ctypes
import gc
import os
import shutil
import signal
import socket
import sys
from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any, Final

from logfleet.io.tether import PR_SET_PDEATHSIG, tethered
from logfleet.store.opening import NO_ETCD_CLIENT
from logfleet.testing.errors import OrderFailed
from logfleet.testing.frames import LENGTH, decode, frame

ROLES: Final = {
    "broker": "logfleet.testing.broker_child",
    "client": "logfleet.testing.client_child",
}
"""The module of each kind of child; its `run(channel, settings)` returns the exit code."""
FOR_FLEETS: Final = "logfleet.io.etcd.store"
PARENT_CHECK_S: Final = 1.0
LIBC: Final = ctypes.CDLL(None)


class ParentEnded(Exception):
    """The test process is gone."""


class Server:
    """Carries out orders, one after the other."""

    def __init__(self, control: socket.socket, parent: int) -> None:
        self._control = control
        self._parent = parent
        self._children: set[int] = set()
        self._directories: set[str] = set()
        self._orders: dict[str, Callable[[Mapping[str, Any], int | None], object]] = {
            "fork": self._fork,
            "run": self._run,
            "keep": self._keep,
            "prepare": self._prepare,
            "signal": self._signal,
            "reap": self._reap,
        }

    def serve(self) -> None:
        """Serve until the test process ends. Raises ParentEnded."""
        self._control.settimeout(PARENT_CHECK_S)
        while True:
            order, fd = self._next()
            answer: dict[str, Any] = {"id": order["id"]}
            try:
                answer["result"] = self._orders[order["do"]](order, fd)
            except OrderFailed as error:
                answer["error"] = str(error)
            except OSError as error:
                answer["error"] = f"{order['do']}: {error}"
            finally:
                if fd is not None:
                    os.close(fd)
            self._control.sendall(frame(answer))

    def _next(self) -> tuple[Mapping[str, Any], int | None]:
        """The next order, and the descriptor that came with it."""
        received, fds = b"", []
        while len(received) < LENGTH.size or len(received) < self._end(received):
            try:
                more, came, _, _ = socket.recv_fds(self._control, 1 << 16, 1)
            except TimeoutError:
                if os.getppid() != self._parent:
                    raise ParentEnded from None
                continue
            if not more:
                raise ParentEnded
            received += more
            fds += came
        return decode(received[LENGTH.size :]), (fds[0] if fds else None)

    @staticmethod
    def _end(received: bytes) -> int:
        return LENGTH.size + int(LENGTH.unpack_from(received)[0])

    def _fork(self, order: Mapping[str, Any], fd: int | None) -> int:
        """Fork a child that runs a role; its pid."""
        assert fd is not None, "a child has a channel"
        role = import_module(ROLES[order["role"]])
        own = os.getpid()
        pid = os.fork()
        if pid:
            return self._own(pid, order)
        code = 1
        try:
            _end_with(own)
            self._control.close()
            _write_to(order["log"])
            code = role.run(socket.socket(fileno=fd), order["settings"])
        except BaseException:  # noqa: BLE001  whatever it is, this process must not go on as a server
            sys.excepthook(*sys.exc_info())
        finally:
            os._exit(code)

    def _run(self, order: Mapping[str, Any], fd: int | None) -> int:
        """Start a program; its pid."""
        del fd
        command = tethered(order["command"])
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND
        streams = [
            (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
            (os.POSIX_SPAWN_OPEN, 1, order["log"], flags, 0o644),
            (os.POSIX_SPAWN_DUP2, 1, 2),
        ]
        pid = os.posix_spawn(command[0], command, os.environ, file_actions=streams)
        return self._own(pid, order)

    def _own(self, pid: int, order: Mapping[str, Any]) -> int:
        self._children.add(pid)
        if order.get("directory"):
            self._directories.add(order["directory"])
        return pid

    def _keep(self, order: Mapping[str, Any], fd: int | None) -> None:
        """Leave a directory where it is."""
        del fd
        self._directories.discard(order["directory"])

    def _prepare(self, order: Mapping[str, Any], fd: int | None) -> None:
        """Import what a broker of a fleet needs besides. Raises OrderFailed."""
        del order, fd
        try:
            import_module(FOR_FLEETS)
        except ModuleNotFoundError as error:
            raise OrderFailed(NO_ETCD_CLIENT) from error
        gc.freeze()

    def _signal(self, order: Mapping[str, Any], fd: int | None) -> None:
        """Send a signal. A child that is stopped, continued or killed is so afterwards."""
        del fd
        pid, number = order["pid"], order["signal"]
        os.kill(pid, number)
        if number == signal.SIGSTOP:
            os.waitid(os.P_PID, pid, os.WSTOPPED | os.WEXITED | os.WNOWAIT)
        elif number == signal.SIGKILL:
            os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)

    def _reap(self, order: Mapping[str, Any], fd: int | None) -> int:
        """Wait until a child has ended; its exit code, negative for a signal."""
        del fd
        self._children.discard(order["pid"])
        return os.waitstatus_to_exitcode(os.waitpid(order["pid"], 0)[1])

    def close(self) -> None:
        """End all children, and remove their directories."""
        for pid in self._children:
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
        for directory in self._directories:
            shutil.rmtree(directory, ignore_errors=True)


def _end_with(parent: int) -> None:
    """Have the kernel kill this process when its parent ends."""
    LIBC.prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent:  # it ended before the call
        os._exit(1)


def _write_to(log: str) -> None:
    """Append what this process prints to a file."""
    fd = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    os.dup2(fd, 1)
    os.dup2(fd, 2)
    os.close(fd)


def main(parent: int) -> None:
    gc.disable()
    control = socket.socket(fileno=os.dup(0))
    null = os.open(os.devnull, os.O_RDWR)
    os.dup2(null, 0)
    for module in ROLES.values():
        import_module(module)
    gc.collect()
    gc.freeze()
    server = Server(control, parent)
    try:
        server.serve()
    except (ParentEnded, ConnectionError):
        server.close()


if __name__ == "__main__":
    main(int(sys.argv[1]))
