"""Programs run by the lab: argument lists in, text out, one exception with the program's own words."""

import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from os import PathLike
from pathlib import Path

Argument = str | PathLike[str] | int
OUTPUT_CHARS_SHOWN = 2000


class LabError(Exception):
    """What the lab cannot do, as one sentence (and the last words of the program that failed)."""


def run(
    *arguments: Argument,
    cwd: Path | None = None,
    env: Mapping[str, str] | None = None,
    stdin: str | None = None,
    timeout_s: float | None = None,
) -> str:
    """Run a program to its end and give its standard output. Raises LabError if it fails."""
    command = [str(argument) for argument in arguments]
    done = _complete(command, cwd=cwd, env=env, stdin=stdin, timeout_s=timeout_s)
    if done.returncode != 0:
        words = (done.stderr or done.stdout).strip()[-OUTPUT_CHARS_SHOWN:]
        raise LabError(f"{_shown(command)} ended with {done.returncode}: {words}")
    return done.stdout


def succeeds(*arguments: Argument, timeout_s: float | None = None) -> bool:
    """True if the program ends with 0; for questions, whose other answers are no errors."""
    command = [str(argument) for argument in arguments]
    return _complete(command, cwd=None, env=None, stdin=None, timeout_s=timeout_s).returncode == 0


def wait_until(what: str, condition: Callable[[], bool], within_s: float) -> None:
    """Return as soon as the condition holds. Raises LabError, naming `what`, after `within_s`."""
    end = time.monotonic() + within_s
    while not condition():
        if time.monotonic() > end:
            raise LabError(f"waited {within_s:.0f} s for {what}")
        time.sleep(0.1)


def _complete(
    command: Sequence[str],
    *,
    cwd: Path | None,
    env: Mapping[str, str] | None,
    stdin: str | None,
    timeout_s: float | None,
) -> subprocess.CompletedProcess[str]:
    try:
        return subprocess.run(
            command,
            check=False,
            text=True,
            capture_output=True,
            cwd=cwd,
            env=env,
            input=stdin if stdin is not None else "",
            timeout=timeout_s,
        )
    except FileNotFoundError as error:
        raise LabError(f"{command[0]} is not installed") from error
    except subprocess.TimeoutExpired as error:
        raise LabError(f"{_shown(command)} took longer than {timeout_s} s") from error


def _shown(command: Sequence[str]) -> str:
    text = " ".join(command)
    return text if len(text) <= 200 else text[:200] + "..."
