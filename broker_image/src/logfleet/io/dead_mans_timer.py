"""A timer by which the kernel kills this process, unless somebody in it sets the timer again in time.

A process that is stopped (SIGSTOP, a frozen machine) or that hangs keeps its sockets open, and its
kernel goes on acknowledging what arrives there. So a client waits for as long as its own timeouts
allow (librdkafka: socket.timeout.ms, 60 s; Java: request.timeout.ms, 30 s), although another broker
has led for long. Only the end of the process closes the sockets, and only the kernel can end a
process that does not run. timer_create(2) does it without a second process: on expiry the kernel
sends SIGKILL, to a stopped process as well.

The clock is CLOCK_BOOTTIME: a process whose machine was suspended meanwhile is killed before it
answers anything. A fork does not inherit the timer, and an exec deletes it (timer_create(2)), so
children are safe from it.
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
    """Not safe for use by two threads at once."""

    def arm(self, at_s: float) -> None:
        """Kill this process at this time (io.clock.boot_s), and at no time that was set before."""

    def disarm(self) -> None:
        """Kill this process at no time."""

    def close(self) -> None:
        """Disarm it and give it back. The last call."""


class NoTimer:
    """Kills nobody: for a broker inside another program, and where the kernel has no such timer."""

    def arm(self, at_s: float) -> None:
        del at_s

    def disarm(self) -> None: ...

    def close(self) -> None: ...


NO_TIMER: Final = NoTimer()


class _Event(ctypes.Structure):
    """struct sigevent: 64 bytes, of which a signal needs the first three fields."""

    _fields_ = (
        ("value", ctypes.c_void_p),
        ("signal", ctypes.c_int),
        ("kind", ctypes.c_int),
        ("padding", ctypes.c_char * 48),
    )


class _Setting(ctypes.Structure):
    """struct itimerspec: the interval of repetitions, and the first expiry; all zero disarms."""

    _fields_ = (
        ("interval_s", ctypes.c_long),
        ("interval_ns", ctypes.c_long),
        ("at_s", ctypes.c_long),
        ("at_ns", ctypes.c_long),
    )


class KernelTimer:
    """Kills the process that makes it. Setting it takes some 6 us, setting it to the same time nothing.

    Raises Unavailable.
    """

    def __init__(self) -> None:
        if os.getpid() == PID_OF_INIT:
            raise Unavailable("the kernel spares process 1 of a container: run it below an init")
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
