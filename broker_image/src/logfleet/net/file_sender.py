"""Sends responses with slices of files by sendfile: records never pass through Python.

Only a transport that changes no byte may use this. uvloop has no `loop.sendfile`, and the loop must
not watch a transport's own descriptor twice; so a connection that fetches gets a duplicate of its
descriptor, which is written to directly while the transport has nothing to send. Pages that are not
in memory are read ahead by a thread: sendfile of a cold page would stop the loop for as long as the
disk takes.
"""

import asyncio
import errno
import os
import socket
from collections.abc import Callable, Sequence
from concurrent.futures import Executor
from typing import Protocol, TypeAlias

# One sendfile call moves at most this much, and one turn on the loop takes at most this many steps:
# a fast reader of a large response must not keep the loop for itself.
CHUNK_BYTES = 1024 * 1024
STEPS_PER_TURN = 8
# Responses whose slices are together no longer than this are read into memory and sent by one call:
# cheaper than a sendfile between two sends (64 KiB: 55 against 72 us of processor time; from about
# 150 KiB on it is the other way round).
INLINE_BYTES_MAX = 96 * 1024
# Pages are probed at this distance; the kernel reads ahead in larger steps than this.
PROBE_STRIDE_BYTES = 256 * 1024

_NOWAIT: int = os.RWF_NOWAIT
_CANNOT_PROBE = {errno.EOPNOTSUPP, errno.ENOSYS, errno.EINVAL}
_probe_byte = bytearray(1)


class FileSlice(Protocol):
    """A range of an open file, which stays open while the slice exists.

    position: where the range begins, in bytes; its length is `len(slice)`, never 0.
    """

    @property
    def fd(self) -> int: ...
    @property
    def position(self) -> int: ...
    def __len__(self) -> int: ...


Buffer: TypeAlias = bytes | bytearray | memoryview
Part: TypeAlias = Buffer | FileSlice
_BUFFERS = (bytes, bytearray, memoryview)


def read_inline(parts: Sequence[Part]) -> list[Buffer] | None:
    """The response with its slices read, if they are short and in memory, else None."""
    total = 0
    for part in parts:
        if not isinstance(part, _BUFFERS):
            total += len(part)
    if total > INLINE_BYTES_MAX:
        return None
    pieces: list[Buffer] = []
    for part in parts:
        if isinstance(part, _BUFFERS):
            pieces.append(part)
            continue
        data = bytearray(len(part))
        if _read_now(part.fd, data, part.position) != len(data):
            return None  # partly cold, or shorter than expected: the sender handles both
        pieces.append(data)
    return pieces


def _read_now(fd: int, data: bytearray, position: int) -> int:
    """Number of bytes read without waiting for the disk.

    File systems that cannot tell count as being in memory.
    """
    try:
        return os.preadv(fd, [data], position, _NOWAIT)
    except OSError as error:
        return os.preadv(fd, [data], position) if error.errno in _CANNOT_PROBE else 0


def first_cold_byte(fd: int, start: int, end: int) -> int | None:
    """Position of a probed byte in [start, end) that is not in memory; None if all probed ones are.

    File systems that cannot tell count as being in memory.
    """
    position: int
    for position in (*range(start, end, PROBE_STRIDE_BYTES), end - 1):
        try:
            os.preadv(fd, [_probe_byte], position, _NOWAIT)
        except BlockingIOError:
            return position
        except OSError as error:
            if error.errno in _CANNOT_PROBE:
                return None
            raise
    return None


def read_ahead(fd: int, start: int, end: int) -> None:
    """Read [start, end) into memory; blocks, so it runs in a thread."""
    buffer = bytearray(min(end - start, PROBE_STRIDE_BYTES))
    while start < end:
        read = os.preadv(fd, [buffer], start)
        if read == 0:
            return
        start += read


