"""The bare server: what the loop and the kernel cost with nothing of a broker in between.

It receives the frames of a spec, writes each to a file and answers each with the same bytes; a fetch it answers with the
expected bytes, straight from the file that holds them. It knows the length of its frames and looks at nothing in them
but the number of the fetch.

    python -m e2e.bench.requests.bare SPEC DIRECTORY        prints its port and runs until it is killed
"""

import asyncio
import os
import socket
import sys
import tempfile
from pathlib import Path
from typing import cast

import uvloop

from e2e.bench.requests.spec import CORRELATION_AT, Kind, Spec, load

SCRATCH_BYTES = 64 * 1024
# Frames above this are received one by one, so that each lies at the beginning of the buffer.
SMALL_FRAME_BYTES_MAX = 16 * 1024
# Answers up to this are read and written: cheaper than a sendfile and its preparations.
SMALL_ANSWER_BYTES_MAX = 16 * 1024


class FixedFrames(asyncio.BufferedProtocol):
    """Cuts a stream into frames of one length."""

    def __init__(self, frame_bytes: int) -> None:
        self._frame_bytes = frame_bytes
        size = frame_bytes if frame_bytes > SMALL_FRAME_BYTES_MAX else SCRATCH_BYTES
        self._view = memoryview(bytearray(size))
        self._filled = 0
        self.transport: asyncio.Transport = cast("asyncio.Transport", None)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast("asyncio.Transport", transport)

    def get_buffer(self, sizehint: int) -> memoryview:
        del sizehint
        return self._view[self._filled :]

    def buffer_updated(self, nbytes: int) -> None:
        end = self._filled + nbytes
        start, size = 0, self._frame_bytes
        while end - start >= size:
            self.received(self._view[start : start + size])
            start += size
        if start and start < end:
            self._view[: end - start] = bytes(self._view[start:end])
        self._filled = end - start

    def received(self, frame: memoryview) -> None:
        raise NotImplementedError


class Produce(FixedFrames):
    """Writes each frame behind the last one, into a file that goes with the connection."""

    def __init__(self, spec: Spec, directory: Path) -> None:
        super().__init__(len(spec.frames[0]))
        self._answer = Path(spec.answers).read_bytes()
        self._file = tempfile.TemporaryFile(dir=directory)  # noqa: SIM115  closed with the connection
        self._fd = self._file.fileno()
        self._position = 0

    def received(self, frame: memoryview) -> None:
        self._position += os.pwrite(self._fd, frame, self._position)
        self.transport.write(self._answer)

    def connection_lost(self, exc: Exception | None) -> None:
        del exc
        self._file.close()


class Fetch(FixedFrames):
    """Answers by number with a range of the file of answers."""

    def __init__(self, spec: Spec) -> None:
        super().__init__(len(spec.frames[0]))
        self._ranges = spec.answer_ranges
        # one way for all of them: what the transport holds back must not be overtaken by a sendfile
        largest = max(end - start for start, end in self._ranges)
        self._are_small = largest <= SMALL_ANSWER_BYTES_MAX
        self._file = Path(spec.answers).open("rb")  # noqa: SIM115  as above
        self._fd = self._file.fileno()
        self._socket: socket.socket | None = None
        self._loop = asyncio.get_running_loop()
        self._rest: list[tuple[int, int]] = []

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        # the loop watches the transport's own descriptor; sendfile gets another for the same socket
        self._socket = socket.socket(fileno=os.dup(transport.get_extra_info("socket").fileno()))

    def received(self, frame: memoryview) -> None:
        number = int.from_bytes(frame[CORRELATION_AT : CORRELATION_AT + 4], "big")
        start, end = self._ranges[number]
        if self._are_small:
            self.transport.write(os.pread(self._fd, end - start, start))
            return
        self._rest.append((start, end))
        if len(self._rest) == 1 and not self._send():
            assert self._socket is not None
            self._loop.add_writer(self._socket, self._writable)

    def _send(self) -> bool:
        assert self._socket is not None
        while self._rest:
            start, end = self._rest[0]
            try:
                start += os.sendfile(self._socket.fileno(), self._fd, start, end - start)
            except BlockingIOError:
                return False
            if start == end:
                del self._rest[0]
            else:
                self._rest[0] = (start, end)
        return True

    def _writable(self) -> None:
        if self._send():
            assert self._socket is not None
            self._loop.remove_writer(self._socket)

    def connection_lost(self, exc: Exception | None) -> None:
        del exc
        if self._socket is not None:
            self._loop.remove_writer(self._socket)
            self._socket.close()
        self._file.close()


async def serve(spec: Spec, directory: Path) -> None:
    def protocol() -> FixedFrames:
        return Produce(spec, directory) if spec.case.kind is Kind.PRODUCE else Fetch(spec)

    server = await asyncio.get_running_loop().create_server(protocol, "127.0.0.1", 0)
    print(server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()


if __name__ == "__main__":
    uvloop.run(serve(load(Path(sys.argv[1])), Path(sys.argv[2])))
