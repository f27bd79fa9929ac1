"""A program on this machine that can be started, paused and ended, and its log.

Every program is ended by its pid, at the latest when the test process dies. Start programs from the
main thread: the kernel ends a program together with the thread that started it.
"""

import contextlib
import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

from logfleet.io.tether import tethered
from logfleet.node.tools.loopback_ports import LoopbackPorts

from e2e.harness.signals import held

START_S_MAX = 90.0
STOP_S_MAX = 60.0
POLL_S = 0.01
LOG_TAIL_LINES = 60


class ProgramFailed(AssertionError):
    """A program ended or was not ready in time. The text ends with the last lines of its log."""


def reserve_row(ports: LoopbackPorts, count: int) -> int:
    """Reserve `count` consecutive ports; return the first."""
    while True:
        with contextlib.suppress(OSError):
            first = ports.reserve()
            for port in range(first + 1, first + count):
                ports.reserve(port)
            return first


class Program:
    """A command that can be started repeatedly, with one log that grows.

    directory: its working directory, created if needed; the log is `directory/NAME.log`. ports:
    reserves the ports on which it will listen; no other program gets them before `close`, even
    while it does not run. prefix: a program that executes the command, such as taskset.
    """

    def __init__(
        self,
        name: str,
        command: Sequence[str],
        directory: Path,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        self.name = name
        self.command = list(command)
        self.directory = directory
        self.environment = environment
        self.log = directory / f"{name}.log"
        self.ports = LoopbackPorts()
        self.prefix: list[str] = []
        self._process: subprocess.Popen[bytes] | None = None
        self._log_position = 0

    @property
    def pid(self) -> int:
        assert self._process is not None, f"{self.name} was never started"
        return self._process.pid

    @property
    def running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    @property
    def exit_code(self) -> int | None:
        """As in subprocess: negative for a signal; None while it runs."""
        return None if self._process is None else self._process.poll()

    def launch(self) -> None:
        """Start it without waiting until it is ready."""
        assert not self.running, f"{self.name} runs already"
        self.directory.mkdir(parents=True, exist_ok=True)
        with self.log.open("ab") as log, held():
            self._log_position = log.seek(0, os.SEEK_END)
            self._process = subprocess.Popen(
                tethered([*self.prefix, *self.command]),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd=self.directory,
                env=dict(self.environment) if self.environment is not None else None,
                # Ctrl-C must reach only the tests, which then end the program in order
                start_new_session=True,
            )

    def wait_until(self, ready: Callable[[], bool], timeout_s: float = START_S_MAX) -> None:
        """Wait until `ready()` is true.

        Raises ProgramFailed if the program ends before, or at the time limit.
        """
        give_up_s = time.monotonic() + timeout_s
        while not ready():
            if not self.running:
                raise ProgramFailed(f"{self.name} ended with {self.exit_code}:\n{self.tail()}")
            if time.monotonic() > give_up_s:
                raise ProgramFailed(f"{self.name} is not ready in {timeout_s} s:\n{self.tail()}")
            time.sleep(POLL_S)

    def wait(self, timeout_s: float = STOP_S_MAX) -> int:
        """Wait until it ends by itself.

        Return its exit code. Raises ProgramFailed at the time limit.
        """
        assert self._process is not None
        try:
            return self._process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            raise ProgramFailed(
                f"{self.name} did not end in {timeout_s} s:\n{self.tail()}"
            ) from None

    def send(self, number: signal.Signals) -> None:
        assert self._process is not None
        self._process.send_signal(number)

    def terminate(self, timeout_s: float = STOP_S_MAX) -> int:
        """Send SIGTERM; return its exit code.

        Raises ProgramFailed (and kills it) if it takes longer than `timeout_s`.
        """
        self.send(signal.SIGTERM)
        try:
            return self.wait(timeout_s)
        except ProgramFailed:
            self.kill()
            raise

    def kill(self) -> None:
        """Send SIGKILL and wait until it has ended. Does nothing if it does not run."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()

    def close(self) -> None:
        """Kill it and its running descendants; release its ports."""
        self.kill()
        if self._process is not None:
            end_session(self.pid)
        self.ports.release()

    def pause(self) -> None:
        """Send SIGSTOP and wait until all threads have stopped.

        The signal reaches them one by one.
        """
        self.send(signal.SIGSTOP)
        threads = Path(f"/proc/{self.pid}/task")
        while not all(_has_stopped(thread) for thread in threads.iterdir()):
            time.sleep(0.001)

    def resume(self) -> None:
        self.send(signal.SIGCONT)

    def cpu_seconds(self) -> float:
        """Processor time of the process and its threads since its start, user and system."""
        fields = _stat(Path(f"/proc/{self.pid}"))
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def rss_bytes(self) -> int:
        """Resident memory."""
        pages = int(Path(f"/proc/{self.pid}/statm").read_text().split()[1])
        return pages * os.sysconf("SC_PAGE_SIZE")

    def peak_rss_bytes(self) -> int:
        """Largest resident memory since its start."""
        status = Path(f"/proc/{self.pid}/status").read_text()
        return int(status.partition("VmHWM:")[2].split()[0]) * 1024

    def said(self) -> str:
        """Return what it has written since it was last launched."""
        with self.log.open("rb") as log:
            log.seek(self._log_position)
            return log.read().decode(errors="replace")

    def tail(self) -> str:
        if not self.log.exists():
            return "(it was never started)"
        return "\n".join(self.log.read_text(errors="replace").splitlines()[-LOG_TAIL_LINES:])


def end_session(leader: int) -> None:
    """Kill all processes in the session that one of our child processes leads.

    Spark's Python workers, for example, leave their parent's process group but not its session. The
    kernel does not reuse the session's number while a process is in the session. If the leader's
    pid belongs to a process that is not our child, the number was reused, and nothing is killed.
    """
    while members := dict(session_members(leader)):
        if members.get(leader, os.getpid()) != os.getpid():
            return
        for pid in members:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        time.sleep(POLL_S)


def session_members(leader: int) -> Iterator[tuple[int, int]]:
    """Return pid and parent's pid of the session's processes that are not zombies."""
    for process in Path("/proc").iterdir():
        if process.name.isdecimal():
            with contextlib.suppress(OSError):
                state, parent, _, session = _stat(process)[:4]
                if int(session) == leader and state not in "ZX":
                    yield int(process.name), int(parent)


def children_of(parent: int) -> list[int]:
    """Return the pids of its children that are not zombies, in any session."""
    found = []
    for process in Path("/proc").iterdir():
        if process.name.isdecimal():
            with contextlib.suppress(OSError):
                state, its_parent = _stat(process)[:2]
                if int(its_parent) == parent and state not in "ZX":
                    found.append(int(process.name))
    return found


def _stat(process: Path) -> list[str]:
    """Return the fields of proc_pid_stat(5) from the third (the state) on."""
    return (process / "stat").read_text().rpartition(")")[2].split()


def _has_stopped(thread: Path) -> bool:
    """Return whether a thread is stopped, or has ended since it was listed."""
    with contextlib.suppress(FileNotFoundError, ProcessLookupError):
        return _stat(thread)[0] == "T"
    return True
