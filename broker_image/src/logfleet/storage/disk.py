"""The disk of one log directory, as the event loop writes to it: directly while it takes writes at once, else through a thread.

A write into the page cache takes microseconds, until the kernel throttles the writer or a journal stalls: then a 64 KiB append may take
seconds, and the loop with all its connections would wait. Such a stall is paid once. The write that was slow holds the disk up: what
comes after it is handed to a thread, in order, and is acknowledged once it is written; reads and other directories go on. When
nothing was slow for CALM_S, the loop writes itself again. (Kafka writes in its request handler threads, of which a slow disk can hold all.)
"""

import asyncio
import errno
import threading
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from time import perf_counter
from typing import Final

import structlog

from logfleet.io.files import File, Writable, is_shortage

log = structlog.get_logger(__name__)

SLOW_S: Final = 0.1
"""A write that takes longer holds the disk up. What the kernel does with a disk that keeps up is done in a hundredth of that."""
CALM_S: Final = 60.0
WAITING_BYTES_MAX: Final = 64 * 1024 * 1024
"""Of one directory, in the broker's memory. Appends beyond are refused, and clients try again."""
WRITE_BYTES: Final = 2_500
"""What a write takes while it waits, besides its data: about so much was seen with small ones."""
AGAIN_S: Final = 0.5
"""A write that finds no room is tried again after so long: it was given its offsets and cannot be refused any more."""

Failed = Callable[[str, OSError], None]
"""Called on the loop with the path of the file that could not be written."""


class DiskBusy(OSError):
    """So much waits for the disk that no more is taken."""


class _Write:
    """path: of the file, None once it goes by another name, or none."""

    __slots__ = ("data", "done", "file", "path", "position", "then")

    def __init__(self, file: File, data: bytes, position: int) -> None:
        self.file = file
        self.path: str | None = file.path
        self.data = data
        self.position = position
        self.then: list[Callable[[], None]] = []
        self.done: Future[None]


class Disk:
    """is_held_up: writes of the loop go through the thread. on_failure: see Failed; nothing is written any more after it."""

    __slots__ = (
        "_calm_since",
        "_closing",
        "_lock",
        "_loop",
        "_thread",
        "_waiting",
        "_waiting_bytes",
        "is_held_up",
        "on_failure",
        "path",
    )

    def __init__(self, path: str, on_failure: Failed) -> None:
        self.path = path
        self.on_failure = on_failure
        self.is_held_up = False
        self._calm_since = 0.0
        self._closing = threading.Event()
        self._lock = threading.Lock()
        self._waiting: deque[_Write] = deque()
        self._waiting_bytes = 0

    def was_slow(self, seconds: float) -> None:
        """A write took so long. Only the loop is spared: who waits in a thread holds nobody up."""
        try:
            self._loop = asyncio.get_running_loop()
        except RuntimeError:
            return
        log.warning("disk_held_up", path=self.path, seconds=round(seconds, 3))
        self._calm_since = perf_counter()
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="write")
        self.is_held_up = True

    def require_room(self) -> None:
        """Raises DiskBusy if what waits is too much for anything to be added."""
        if self._waiting_bytes > WAITING_BYTES_MAX:
            raise DiskBusy(errno.EAGAIN, "too much waits to be written", self.path)

    def write(self, file: File, data: Writable, position: int) -> None:
        """Write it in the thread, after all that came before; `data` may change afterwards."""
        write = _Write(file, bytes(data), position)
        with self._lock:
            self._waiting.append(write)
            self._waiting_bytes += WRITE_BYTES + len(write.data)
            write.done = self._thread.submit(self._carry_out, write)

    def when_written(self, then: Callable[[], None]) -> None:
        """Call it on the loop once all that waits by now is written; at once if nothing does, as after the write that was slow."""
        with self._lock:
            if self._waiting:
                self._waiting[-1].then.append(then)
                return
        then()

    def waiting(self, path: str) -> list[tuple[int, bytes]]:
        """(position, data) of what waits to be written to a file, oldest first. Any thread may ask."""
        with self._lock:
            return [(each.position, each.data) for each in self._waiting if each.path == path]

    def forget(self, path: str) -> None:
        """The file was renamed, removed or replaced: what waits for it is not for the one that has its name next."""
        with self._lock:
            for each in self._waiting:
                if each.path == path:
                    each.path = None

    def drain(self) -> None:
        """Return once all that waits by now is written. Blocks. Raises OSError if something of it cannot be."""
        with self._lock:
            last = self._waiting[-1] if self._waiting else None
        if last is not None:
            last.done.result()

    def close(self) -> None:
        """The directory is given up: what waits for room waits no longer."""
        self._closing.set()

    def _carry_out(self, write: _Write) -> None:
        """In the thread. After a failure all that comes later fails too: it would lie behind a hole."""
        started = perf_counter()
        while True:
            if self._closing.is_set():
                raise OSError(errno.EIO, "not written: the log directory is given up", self.path)
            try:
                write.file.pwrite(write.data, write.position)
                break
            except OSError as error:
                self._loop.call_soon_threadsafe(self.on_failure, write.file.path, error)
                if not is_shortage(error):
                    self._closing.set()
                    raise
                self._closing.wait(AGAIN_S)
        with self._lock:
            assert self._waiting.popleft() is write, "written in order"
            self._waiting_bytes -= WRITE_BYTES + len(write.data)
            self._loop.call_soon_threadsafe(self._written, write, perf_counter() - started)

    def _written(self, write: _Write, seconds: float) -> None:
        now = perf_counter()
        if seconds > SLOW_S:
            self._calm_since = now
        for then in write.then:
            then()
        if not self._waiting and now - self._calm_since > CALM_S:
            self.is_held_up = False
            self._thread.shutdown(wait=False)
            log.info("disk_calm", path=self.path)


