"""Runs a program that shall not outlive the process that started it: `python tether.py STARTER_PID PROGRAM ARGUMENT...`.

The kernel kills a tethered program at the death of its starter, however that dies (prctl(2), PR_SET_PDEATHSIG: precisely, of the starter's
thread that started it). The setting survives execve, so the program becomes this process: same pid, nothing between.
A setting made by the starter itself between fork and exec (`preexec_fn`) would not be safe with threads; hence a program.
It is run by its path, on the standard library alone, and costs some 15 ms.
"""

import ctypes
import os
import signal
import sys

PR_SET_PDEATHSIG = 1


def tethered(command: list[str]) -> list[str]:
    """The command that runs `command` for as long as the calling process lives at most."""
    return [sys.executable, "-I", "-S", __file__, str(os.getpid()), *command]


def main(starter: int, command: list[str]) -> None:
    """Become `command`. Exits with 1 if the starter is dead already, with a message if the program cannot be run."""
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0) != 0:
        sys.exit(f"prctl: {os.strerror(ctypes.get_errno())}")
    if os.getppid() != starter:  # it died before the tether was tied
        sys.exit(1)
    try:
        os.execvp(command[0], command)  # noqa: S606 - what this program is for
    except OSError as error:
        sys.exit(f"{command[0]}: {error.strerror}")


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2:])
