"""Topics on the broker for the cases: a fresh one for each round of produce, one full of batches for all rounds of a fetch."""

import asyncio
import itertools
import socket
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TypeVar

from logfleet.client.admin import Admin, NewTopic
from logfleet.client.cluster import Client
from logfleet.client.offsets import OffsetSpec, TopicPartition, list_offsets
from logfleet.records.batch import crc_matches, iterate_headers
from logfleet.wire.apis import API_BY_NAME
from logfleet.wire.frame import decode_response
from logfleet.wire.messages import FetchResponse

from e2e.bench.requests.cases import BATCH_BYTES
from e2e.bench.requests.load import PATIENCE_S, Answers, run
from e2e.bench.requests.spec import (
    FETCH_VERSION,
    Case,
    Kind,
    Spec,
    fetch_frame,
    offset_position,
    produce_answer,
    produce_frame,
)

T = TypeVar("T")
FULL_BYTES = 64 * 1024 * 1024
"""What a topic for fetches holds: more than any cache of the processor, little enough to stay in memory."""
FULL_BATCHES_MAX = 5000


class Topics:
    """Makes specs. directory: where their answers lie."""

    def __init__(self, bootstrap: str, directory: Path) -> None:
        self._bootstrap = bootstrap
        self._directory = directory
        self._fetches: dict[str, Spec] = {}
        self._numbers = itertools.count()

    def spec(self, case: Case) -> Spec:
        """What a round of `case` sends."""
        if case.kind is Kind.PRODUCE:
            return self._produce(case, *self._create(case))
        if case.name not in self._fetches:
            self._fetches[case.name] = self._fetch(case)
        return self._fetches[case.name]

    def drop(self, spec: Spec) -> None:
        """A round is over: what it has written goes."""
        if spec.topic:
            self._admin(lambda admin: admin.delete_topic(spec.topic))

    def _fetch(self, case: Case) -> Spec:
        """Fill a topic, read it once, and take what came as what must come."""
        name, topic_id = self._create(case)
        filling = self._produce(case, name, topic_id)
        batches = min(FULL_BYTES // len(filling.frames[0]), FULL_BATCHES_MAX)
        with self._connect() as connection:
            answers = Answers(filling, connection, moves=True)
            run(connection, itertools.cycle(filling.frames), answers, requests=batches, depth=5)
            end = batches * case.batch_records
            start = end - case.batch_records if case.newest else 0
            frames, got, counts = read_all(connection, case, topic_id, range(start, end))
        return Spec(
            case=case,
            frames=frames,
            answers=self._keep(name, got),
            answer_ends=list(itertools.accumulate(map(len, got))),
            records_per_request=counts,
        )

    def _produce(self, case: Case, name: str, topic_id: bytes) -> Spec:
        answer = produce_answer(topic_id, 0)
        return Spec(
            case=case,
            frames=[produce_frame(case, topic_id, now_ms=time.time_ns() // 1_000_000)],
            answers=self._keep(name, [answer]),
            answer_ends=[len(answer)],
            records_per_request=[case.batch_records],
            offset_at=offset_position(topic_id),
            topic=name,
        )

    def _keep(self, name: str, answers: list[bytes]) -> str:
        path = self._directory / f"{name}.answers"
        content = b"".join(answers)
        with path.open("wb", buffering=0) as file:
            # as a log is written: what is written at once lies in larger pieces in memory, and is sent cheaper
            for start in range(0, len(content), BATCH_BYTES):
                file.write(content[start : start + BATCH_BYTES])
        return str(path)

    def _create(self, case: Case) -> tuple[str, bytes]:
        name = f"bench-{next(self._numbers)}"
        config = {"logfleet.record.validation": "full"} if case.reads_records else {}

        async def create(admin: Admin) -> bytes:
            topic_id = await admin.create_topic(NewTopic(name, 1, 1, config))
            # a new topic is led a moment later
            await list_offsets(admin.client, {TopicPartition(name, 0): OffsetSpec.LATEST})
            return topic_id

        return name, self._admin(create)

    def _connect(self) -> socket.socket:
        host, port = self._bootstrap.split(":")
        return socket.create_connection((host, int(port)), timeout=PATIENCE_S)

    def _admin(self, call: Callable[[Admin], Awaitable[T]]) -> T:
        async def ask() -> T:
            async with Client(self._bootstrap) as client:
                return await call(Admin(client))

        return asyncio.run(ask())


def read_all(
    connection: socket.socket, case: Case, topic_id: bytes, offsets: range
) -> tuple[list[bytes], list[bytes], list[int]]:
    """Read these offsets once: requests, whole answers, records in each. Every batch is checked on the way."""
    frames: list[bytes] = []
    answers: list[bytes] = []
    counts: list[int] = []
    offset = offsets.start
    while offset < offsets.stop:
        frame = fetch_frame(case, topic_id, offset, len(frames))
        connection.sendall(frame)
        size = receive(connection, 4)
        body = receive(connection, int.from_bytes(size, "big"))
        number, response = decode_response(API_BY_NAME["Fetch"], FETCH_VERSION, memoryview(body))
        assert number == len(frames)
        assert isinstance(response, FetchResponse)
        after = checked_end(response, offset)
        frames.append(frame)
        answers.append(size + body)
        counts.append(after - offset)
        offset = after
    assert offset == offsets.stop, f"the log ends at {offset} instead of {offsets.stop}"
    return frames, answers, counts


def checked_end(response: FetchResponse, offset: int) -> int:
    """Offset behind the batches of an answer, which begin at `offset` and follow one another."""
    row = response.responses[0].partitions[0]
    assert (response.error_code, row.error_code) == (0, 0), response
    assert isinstance(row.records, memoryview)
    assert len(row.records), f"nothing at offset {offset}"
    for position, header in iterate_headers(row.records):
        assert header.base_offset == offset
        assert crc_matches(row.records, header, position)
        offset = header.next_offset
    return offset


def receive(connection: socket.socket, size: int) -> bytes:
    """Exactly `size` bytes."""
    pieces = bytearray()
    while len(pieces) < size:
        piece = connection.recv(size - len(pieces))
        assert piece, "the broker closed the connection"
        pieces += piece
    return bytes(pieces)
