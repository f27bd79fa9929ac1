"""The disk of one log directory, as the event loop writes to it: directly, or through a thread.

A write into the page cache takes microseconds, until the kernel throttles the writer or a journal
stalls: then a 64 KiB append may take seconds, and the loop with all its connections would wait. The
loop waits for the first such write. From then on the disk is held up: a thread does the writes, in
order and in batches; records are committed once they are written; reads and other directories go
on. (Kafka writes in its request handler threads, all of which a slow disk can block.)

For small writes the thread costs more than the write, so it is used only briefly: the loop writes
itself again once no write was slow for HOLD_S_MIN. Each further stall of the loop doubles that
time, up to HOLD_S_MAX. It is HOLD_S_MIN again after the loop has written for CALM_S without a
stall.
"""

import asyncio
import errno
import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from time import perf_counter
from typing import Final, Protocol

import structlog

from logfleet.io.files import File, Writable, is_shortage

log = structlog.get_logger(__name__)

SLOW_S: Final = 0.1
"""A write that takes longer makes the disk held up. A healthy disk takes a hundredth of that."""
HOLD_S_MIN: Final = 1.0
HOLD_S_MAX: Final = 60.0
"""Bounds of the time for which the thread keeps writing after the last slow write."""
CALM_S: Final = 60.0
"""After a calm period of this length a stall counts as the first one again."""
WAITING_BYTES_MAX: Final = 64 * 1024 * 1024
"""Limit of queued data per directory, in the broker's memory. Appends beyond it are refused, and
clients retry."""
WRITE_BYTES: Final = 2_500
"""Memory of a queued write besides its data, measured with small writes."""
BATCH_BYTES: Final = 1024 * 1024
"""The thread writes at most this much before it takes newly queued writes."""
REPORT_S: Final = 0.01
"""A batch that takes longer is reported to the loop in parts."""
REST_BYTES_MAX: Final = 1024 * 1024
"""The loop takes over again only if no more than this is queued: a few ms for a healthy disk."""
RETRY_S: Final = 0.5
"""Pause before a write that found no room is retried: it cannot be dropped, as its records have
offsets."""

OnWriteFailed = Callable[[str, OSError], None]
"""Called on the loop with the path of the file that could not be written."""


class DiskBusy(OSError):
    """Too much data is queued for the disk to accept more."""


class Target(Protocol):
    """What a write goes to: an open file, or what takes a file's place in the queue."""

    path: str

    def pwrite(self, data: Writable, position: int, /) -> None: ...


