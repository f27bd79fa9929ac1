"""The load generator: one connection, prebuilt frames, a bounded number in flight, every answer compared.

It blocks on its socket and does next to nothing per request, so that the server is what is busy; and it reads the
server's processor time itself, right before the first measured request and right after the last answer.

    python -m e2e.bench.requests.load SPEC PORT PID [--moves] [--cpu N]        prints a Measured as JSON
"""

import argparse
import itertools
import mmap
import os
import socket
import struct
import time
from collections.abc import Iterator
from pathlib import Path

import msgspec

from e2e.bench.cpu import cpu_time, run_undisturbed
from e2e.bench.requests.spec import Spec, load

WARM_UP_REQUESTS = 200
PATIENCE_S = 60.0
LARGE_ANSWER_BYTES = 16 * 1024
WAKE_BYTES = 1024 * 1024
"""Of a larger answer nothing is taken before so much is there: else it is up to chance how often the server's kernel has to wake this
process per answer, which costs more than the answer itself."""
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
        self._ready = 1

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
            self._sleep_until(size - filled if size > LARGE_ANSWER_BYTES else 1)
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

    def _sleep_until(self, ready: int) -> None:
        """Be woken when so many bytes, or WAKE_BYTES, can be taken."""
        ready = min(ready, WAKE_BYTES)
        if ready != self._ready:
            self._ready = ready
            self._connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT, ready)


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


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("spec", type=Path)
    parser.add_argument("port", type=int)
    parser.add_argument("pid", type=int, help="the server's")
    parser.add_argument("--moves", action="store_true", help="base offsets go on")
    parser.add_argument("--cpu", type=int, help="run on this processor, before everything else")
    options = parser.parse_args()
    if options.cpu is not None:
        run_undisturbed(os.getpid(), options.cpu)
    spec = load(options.spec)
    measured = measure(spec, options.port, options.pid, moves=options.moves)
    print(msgspec.json.encode(measured).decode())


if __name__ == "__main__":
    main()
