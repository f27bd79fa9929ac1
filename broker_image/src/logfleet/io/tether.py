"""Runs a program that must not outlive its starter.

Usage: `python tether.py STARTER_PID PROGRAM ARGUMENT...`. The kernel kills the program when its
starter dies, in whatever way (prctl(2), PR_SET_PDEATHSIG: more precisely, when the thread that
started it ends). The setting survives execve, so this process becomes the program: same pid,
nothing in between. Making the setting in the starter between fork and exec (`preexec_fn`) would not
be safe with threads; hence a program. It is run by its path, uses only the standard library, and
costs some 15 ms.
"""

import ctypes
import os
import signal
import sys

PR_SET_PDEATHSIG = 1


def tethered(command: list[str]) -> list[str]:
    """A command that runs `command` no longer than the calling process lives."""
    return [sys.executable, "-I", "-S", __file__, str(os.getpid()), *command]


def main(starter: int, command: list[str]) -> None:
    """Become `command`.

    Exits with 1 if the starter is already dead, with a message if the program cannot be run.
    """
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0) != 0:
        sys.exit(f"prctl: {os.strerror(ctypes.get_errno())}")
    if os.getppid() != starter:  # the starter died before the prctl call
        sys.exit(1)
    try:
        os.execvp(command[0], command)  # noqa: S606 - what this program is for
    except OSError as error:
        sys.exit(f"{command[0]}: {error.strerror}")


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2:])