class _QueuedWrite:
    """Bytes to write at a position of a file.

    path: of the file; None once the file was renamed or removed. then: callbacks for the loop.
    """

    __slots__ = ("data", "file", "is_written", "path", "position", "then")

    def __init__(self, file: Target, data: bytes, position: int) -> None:
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
    """is_held_up: the thread writes instead of the loop; only the loop changes it.

    on_failure: see OnWriteFailed. After an error that is not a shortage nothing is written any
    more.
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

    def __init__(self, path: str, on_failure: OnWriteFailed) -> None:
        self.path = path
        self.on_failure = on_failure
        self.is_held_up = False
        self._calm_since = -CALM_S
        self._slow_at = 0.0
        self._hold_s = HOLD_S_MIN
        self._closing = threading.Event()
        self._changed = threading.Condition()  # guards all attributes below
        self._waiting: deque[_QueuedWrite] = deque()
        self._waiting_bytes = 0
        self._written: list[_QueuedWrite] = []  # not yet reported to the loop
        self._is_writing = False
        self._has_failed = False

    def on_slow_write(self, seconds: float) -> None:
        """The loop was blocked by a write: let a thread write. Ignored in other threads."""
        try:
            self._loop = asyncio.get_running_loop()
        except RuntimeError:
            return
        self._loop_thread = threading.get_ident()
        now = perf_counter()
        is_repeated = now - self._calm_since < CALM_S
        self._hold_s = min(2 * self._hold_s, HOLD_S_MAX) if is_repeated else HOLD_S_MIN
        log.warning(
            "disk_held_up", path=self.path, seconds=round(seconds, 3), hold_seconds=self._hold_s
        )
        self._slow_at = now
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="write")
        self.is_held_up = True

    def require_room(self) -> None:
        """Raises DiskBusy if too much is queued to accept more."""
        if self._waiting_bytes > WAITING_BYTES_MAX:
            raise DiskBusy(errno.EAGAIN, "too many writes are waiting for the disk", self.path)

    def write(self, file: Target, data: Writable, position: int) -> bool:
        """Queue a write behind all earlier ones; `data` may change afterwards.

        Returns False if the disk is no longer held up and the queue is empty: then the caller
        writes it.
        """
        write = _QueuedWrite(file, bytes(data), position)
        with self._changed:
            if not self.is_held_up:
                return False
            self._waiting.append(write)
            self._waiting_bytes += WRITE_BYTES + len(write.data)
            if threading.get_ident() != self._loop_thread:
                self._start()
            elif not self._is_writing:
                self._loop.call_soon(self._start)  # together with other writes of this iteration
        return True

    def when_written(self, then: Callable[[], None]) -> None:
        """Call `then` on the loop once the present queue is written; at once if it is empty."""
        with self._changed:
            last = self._waiting or self._written
            if last:
                last[-1].then.append(then)
                return
        then()

    def waiting(self, path: str) -> list[tuple[int, bytes]]:
        """(position, data) of the queued writes of a file, oldest first. Thread-safe."""
        with self._changed:
            return [(each.position, each.data) for each in self._waiting if each.path == path]

    def drop(self, path: str) -> None:
        """The file was renamed, removed or replaced.

        Its queued writes must not show up in the next file of that name.
        """
        with self._changed:
            for each in self._waiting:
                if each.path == path:
                    each.path = None

    def drain(self) -> None:
        """Return once everything queued by now is written. Blocks.

        Raises OSError if it cannot be.
        """
        with self._changed:
            if not self._waiting:
                return
            last = self._waiting[-1]
            self._start()
            self._changed.wait_for(lambda: last.is_written or self._has_failed)
        if not last.is_written:
            raise OSError(errno.EIO, "not written: the log directory is given up", self.path)

    def close(self) -> None:
        """The directory is given up: stop retrying writes that found no room."""
        self._closing.set()

    def _start(self) -> None:
        """Start the thread's work on the queue, unless it is already running."""
        with self._changed:
            if self._waiting and not self._is_writing:
                self._is_writing = True
                self._thread.submit(self._write_queued)

    # In the thread

    def _write_queued(self) -> None:
        """Write until the queue is empty. Stop at a failure: later data would lie behind a hole."""
        try:
            while batch := self._next_batch():
                began, done = perf_counter(), 0
                for run, end in _runs(batch):
                    self._write(run)
                    if end == len(batch) or perf_counter() - began > REPORT_S:
                        self._mark_written(end - done)
                        done = end
        except OSError:  # already reported to `on_failure`
            with self._changed:
                self._has_failed = True
                self._changed.notify_all()

    def _next_batch(self) -> list[_QueuedWrite]:
        with self._changed:
            batch: list[_QueuedWrite] = []
            size = 0
            for each in self._waiting:
                size += len(each.data)
                if batch and size > BATCH_BYTES:
                    break
                batch.append(each)
            self._is_writing = bool(batch)
            return batch

    def _write(self, run: Sequence[_QueuedWrite]) -> None:
        """Write adjacent data of one file with one call. Raises OSError if that is given up."""
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
                self._closing.wait(RETRY_S)
        now = perf_counter()
        if now - started > SLOW_S:
            self._slow_at = now

    def _mark_written(self, count: int) -> None:
        """The first `count` writes of the queue are done."""
        with self._changed:
            is_loop_waiting = not self._written
            for _ in range(count):
                write = self._waiting.popleft()
                write.is_written = True
                self._waiting_bytes -= WRITE_BYTES + len(write.data)
                self._written.append(write)
            self._changed.notify_all()
        if is_loop_waiting:
            self._loop.call_soon_threadsafe(self._report_written)

    # On the loop

    def _report_written(self) -> None:
        self._call_written()
        is_calm = perf_counter() - self._slow_at > self._hold_s
        if is_calm and self._waiting_bytes <= REST_BYTES_MAX:
            self._end()

    def _call_written(self) -> None:
        """Call the callbacks of all writes that are done."""
        with self._changed:
            written, self._written = self._written, []
        for write in written:
            for then in write.then:
                then()

    def _end(self) -> None:
        """Let the loop write again, once the thread has written the rest: the order is kept.

        Blocks for the rest for SLOW_S at most. If that is not enough, the hold time starts again.
        """
        with self._changed:
            self._start()
            if not self._changed.wait_for(lambda: not self._waiting, SLOW_S):
                self._slow_at = perf_counter()
                return
        self._call_written()
        with self._changed:
            if self._waiting or self._written:  # another thread, or a callback, has queued a write
                return
            self.is_held_up = False
        self._calm_since = perf_counter()
        self._thread.shutdown(wait=False)
        log.info("disk_recovered", path=self.path)


