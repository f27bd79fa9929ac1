"""A child process that never outlives this one (see tether)."""

import asyncio
import os
import signal
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from logfleet.io.tether import tethered

TAIL_BYTES: Final = 4_096


class ChildProcess:
    """A child process. name: for messages. log: file to which its output is appended."""

    def __init__(self, name: str, command: Sequence[str], log: Path) -> None:
        self.name = name
        self.log = log
        self._command = list(command)
        self._log_position = 0
        self._process: asyncio.subprocess.Process | None = None  # None until it is started
        self._ended: asyncio.Task[int] | None = None

    @property
    def ended(self) -> "asyncio.Task[int]":
        """Done when the process has exited; the result is its exit code (negative for a signal)."""
        assert self._ended is not None, f"{self.name} is not started"
        return self._ended

    @property
    def has_ended(self) -> bool:
        return self._ended is not None and self._ended.done()

    async def start(self) -> None:
        self.log.parent.mkdir(parents=True, exist_ok=True)
        with self.log.open("ab") as log:
            self._log_position = log.seek(0, os.SEEK_END)
            self._process = await asyncio.create_subprocess_exec(
                *tethered(self._command),
                stdin=asyncio.subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,  # Ctrl-C at the terminal is for us: we stop it in order
            )
        self._ended = asyncio.ensure_future(self._process.wait())

    async def stop(self, grace_s: float) -> bool:
        """Send SIGTERM, SIGKILL after `grace_s`; return once it has exited.

        False if it had to be killed.
        """
        if self._process is None:
            return True
        self._signal(signal.SIGTERM)
        done, _ = await asyncio.wait([self.ended], timeout=grace_s)
        if not done:
            self.kill()
            await self.ended
        return bool(done)

    def kill(self) -> None:
        self._signal(signal.SIGKILL)

    def _signal(self, number: signal.Signals) -> None:
        """Send a signal, unless the process has exited (`ended` is done only some turns later)."""
        if self._process is not None and self._process.returncode is None:
            self._process.send_signal(number)

    def output_tail(self) -> str:
        """The end of its output since its start."""
        with self.log.open("rb") as log:
            size = log.seek(0, os.SEEK_END)
            log.seek(max(self._log_position, size - TAIL_BYTES))
            return log.read().decode(errors="replace").strip()
