"""The inputs against the dispatcher of a whole broker in this process: which one fails, and what each allocates."""

import asyncio
import logging
import random
import tracemalloc
from collections.abc import Awaitable
from pathlib import Path
from typing import Any, Final, cast

import msgspec
import structlog
from logfleet.config.broker import broker_config
from logfleet.net.connection import CloseConnection
from logfleet.net.file_sender import Part
from logfleet.net.peer import PARKED, Peer
from logfleet.node.broker import Broker
from logfleet.wire.apis import api_of
from logfleet.wire.frame import SIZE_BYTES, decode_response, encode_request

from e2e.fuzz.inputs import BATCHES, Input, inputs
from e2e.fuzz.judge import ANSWERED, CLOSED, SILENT, Tally
from e2e.fuzz.topics import CREATE_VERSION, DECOMPRESSED_BYTES_MAX, creation, ids_of
from e2e.fuzz.values import World

LISTENER: Final = "PLAINTEXT"
MEASURE_EVERY: Final = 10
"""Inputs of which one is measured: that takes four times as long."""
GROWTH_MAX: Final = 8
"""Bytes that may be allocated per byte of input."""
OWN_BYTES: Final = 2 * 1024 * 1024
"""What the broker allocates meanwhile for itself, a codec that is used for the first time among it."""
BATCH_BYTES: Final = 4 * DECOMPRESSED_BYTES_MAX
"""A batch that is expanded, the copy of what came out, and the same compressed anew; a bomb would be larger."""
WAIT_S: Final = 0.01
LEAVE_S: Final = 30.0


def fuzz_in_process(directory: Path, seed: int, examples: int) -> Tally:
    """So many inputs; the broker's data go below `directory`."""
    before = structlog.get_config()
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.ERROR))
    try:
        return asyncio.run(_fuzz(directory, seed, examples))
    finally:
        structlog.configure(**before)


async def _fuzz(directory: Path, seed: int, examples: int) -> Tally:
    config = broker_config(
        {
            "listeners": f"{LISTENER}://127.0.0.1:0",
            "logfleet.admin.listener": "127.0.0.1:0",
            "log.dirs": str(directory / "data"),
            "group.initial.rebalance.delay.ms": "0",
            "offsets.topic.num.partitions": "2",
        }
    )
    async with Broker(config) as broker:
        world = World(ids_of(await _ask(broker, creation(), CREATE_VERSION)))
        target = Target(broker)
        served = [
            (api, version)
            for api in broker.opened.dispatcher.apis
            for version in range(api.served_min, api.max_version + 1)
        ]
        for number, given in enumerate(inputs(served, world, random.Random(seed))):
            if number == examples:
                break
            await target.send(given, measured=number % MEASURE_EVERY == 0)
        await target.leave()
        if broker.failure is not None:
            target.tally.faults.append(f"the broker failed: {broker.failure}")
    return target.tally


async def _ask(broker: Broker, request: msgspec.Struct, version: int) -> Any:
    frame = b"".join(encode_request(request, version, 1, "fuzz"))[SIZE_BYTES:]  # type: ignore[arg-type]
    answer = await cast(
        "Awaitable[bytes]", broker.opened.dispatcher(Peer(LISTENER), _writable(frame))
    )
    return decode_response(api_of(type(request)), version, memoryview(answer)[SIZE_BYTES:])[1]


def _writable(frame: bytes) -> memoryview:
    return memoryview(bytearray(frame))


class Target:
    """A connection's part towards the dispatcher."""

    def __init__(self, broker: Broker) -> None:
        self.tally = Tally()
        self._broker = broker
        self._failures = 0
        self._waiting: dict[asyncio.Future[Any], Input] = {}

    async def send(self, given: Input, *, measured: bool) -> None:
        if measured:
            tracemalloc.start()
        outcome, answer = await self._outcome(given)
        self.tally.judge(given, outcome, answer)
        if measured:
            _, peak = tracemalloc.get_traced_memory()
            tracemalloc.stop()
            limit = GROWTH_MAX * len(given.frame) + OWN_BYTES
            if peak > limit + (BATCH_BYTES if given.kind == BATCHES or is_produce(given) else 0):
                self.tally.fault(given, f"took {peak} bytes")
        failures = sum(stats.failures for stats in self._broker.opened.dispatcher.stats.values())
        if failures > self._failures:
            self._failures = failures
            self.tally.fault(given, "the handler failed")

    async def _outcome(self, given: Input) -> tuple[str, bytes | None]:
        peer = Peer(LISTENER)
        peer.link = link = AnswersOfParked()
        try:
            answer = self._broker.opened.dispatcher(peer, _writable(given.frame))
            if answer is PARKED:
                answer = link.answered
            if isinstance(answer, Awaitable):
                task = asyncio.ensure_future(answer)
                await asyncio.wait([task], timeout=WAIT_S)
                if not task.done():
                    self._waiting[task] = given
                    if peer.on_leave is not None:
                        peer.on_leave()
                    return await self._late(task, given)
                answer = task.result()
        except CloseConnection:
            return CLOSED, None
        if answer is None:
            return SILENT, None
        pieces = answer if isinstance(answer, list) else [answer]
        return ANSWERED, b"".join(_bytes_of(piece) for piece in pieces)[SIZE_BYTES:]

    async def _late(self, task: "asyncio.Future[Any]", given: Input) -> tuple[str, bytes | None]:
        """A peer that is gone: the request ends, whatever it waits for."""
        assert given.api is not None
        await asyncio.wait([task], timeout=LEAVE_S)
        if not task.done():
            return SILENT, None
        del self._waiting[task]
        answer = task.result()
        if answer is None:
            return SILENT, None
        pieces = answer if isinstance(answer, list) else [answer]
        return ANSWERED, b"".join(_bytes_of(piece) for piece in pieces)[SIZE_BYTES:]

    async def leave(self) -> None:
        """What still waits is given up."""
        for task, given in self._waiting.items():
            self.tally.fault(given, "goes on after its connection is gone")
            task.cancel()


class AnswersOfParked:
    """The link of a connection with one request, for the case that the request is parked."""

    def __init__(self) -> None:
        self.answered: asyncio.Future[bytes | list[Part] | None] = asyncio.Future()

    def answer(self, answer: bytes | list[Part] | None, /) -> None:
        self.answered.set_result(answer)

    def refuse(self, reason: str, /) -> None:
        self.answered.set_exception(CloseConnection(reason))

    def throttle(self, throttle_ms: int, /) -> None:
        """The next request of the connection would wait; there is none."""


def _bytes_of(piece: Any) -> bytes:
    return bytes(piece) if isinstance(piece, bytes | bytearray | memoryview) else piece.read()


def is_produce(given: Input) -> bool:
    return given.api is not None and given.api.name == "Produce"
