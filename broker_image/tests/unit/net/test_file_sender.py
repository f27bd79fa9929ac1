import asyncio
import contextlib
import errno
import os
import socket
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from logfleet.net import file_sender
from logfleet.net.file_sender import (
    INLINE_BYTES_MAX,
    FileSender,
    Part,
    first_cold_byte,
    read_inline,
)

from broker_image.tests.unit.waiting import Until

pytestmark = pytest.mark.asyncio


class Slice:
    def __init__(self, fd: int, position: int, length: int) -> None:
        self.fd = fd
        self.position = position
        self.length = length

    def __len__(self) -> int:
        return self.length


@pytest.fixture
def disk() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(1) as executor:
        yield executor


@pytest.fixture
def segment(tmp_path: Path) -> Iterator[tuple[int, bytes]]:
    content = os.urandom(3_000_000)
    (tmp_path / "segment").write_bytes(content)
    fd = os.open(tmp_path / "segment", os.O_RDONLY)
    yield fd, content
    os.close(fd)


async def send_all(
    disk: ThreadPoolExecutor, parts: list[Part], expected: int
) -> tuple[bytes, list[OSError]]:
    ours, theirs = socket.socketpair()
    ours.setblocking(False)
    theirs.setblocking(False)
    errors: list[OSError] = []
    done = asyncio.Event()

    def failed(error: OSError) -> None:
        errors.append(error)
        done.set()

    sender = FileSender(ours.fileno(), disk=disk, on_done=done.set, on_error=failed)
    if sender.send(parts):
        done.set()
    received = bytearray()
    receiving = asyncio.ensure_future(_receive(theirs, received, expected))
    await done.wait()
    if errors:
        receiving.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await receiving
    sender.close()
    sender.close()
    ours.close()
    theirs.close()
    return bytes(received), errors


async def _receive(sock: socket.socket, received: bytearray, expected: int) -> None:
    while len(received) < expected:
        received += await asyncio.get_running_loop().sock_recv(sock, 1_000_000)


async def test_cold_pages_are_read_by_a_thread_before_they_are_sent(
    disk: ThreadPoolExecutor, segment: tuple[int, bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    fd, content = segment
    read: list[tuple[int, int]] = []
    real = file_sender.read_ahead

    def reading(fd: int, start: int, end: int) -> None:
        read.append((start, end))
        real(fd, start, end)

    monkeypatch.setattr(file_sender, "first_cold_byte", lambda *_: 0)
    monkeypatch.setattr(file_sender, "read_ahead", reading)
    received, errors = await send_all(
        disk, [b"head", Slice(fd, 100, 2_500_000), b"tail"], 2_500_008
    )
    assert received == b"head" + content[100:2_500_100] + b"tail"
    assert errors == []
    assert read == [(100, 1_048_676), (1_048_676, 2_097_252), (2_097_252, 2_500_100)]


async def test_an_error_of_the_disk_is_reported(
    disk: ThreadPoolExecutor, segment: tuple[int, bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    def failing(fd: int, start: int, end: int) -> None:
        raise OSError(errno.EIO, "bad sector")

    monkeypatch.setattr(file_sender, "first_cold_byte", lambda *_: 0)
    monkeypatch.setattr(file_sender, "read_ahead", failing)
    _, errors = await send_all(disk, [Slice(segment[0], 0, 100_000)], 100_000)
    assert [error.errno for error in errors] == [errno.EIO]


async def test_closing_while_a_thread_reads_keeps_the_slice_until_it_is_done(
    disk: ThreadPoolExecutor,
    segment: tuple[int, bytes],
    monkeypatch: pytest.MonkeyPatch,
    until: Until,
) -> None:
    loop = asyncio.get_running_loop()
    started, ended = asyncio.Event(), asyncio.Event()

    def reading(fd: int, start: int, end: int) -> None:
        loop.call_soon_threadsafe(started.set)
        asyncio.run_coroutine_threadsafe(ended.wait(), loop).result()

    monkeypatch.setattr(file_sender, "first_cold_byte", lambda *_: 0)
    monkeypatch.setattr(file_sender, "read_ahead", reading)
    ours, theirs = socket.socketpair()
    called: list[object] = []
    sender = FileSender(
        ours.fileno(), disk=disk, on_done=lambda: called.append(0), on_error=called.append
    )
    assert not sender.send([Slice(segment[0], 0, 10)])
    await started.wait()
    sender.close()
    assert sender._parts
    ended.set()
    await until(lambda: not sender._parts)
    assert called == []
    ours.close()
    theirs.close()


async def test_only_short_answers_in_memory_are_read_inline(segment: tuple[int, bytes]) -> None:
    fd, content = segment
    parts: list[Part] = [b"a", Slice(fd, 10, 100), memoryview(b"b"), Slice(fd, 500, 1)]
    assert read_inline(parts) == [b"a", content[10:110], b"b", content[500:501]]
    assert read_inline([Slice(fd, 0, INLINE_BYTES_MAX)]) == [content[:INLINE_BYTES_MAX]]
    assert read_inline([Slice(fd, 0, INLINE_BYTES_MAX + 1)]) is None
    assert read_inline([Slice(fd, len(content) - 5, 10)]) is None


async def test_what_is_cold_or_missing_is_not_read_inline(
    segment: tuple[int, bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    fd, _ = segment
    assert read_inline([Slice(-1, 0, 10)]) is None, "the sender will say what is wrong"

    def cold(fd: int, buffers: list[bytearray], offset: int, flags: int = 0) -> int:
        assert flags, "nothing may wait for the disk here"
        raise BlockingIOError

    monkeypatch.setattr(os, "preadv", cold)
    assert read_inline([Slice(fd, 0, 10)]) is None


async def test_a_file_system_that_cannot_probe_is_read_inline(
    segment: tuple[int, bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    fd, content = segment
    real = os.preadv

    def without_nowait(fd: int, buffers: list[bytearray], offset: int, flags: int = 0) -> int:
        if flags:
            raise OSError(errno.EOPNOTSUPP, "no")
        return real(fd, buffers, offset)

    monkeypatch.setattr(os, "preadv", without_nowait)
    assert read_inline([Slice(fd, 5, 10)]) == [content[5:15]]


async def test_pages_just_written_are_in_memory_and_a_bad_descriptor_is_an_error(
    segment: tuple[int, bytes],
) -> None:
    assert first_cold_byte(segment[0], 0, 3_000_000) is None
    with pytest.raises(OSError, match="descriptor"):
        first_cold_byte(-1, 0, 10)


async def test_a_file_system_that_cannot_probe_counts_as_memory(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def refusing(fd: int, buffers: list[bytearray], offset: int, flags: int) -> int:
        raise OSError(errno.EOPNOTSUPP, "no")

    monkeypatch.setattr(os, "preadv", refusing)
    assert first_cold_byte(0, 0, 10) is None


async def test_a_cold_page_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    def probing(fd: int, buffers: list[bytearray], offset: int, flags: int) -> int:
        if offset >= 300_000:
            raise BlockingIOError
        return 1

    monkeypatch.setattr(os, "preadv", probing)
    assert first_cold_byte(0, 0, 1_000_000) == 524_288
