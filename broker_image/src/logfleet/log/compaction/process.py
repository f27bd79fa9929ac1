"""The child process that compacts, as the broker sees it."""

import asyncio
import sys
from collections.abc import AsyncGenerator
from typing import Final

import msgspec

from logfleet.io.tether import tethered
from logfleet.log.compaction.program import Event, NotCleaned
from logfleet.log.compaction.round import Cleaned, CleaningJob

COMMAND: Final = (sys.executable, "-m", "logfleet.log.compaction.program")


class CleanerProcess:
    """Runs one job after another in a child process, started with the first job.

    It never outlives the broker (see tether). has_ended: it takes no more jobs.
    """

    def __init__(self) -> None:
        self._process: asyncio.subprocess.Process | None = None
        self._is_killed = False
        self._decoder = msgspec.json.Decoder(Event)

    @property
    def has_ended(self) -> bool:
        return self._is_killed or (
            self._process is not None and self._process.returncode is not None
        )

    async def run(self, job: CleaningJob) -> AsyncGenerator[Event, None]:
        """Yield the job's events; the last is Cleaned or NotCleaned, even if the process dies."""
        if self._process is None:
            try:
                self._process = await self._start()
            except OSError as error:  # out of memory or processes: not an error of the log's disk
                yield NotCleaned(f"the cleaner's process did not start: {error}")
                return
        process = self._process
        if self._is_killed:  # during the start
            self.kill()
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(msgspec.json.encode(job) + b"\n")
        while line := await process.stdout.readline():
            event = self._decoder.decode(line)
            yield event
            if isinstance(event, Cleaned | NotCleaned):
                return
        code = await process.wait()
        yield NotCleaned(f"the cleaner's process ended with {code}")

    @staticmethod
    async def _start() -> asyncio.subprocess.Process:
        return await asyncio.create_subprocess_exec(
            *tethered(list(COMMAND)),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            start_new_session=True,  # Ctrl-C at the terminal is for the broker
        )

    def kill(self) -> None:
        """Kill the process; a running job ends with NotCleaned."""
        self._is_killed = True
        if self._process is not None and self._process.returncode is None:
            self._process.kill()

    async def stop(self) -> None:
        """Kill the process and return once it has exited; no job may be running."""
        self.kill()
        if self._process is not None:
            assert self._process.stdout is not None
            await (
                self._process.stdout.read()
            )  # until EOF, which closes the pipe: `wait` may return before
            await self._process.wait()
