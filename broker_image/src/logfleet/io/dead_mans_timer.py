"""A timer by which the kernel kills this process unless the process sets it again in time.

A process that is stopped (SIGSTOP, a frozen machine) or hangs keeps its sockets open, and its
kernel still acknowledges incoming data. So clients wait for their own timeouts (librdkafka:
socket.timeout.ms, 60 s; Java: request.timeout.ms, 30 s), although another broker has long been the
leader. Only the end of the process closes the sockets, and only the kernel can end a process that
does not run. timer_create(2) does it without a second process: on expiry the kernel sends SIGKILL,
to a stopped process as well.

The clock is CLOCK_BOOTTIME: if the machine was suspended meanwhile, the process is killed before it
sends anything. A fork does not inherit the timer, and an exec deletes it (timer_create(2)), so
child processes are safe from it.
"""

import ctypes
import os
import signal
import time
from typing import Final, Protocol

NS_PER_S: Final = 1_000_000_000
PID_OF_INIT: Final = 1
TIMER_ABSTIME: Final = 1
SIGEV_SIGNAL: Final = 0


class Unavailable(Exception):
    """This process cannot have such a timer. The text says why."""


class DeadMansTimer(Protocol):
    """A timer by which the kernel kills this process. Not thread-safe."""

    def arm(self, at_s: float) -> None:
        """Kill this process at this time (io.clock.boot_s) instead of any time set before."""

    def disarm(self) -> None:
        """Let the process live, however long it does not run."""

    def close(self) -> None:
        """Disarm and free the timer. Must be the last call."""


class NoTimer:
    """Never kills: for a broker inside another program, and for kernels without such a timer."""

    def arm(self, at_s: float) -> None:
        del at_s

    def disarm(self) -> None: ...

    def close(self) -> None: ...


NO_TIMER: Final = NoTimer()


class _Event(ctypes.Structure):
    """struct sigevent: 64 bytes; a signal needs only the first three fields."""

    _fields_ = (
        ("value", ctypes.c_void_p),
        ("signal", ctypes.c_int),
        ("kind", ctypes.c_int),
        ("padding", ctypes.c_char * 48),
    )


class _Setting(ctypes.Structure):
    """struct itimerspec: the interval, and the first expiry; all zero disarms."""

    _fields_ = (
        ("interval_s", ctypes.c_long),
        ("interval_ns", ctypes.c_long),
        ("at_s", ctypes.c_long),
        ("at_ns", ctypes.c_long),
    )


class KernelTimer:
    """Kills the process that creates it. Arming takes some 6 us, arming for the same time nothing.

    Raises Unavailable.
    """

    def __init__(self) -> None:
        if os.getpid() == PID_OF_INIT:
            raise Unavailable(
                "the kernel does not kill process 1 of a container: run it below an init"
            )
        self._libc = ctypes.CDLL(None, use_errno=True)
        self._timer = ctypes.c_void_p()
        self._at_ns = 0
        event = _Event(signal=signal.SIGKILL, kind=SIGEV_SIGNAL)
        try:
            create, clock = self._libc.timer_create, time.CLOCK_BOOTTIME
        except AttributeError as error:
            raise Unavailable(f"not on this system: {error}") from error
        if create(clock, ctypes.byref(event), ctypes.byref(self._timer)) != 0:
            raise Unavailable(f"timer_create: {os.strerror(ctypes.get_errno())}")

    def arm(self, at_s: float) -> None:
        self._set(int(at_s * NS_PER_S))

    def disarm(self) -> None:
        self._set(0)

    def close(self) -> None:
        self._check(self._libc.timer_delete(self._timer))

    def _set(self, at_ns: int) -> None:
        if at_ns == self._at_ns:
            return
        setting = _Setting(0, 0, *divmod(at_ns, NS_PER_S))
        self._check(
            self._libc.timer_settime(self._timer, TIMER_ABSTIME, ctypes.byref(setting), None)
        )
        self._at_ns = at_ns

    @staticmethod
    def _check(result: int) -> None:
        assert result == 0, os.strerror(ctypes.get_errno())