def _runs(batch: Sequence[_QueuedWrite]) -> Iterator[tuple[list[_QueuedWrite], int]]:
    """Group the writes that are adjacent in one file into runs, ordered by their first writes.

    With each run: how many writes of the batch, from the first on, are done after it.
    """
    runs: list[tuple[int, list[_QueuedWrite]]] = []
    latest: dict[Target, list[_QueuedWrite]] = {}
    for number, write in enumerate(batch):
        run = latest.get(write.file)
        if run is not None and run[-1].end == write.position:
            run.append(write)
        else:
            latest[write.file] = run = [write]
            runs.append((number, run))
    ends = [number for number, _ in runs[1:]] + [len(batch)]
    yield from zip((run for _, run in runs), ends, strict=True)


class DiskFile:
    """An open file of a log directory.

    While the disk is held up, writes are queued, and reads include them.
    """

    __slots__ = ("_disk", "_file", "path")

    def __init__(self, file: File, disk: Disk) -> None:
        self.path = file.path
        self._file = file
        self._disk = disk

    def fileno(self) -> int:
        """Descriptor of the file itself, which lacks the queued writes."""
        return self._file.fileno()

    def size(self) -> int:
        waiting = self._disk.waiting(self.path) if self._disk.is_held_up else []
        return max([self._file.size(), *(at + len(data) for at, data in waiting)])

    def pread(self, length: int, position: int) -> bytes:
        if not self._disk.is_held_up:
            return self._file.pread(length, position)
        # before the read: an overlap is harmless, a gap is not
        waiting = self._disk.waiting(self.path)
        found = bytearray(self._file.pread(length, position))
        for start, data in waiting:
            _copy_queued(found, length, start - position, data)
        return bytes(found)

    def pwrite(self, data: Writable, position: int) -> None:
        disk = self._disk
        if disk.is_held_up and disk.write(self._file, data, position):
            return
        started = perf_counter()
        self._file.pwrite(data, position)
        seconds = perf_counter() - started
        if seconds > SLOW_S:
            disk.on_slow_write(seconds)

    def truncate(self, length: int) -> None:
        """Blocks until queued writes are done, unless the length is right already.

        Files are hardly ever shortened.
        """
        if self._disk.is_held_up:
            if self.size() == length:
                return
            self._disk.drain()
        self._file.truncate(length)

    def fsync(self) -> None:
        if self._disk.is_held_up:
            self._disk.drain()
        self._file.fsync()


def _copy_queued(found: bytearray, length: int, at: int, data: bytes) -> None:
    """Copy queued `data` into `found`, a read of `length` bytes, at `at`.

    Parts outside are dropped.
    """
    if at >= length or at + len(data) <= 0:
        return
    if at < 0:
        at, data = 0, data[-at:]
    if at > len(found):
        found += bytes(at - len(found))
    end = min(at + len(data), length)
    found[at:end] = data[: end - at]
