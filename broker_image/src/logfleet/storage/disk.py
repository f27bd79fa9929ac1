"""The disk of one log directory, as the event loop writes to it: directly, or through a thread.

A write into the page cache takes microseconds, until the kernel throttles the writer or a journal
stalls: then a 64 KiB append may take seconds, and the loop with all its connections would wait. The
loop waits for the first such write. From then on the disk is held up: a thread writes, in order and
all at once what waits for it; records are committed once they are written; reads and other
directories go on. (Kafka writes in its request handler threads, of which a slow disk can hold all.)

For small writes the thread costs more than the write, so the time in which it writes is short: the
loop writes itself again once no write was slow for HOLD_S_MIN. Each further stall of the loop
doubles that time, up to HOLD_S_MAX. It is HOLD_S_MIN again after CALM_S in which the loop wrote
itself.
"""

import asyncio
import errno
import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from time import perf_counter
from typing import Final

import structlog

from logfleet.io.files import File, Writable, is_shortage

log = structlog.get_logger(__name__)

SLOW_S: Final = 0.1
"""A write that takes longer holds the disk up. A disk that keeps up takes a hundredth of that."""
HOLD_S_MIN: Final = 1.0
HOLD_S_MAX: Final = 60.0
"""How long the thread writes after the last slow write."""
CALM_S: Final = 60.0
"""A stall later than this is the first one again."""
WAITING_BYTES_MAX: Final = 64 * 1024 * 1024
"""Of one directory, in the broker's memory. Appends beyond are refused, and clients try again."""
WRITE_BYTES: Final = 2_500
"""Memory of a waiting write besides its data, as measured with small ones."""
BATCH_BYTES: Final = 1024 * 1024
"""How much the thread writes, at most, before it takes what came meanwhile."""
TELL_S: Final = 0.01
"""A batch that takes longer is acknowledged in parts."""
REST_BYTES_MAX: Final = 1024 * 1024
"""The loop writes itself again only while no more waits: a few ms of a disk that is well."""
AGAIN_S: Final = 0.5
"""A write that finds no room is tried again after so long: it has its offsets already."""

Failed = Callable[[str, OSError], None]
"""Called on the loop with the path of the file that could not be written."""


class DiskBusy(OSError):
    """So much waits for the disk that no more is taken."""


class _Write:
    """path: of the file; None once it has another name, or none. then: to call on the loop."""

    __slots__ = ("data", "file", "is_written", "path", "position", "then")

    def __init__(self, file: File, data: bytes, position: int) -> None:
        self.file = file
        self.path: str | None = file.path
        self.data = data
        self.position = position
        self.then: list[Callable[[], None]] = []
        self.is_written = False

    @property
    def end(self) -> int:
        return self.position + len(self.data)