class SparedFile:
    """An open file of a log directory; writes spare the loop while the disk is held up, and reads see them all the same."""

    __slots__ = ("_disk", "_file", "path")

    def __init__(self, file: File, disk: Disk) -> None:
        self.path = file.path
        self._file = file
        self._disk = disk

    def fileno(self) -> int:
        """Descriptor of what is written by now."""
        return self._file.fileno()

    def size(self) -> int:
        waiting = self._disk.waiting(self.path) if self._disk.is_held_up else []
        return max([self._file.size(), *(at + len(data) for at, data in waiting)])

    def pread(self, length: int, position: int) -> bytes:
        if not self._disk.is_held_up:
            return self._file.pread(length, position)
        waiting = self._disk.waiting(self.path)  # first: what is written meanwhile is read twice
        found = bytearray(self._file.pread(length, position))
        for start, data in waiting:
            _lay_over(found, length, start - position, data)
        return bytes(found)

    def pwrite(self, data: Writable, position: int) -> None:
        disk = self._disk
        if disk.is_held_up:
            disk.write(self._file, data, position)
            return
        started = perf_counter()
        self._file.pwrite(data, position)
        seconds = perf_counter() - started
        if seconds > SLOW_S:
            disk.was_slow(seconds)

    def truncate(self, length: int) -> None:
        """Blocks until what waits is written, unless the file is no longer than that: files are hardly ever shortened."""
        if self._disk.is_held_up:
            if self.size() == length:
                return
            self._disk.drain()
        self._file.truncate(length)

    def fsync(self) -> None:
        if self._disk.is_held_up:
            self._disk.drain()
        self._file.fsync()


def _lay_over(found: bytearray, length: int, at: int, data: bytes) -> None:
    """Put what waits at `at` of a read of `length` bytes into what was found; it may begin before and end behind."""
    if at >= length or at + len(data) <= 0:
        return
    if at < 0:
        at, data = 0, data[-at:]
    if at > len(found):
        found += bytes(at - len(found))
    end = min(at + len(data), length)
    found[at:end] = data[: end - at]
