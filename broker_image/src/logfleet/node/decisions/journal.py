"""Keeps a broker's decisions over restarts: two files of JSON lines in a log directory, in turns.

A thread of its own writes, once a second and at the end: a disk that hangs delays nothing else.
What cannot be written, as the disk is full or has failed, is still reported by the running broker,
and counted. Writes are not flushed: a process that is killed loses the last second of decisions, a
machine that loses power somewhat more.
"""

import asyncio
import contextlib
import queue
import threading
from collections.abc import Callable
from typing import Final

from logfleet.io.files import Files, read_file
from logfleet.telemetry.decisions import Decisions, RecordedDecision, parse

NAME: Final = "logfleet-decisions.jsonl"
FORMER_NAME: Final = "logfleet-decisions.1.jsonl"
FILE_BYTES_MAX: Final = 1024 * 1024
PERIOD_S: Final = 1.0
STOP_S_MAX: Final = 2.0
"""Longest time that a stop waits for a disk that may hang."""
END: Final = b""


class Journal:
    """Writes decisions to disk. decisions: where they come from, and where earlier ones go."""

    def __init__(self, decisions: Decisions, files: Files) -> None:
        self._decisions = decisions
        self._files = files
        self._path = self._former = ""
        self._batches: queue.SimpleQueue[bytes] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._write_all, name="decisions", daemon=True)
        self._lost = 0

    @property
    def dropped(self) -> int:
        """Decisions that will be lost at a restart."""
        return self._decisions.dropped + self._lost

    async def open(self, directory: str) -> None:
        """Restore the decisions that are written there, and write there from now on.

        A file that cannot be read counts as empty.
        """
        self._path, self._former = f"{directory}/{NAME}", f"{directory}/{FORMER_NAME}"
        self._decisions.insert_earlier(await asyncio.to_thread(self._read_all))
        self._thread.start()

    async def run(self, check: Callable[[], None]) -> None:
        """Hand over recorded decisions, until cancelled.

        check: called before each time, to record what no event reports.
        """
        while True:
            await asyncio.sleep(PERIOD_S)
            check()
            self._decisions.record_left_out()
            # else the disk is slow, and they wait in `Decisions`, which is bounded
            if self._batches.empty():
                self._hand_over()

    async def close(self) -> None:
        """Write the remaining decisions, unless the disk hangs."""
        self._hand_over()
        self._batches.put(END)
        await asyncio.to_thread(self._thread.join, STOP_S_MAX)

    def _hand_over(self) -> None:
        if data := self._decisions.take_unwritten():
            self._batches.put(data)

    def _write_all(self) -> None:
        while (data := self._batches.get()) != END:
            try:
                self._append(data)
            except OSError:
                self._lost += data.count(b"\n")

    def _append(self, data: bytes) -> None:
        file = self._files.open(self._path, create=True)
        size = file.size()
        if size and size + len(data) > FILE_BYTES_MAX:
            self._files.rename(self._path, self._former)
            file, size = self._files.open(self._path, create=True), 0
        if size and file.pread(1, size - 1) != b"\n":
            data = b"\n" + data  # the last line was cut off
        file.pwrite(data, size)

    def _read_all(self) -> list[tuple[RecordedDecision, bytes]]:
        found = []
        for path in (self._former, self._path):
            with contextlib.suppress(OSError):
                found += parse(read_file(self._files, path) or b"")
        return found