class FileSender:
    """Sends one response at a time on a duplicate of a connection's socket.

    disk: where read-ahead runs.
    on_done: called when a response is sent that could not be sent at once.
    on_error: called with the error when the peer is gone or a file cannot be read.
    The constructor raises OSError if there is no descriptor for the duplicate.
    """

    def __init__(
        self,
        fd: int,
        *,
        disk: Executor,
        on_done: Callable[[], None],
        on_error: Callable[[OSError], None],
    ) -> None:
        self._loop = asyncio.get_running_loop()
        self._socket = socket.socket(fileno=os.dup(fd))
        self._disk = disk
        self._on_done = on_done
        self._on_error = on_error
        self._parts: list[Part] = []
        self._index = 0
        self._sent = 0  # bytes of the part at _index that are sent
        self._warm_until = 0  # bytes of the slice at _index that are in memory
        self._watching = False
        self._reading_ahead = False
        self._closed = False

    def send(self, parts: Sequence[Part]) -> bool:
        """Send all parts in order.

        True if that is done; otherwise on_done or on_error is called later. The transport must have
        nothing unsent, and nothing may be written to it until this is done.
        """
        assert not self._parts, "one response at a time"
        self._parts = list(parts)
        self._index = self._sent = self._warm_until = 0
        return self._advance()

    @property
    def unsent_bytes(self) -> int:
        """Bytes of the present response that are not sent yet."""
        return sum(map(len, self._parts[self._index :])) - self._sent

    def close(self) -> None:
        """Drop unsent parts and close the descriptor."""
        if not self._closed:
            self._closed = True
            self._watch(on=False)
            self._socket.close()
            if not self._reading_ahead:  # the thread still needs its file open
                self._parts = []

    def _advance(self) -> bool:
        """Send what the socket accepts now; True when everything is sent."""
        try:
            for _ in range(STEPS_PER_TURN):
                if self._index == len(self._parts):
                    self._parts = []
                    self._watch(on=False)
                    return True
                part = self._parts[self._index]
                if isinstance(part, _BUFFERS):
                    self._send_buffers()
                elif not self._send_slice(part):
                    return False
        except BlockingIOError:
            pass
        except OSError as error:
            self._parts = []
            self._watch(on=False)
            self._on_error(error)
            return False
        self._watch(on=True)
        return False

    def _send_buffers(self) -> None:
        """Send the buffers up to the next slice; the kernel delays them to add what follows."""
        end = self._index
        run: list[Buffer] = []
        while end < len(self._parts):
            part = self._parts[end]
            if not isinstance(part, _BUFFERS):
                break
            run.append(part)
            end += 1
        if self._sent:
            run[0] = memoryview(run[0])[self._sent :]
        more = socket.MSG_MORE if end < len(self._parts) else 0
        sent = self._socket.sendmsg(run, (), more)
        for buffer in run:
            if sent < len(buffer):
                self._sent += sent
                return
            sent -= len(buffer)
            self._index += 1
            self._sent = 0

    def _send_slice(self, part: FileSlice) -> bool:
        """Send a chunk of the slice; False if a thread has to read it first."""
        start = part.position + self._sent
        if self._sent >= self._warm_until:
            end = min(start + CHUNK_BYTES, part.position + len(part))
            if first_cold_byte(part.fd, start, end) is not None:
                self._read_ahead(part, start, end)
                return False
            self._warm_until = end - part.position
        sent = os.sendfile(self._socket.fileno(), part.fd, start, self._warm_until - self._sent)
        if sent == 0:
            raise OSError(errno.EIO, "the segment is shorter than the range to be sent")
        self._sent += sent
        if self._sent == len(part):
            self._index += 1
            self._sent = self._warm_until = 0
        return True

    def _read_ahead(self, part: FileSlice, start: int, end: int) -> None:
        self._watch(on=False)
        self._reading_ahead = True
        reading = self._loop.run_in_executor(self._disk, read_ahead, part.fd, start, end)
        reading.add_done_callback(lambda done: self._is_warm(done, end - part.position))

    def _is_warm(self, reading: asyncio.Future[None], warm_until: int) -> None:
        self._reading_ahead = False
        error = None if reading.cancelled() else reading.exception()
        if self._closed:
            self._parts = []
            return
        if isinstance(error, OSError):
            self._parts = []
            self._on_error(error)
            return
        # Not probed again: a page that was evicted meanwhile costs one disk read on the loop;
        # endless probing would cost the peer its response.
        self._warm_until = warm_until
        self._resume()

    def _resume(self) -> None:
        if self._advance():
            self._on_done()

    def _watch(self, *, on: bool) -> None:
        if on == self._watching:
            return
        self._watching = on
        if on:
            self._loop.add_writer(self._socket, self._resume)
        else:
            self._loop.remove_writer(self._socket)