class Disk:
    """is_held_up: the thread writes for the loop; only the loop changes it.

    on_failure: see Failed; after an error that does not pass, nothing is written any more.
    """

    __slots__ = (
        "_calm_since",
        "_changed",
        "_closing",
        "_has_failed",
        "_hold_s",
        "_is_writing",
        "_loop",
        "_loop_thread",
        "_slow_at",
        "_thread",
        "_waiting",
        "_waiting_bytes",
        "_written",
        "is_held_up",
        "on_failure",
        "path",
    )

    def __init__(self, path: str, on_failure: Failed) -> None:
        self.path = path
        self.on_failure = on_failure
        self.is_held_up = False
        self._calm_since = -CALM_S
        self._slow_at = 0.0
        self._hold_s = HOLD_S_MIN
        self._closing = threading.Event()
        self._changed = threading.Condition()  # held to use all that follows
        self._waiting: deque[_Write] = deque()
        self._waiting_bytes = 0
        self._written: list[_Write] = []  # the loop has not heard of these
        self._is_writing = False
        self._has_failed = False

    def was_slow(self, seconds: float) -> None:
        """A write took so long. Only the loop is spared: who waits in a thread holds nobody up."""
        try:
            self._loop = asyncio.get_running_loop()
        except RuntimeError:
            return
        self._loop_thread = threading.get_ident()
        now = perf_counter()
        is_again = now - self._calm_since < CALM_S
        self._hold_s = min(2 * self._hold_s, HOLD_S_MAX) if is_again else HOLD_S_MIN
        log.warning(
            "disk_held_up", path=self.path, seconds=round(seconds, 3), hold_seconds=self._hold_s
        )
        self._slow_at = now
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="write")
        self.is_held_up = True

    def require_room(self) -> None:
        """Raises DiskBusy if what waits is too much for anything to be added."""
        if self._waiting_bytes > WAITING_BYTES_MAX:
            raise DiskBusy(errno.EAGAIN, "too much waits to be written", self.path)

    def write(self, file: File, data: Writable, position: int) -> bool:
        """Have it written after all that came before; `data` may change afterwards.

        False: the disk is not held up any more, nothing waits, and the caller writes it.
        """
        write = _Write(file, bytes(data), position)
        with self._changed:
            if not self.is_held_up:
                return False
            self._waiting.append(write)
            self._waiting_bytes += WRITE_BYTES + len(write.data)
            if threading.get_ident() != self._loop_thread:
                self._start()
            elif not self._is_writing:
                self._loop.call_soon(self._start)  # with what else is written in this step
        return True

    def when_written(self, then: Callable[[], None]) -> None:
        """Call it on the loop once all that waits by now is written; at once if nothing waits."""
        with self._changed:
            last = self._waiting or self._written
            if last:
                last[-1].then.append(then)
                return
        then()

    def waiting(self, path: str) -> list[tuple[int, bytes]]:
        """(position, data) of what waits for a file, oldest first. Any thread may ask."""
        with self._changed:
            return [(each.position, each.data) for each in self._waiting if each.path == path]

    def forget(self, path: str) -> None:
        """The file was renamed, removed or replaced.

        What waits for it is not for the next file of that name.
        """
        with self._changed:
            for each in self._waiting:
                if each.path == path:
                    each.path = None

    def drain(self) -> None:
        """Return once all that waits by now is written. Blocks. Raises OSError if it cannot be."""
        with self._changed:
            if not self._waiting:
                return
            last = self._waiting[-1]
            self._start()
            self._changed.wait_for(lambda: last.is_written or self._has_failed)
        if not last.is_written:
            raise OSError(errno.EIO, "not written: the log directory is given up", self.path)

    def close(self) -> None:
        """The directory is given up: what waits for room waits no longer."""
        self._closing.set()

    def _start(self) -> None:
        """Have the thread write what waits, unless it does already."""
        with self._changed:
            if self._waiting and not self._is_writing:
                self._is_writing = True
                self._thread.submit(self._carry_out)

    # In the thread

    def _carry_out(self) -> None:
        """Write until nothing waits. Nothing more after a failure: it would lie behind a hole."""
        try:
            while batch := self._next_batch():
                began, done = perf_counter(), 0
                for run, end in _runs(batch):
                    self._write(run)
                    if end == len(batch) or perf_counter() - began > TELL_S:
                        self._took(end - done)
                        done = end
        except OSError:  # `on_failure` has it
            with self._changed:
                self._has_failed = True
                self._changed.notify_all()

    def _next_batch(self) -> list[_Write]:
        with self._changed:
            batch: list[_Write] = []
            size = 0
            for each in self._waiting:
                size += len(each.data)
                if batch and size > BATCH_BYTES:
                    break
                batch.append(each)
            self._is_writing = bool(batch)
            return batch

    def _write(self, run: Sequence[_Write]) -> None:
        """Write what lies side by side in one file. Raises OSError if that is given up."""
        first = run[0]
        data = first.data if len(run) == 1 else b"".join(each.data for each in run)
        started = perf_counter()
        while True:
            if self._closing.is_set():
                raise OSError(errno.EIO, "not written: the log directory is given up", self.path)
            try:
                first.file.pwrite(data, first.position)
                break
            except OSError as error:
                self._loop.call_soon_threadsafe(self.on_failure, first.file.path, error)
                if not is_shortage(error):
                    self._closing.set()
                    raise
                self._closing.wait(AGAIN_S)
        now = perf_counter()
        if now - started > SLOW_S:
            self._slow_at = now

    def _took(self, count: int) -> None:
        """The first of what waits is written, so many writes."""
        with self._changed:
            is_loop_waiting = not self._written
            for _ in range(count):
                write = self._waiting.popleft()
                write.is_written = True
                self._waiting_bytes -= WRITE_BYTES + len(write.data)
                self._written.append(write)
            self._changed.notify_all()
        if is_loop_waiting:
            self._loop.call_soon_threadsafe(self._tell)

    # On the loop

    def _tell(self) -> None:
        self._call_written()
        is_calm = perf_counter() - self._slow_at > self._hold_s
        if is_calm and self._waiting_bytes <= REST_BYTES_MAX:
            self._end()

    def _call_written(self) -> None:
        """Call all callbacks that wait for what is written."""
        with self._changed:
            written, self._written = self._written, []
        for write in written:
            for then in write.then:
                then()

    def _end(self) -> None:
        """Have the loop write again, once the thread has written the rest: nothing overtakes that.

        Waits for the rest for SLOW_S at most. If that is too short, the time begins again.
        """
        with self._changed:
            self._start()
            if not self._changed.wait_for(lambda: not self._waiting, SLOW_S):
                self._slow_at = perf_counter()
                return
        self._call_written()
        with self._changed:
            if self._waiting or self._written:  # a thread has written, or who was called
                return
            self.is_held_up = False
        self._calm_since = perf_counter()
        self._thread.shutdown(wait=False)
        log.info("disk_calm", path=self.path)


def _runs(batch: Sequence[_Write]) -> Iterator[tuple[list[_Write], int]]:
    """What lies side by side in one file is one run; the runs in the order of their first writes.

    With each: how many writes, from the first on, are done once this run and those before are.
    """
    runs: list[tuple[int, list[_Write]]] = []
    latest: dict[File, list[_Write]] = {}
    for number, write in enumerate(batch):
        run = latest.get(write.file)
        if run is not None and run[-1].end == write.position:
            run.append(write)
        else:
            latest[write.file] = run = [write]
            runs.append((number, run))
    ends = [number for number, _ in runs[1:]] + [len(batch)]
    yield from zip((run for _, run in runs), ends, strict=True)


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
        if disk.is_held_up and disk.write(self._file, data, position):
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
