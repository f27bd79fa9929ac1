"""The load generator: one connection, prebuilt frames, a bounded number in flight, every answer compared.

It blocks on its socket and does next to nothing per request, so that the server is what is busy; and it reads the
server's processor time itself, right before the first measured request and right after the last answer.

    python -m e2e.perf.load SPEC PORT PID        prints a Measured as JSON
"""

import itertools
import mmap
import socket
import struct
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import msgspec

from e2e.perf.cpu import cpu_time
from e2e.perf.spec import Spec, load

WARM_UP_REQUESTS = 200
PATIENCE_S = 60.0
_OFFSET = struct.Struct(">q")


class Measured(msgspec.Struct, frozen=True):
    """Of one round, warm-up left out. cpu_*: of the server's process, in seconds."""

    requests: int
    records: int
    cpu_s: float
    cpu_user_s: float
    cpu_system_s: float
    wall_s: float


class WrongAnswer(Exception):
    """The server answered something else than was expected; then no figure counts."""


class Answers:
    """Reads the answers and compares them. moves: a produce's base offset goes on with each request."""

    def __init__(self, spec: Spec, connection: socket.socket, *, moves: bool) -> None:
        self._connection = connection
        self._spec = spec
        self._moves = moves
        with Path(spec.answers).open("rb") as file:
            self._expected = memoryview(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))
        self._ranges = itertools.cycle(spec.answer_ranges)
        self._buffers: dict[int, bytearray] = {}
        self._next_offset = 0

    def take(self) -> None:
        """Wait for the next answer. Raises WrongAnswer, TimeoutError."""
        start, end = next(self._ranges)
        size = end - start
        buffer = self._buffers.get(size)
        if buffer is None:
            buffer = self._buffers[size] = bytearray(size)
        view = memoryview(buffer)
        filled = 0
        while filled < size:
            received = self._connection.recv_into(view[filled:])
            if not received:
                raise WrongAnswer(
                    f"the server closed the connection after {filled} of {size} bytes"
                )
            filled += received
        if self._moves:
            at = self._spec.offset_at
            (offset,) = _OFFSET.unpack_from(buffer, at)
            if offset != self._next_offset:
                raise WrongAnswer(f"base offset {offset} instead of {self._next_offset}")
            self._next_offset += self._spec.case.batch_records
            _OFFSET.pack_into(buffer, at, 0)
        if buffer != self._expected[start:end]:  # a bytearray on the left: one memcmp
            raise WrongAnswer(
                f"{bytes(buffer[:200])!r} instead of {bytes(self._expected[start : start + 200])!r}"
            )


def run(
    connection: socket.socket,
    frames: Iterator[bytes],
    answers: Answers,
    *,
    requests: int,
    depth: int,
) -> None:
    """Send `requests` frames, at most `depth` of them unanswered at any time; return when all are answered."""
    for number in range(requests + depth):
        if number >= depth:
            answers.take()
        if number < requests:
            connection.sendall(next(frames))


def measure(spec: Spec, port: int, pid: int, *, moves: bool) -> Measured:
    case = spec.case
    with socket.create_connection(("127.0.0.1", port), timeout=PATIENCE_S) as connection:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        answers = Answers(spec, connection, moves=moves)
        frames = itertools.cycle(spec.frames)
        records = itertools.cycle(spec.records_per_request)
        run(connection, frames, answers, requests=WARM_UP_REQUESTS, depth=case.depth)
        counted = sum(itertools.islice(records, WARM_UP_REQUESTS, WARM_UP_REQUESTS + case.requests))
        cpu_before, wall_before = cpu_time(pid), time.perf_counter()
        run(connection, frames, answers, requests=case.requests, depth=case.depth)
        wall_s = time.perf_counter() - wall_before
        used = cpu_time(pid).since(cpu_before)
    return Measured(case.requests, counted, used.total_ns / 1e9, used.user_s, used.system_s, wall_s)


def main(spec_path: str, port: str, pid: str, moves: str) -> None:
    spec = load(Path(spec_path))
    measured = measure(spec, int(port), int(pid), moves=moves == "moves")
    print(msgspec.json.encode(measured).decode())


if __name__ == "__main__":
    main(*sys.argv[1:])
