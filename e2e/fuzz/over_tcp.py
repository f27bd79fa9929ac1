"""The inputs against a broker that runs as a process: what it answers, whether it grows, whether it still serves afterwards."""

import contextlib
import random
import socket
import time
from dataclasses import dataclass
from typing import Final

from logfleet.wire import messages as m
from logfleet.wire.apis import API_BY_KEY
from logfleet.wire.frame import SIZE_BYTES
from logfleet.wire.request_memory import REQUEST_MEMORY_BYTES

from e2e.fuzz.crowds import crowds
from e2e.fuzz.inputs import CROWDS, Input, inputs
from e2e.fuzz.judge import ANSWERED, CLOSED, MAY_WAIT, SILENT, Tally
from e2e.fuzz.topics import CREATE_VERSION, creation, ids_of
from e2e.fuzz.values import SAFE_TOPICS, World
from e2e.harness.clients import CLIENTS, Sent
from e2e.harness.processes import Broker, Rig
from e2e.harness.wire_connection import Disconnected, WireConnection

PATIENCE_S: Final = 30.0
WAITS_S: Final = 0.02
"""How long an answer is waited for that may never come."""
GROWTH_MAX: Final = 8
"""Bytes that the broker may grow per byte of input."""
NOISE_BYTES: Final = 24 * 1024 * 1024
"""What the allocator keeps, and codecs that are made when they are first used."""
WARM: Final = 0.2
"""Share of the inputs after which growth counts."""
COMPLAINTS: Final = (
    "Traceback",
    "request_failed",
    "answering_failed",
    "task_failed",
    "broker_failed",
)
CROWD_BYTES: Final = (256 * 1024, 1024 * 1024)
"""Of elements in one frame: about as many as are taken, and too many of most kinds."""
CROWD_COST: Final = 3
"""What answering may take beside 8 bytes per byte of input, in allowances for a request's arrays: see `request_memory`."""
BROKER_CONFIG: Final = {"offsets.topic.num.partitions": "2"}


@dataclass
class Result:
    """rss_growth_bytes: of the broker, from the warm-up to the end."""

    tally: Tally
    rss_growth_bytes: int


def fuzz_over_tcp(rig: Rig, seed: int, examples: int) -> Result:
    """So many inputs to a new broker; faults are in the tally."""
    broker = rig.broker(BROKER_CONFIG)
    with WireConnection(broker.port) as connection:
        world = World(ids_of(connection.call(creation(), CREATE_VERSION)))
        advertised = connection.call(m.ApiVersionsRequest(), 0).api_keys
    served = [
        (api, version)
        for row in advertised
        for api in [API_BY_KEY[row.api_key]]
        for version in range(api.served_min, row.max_version + 1)
    ]
    tally, peer, before = Tally(), RawPeer(broker.port), 0
    for number, given in enumerate(inputs(served, world, random.Random(seed))):
        if number == examples:
            break
        if number == int(examples * WARM):
            before = broker.rss_bytes()
        outcome, answer = peer.send(given)
        tally.judge(given, outcome, answer)
    growth = broker.rss_bytes() - before
    peer.close()
    if growth > GROWTH_MAX * tally.input_bytes + NOISE_BYTES:
        tally.faults.append(f"the broker grew by {growth} bytes")
    tally.faults += [
        f"the broker's log: {line[:2000]}"
        for line in broker.said().splitlines()
        if any(word in line for word in COMPLAINTS)
    ]
    serve_normally(broker)
    return Result(tally, growth)


def crowds_over_tcp(rig: Rig) -> Result:
    """Frames full of tiny elements to a new broker, for every array of every API's newest version.

    Each is answered or closed in time, and what the broker takes at its peak is bounded by the largest of them.
    """
    broker = rig.broker(BROKER_CONFIG)
    with WireConnection(broker.port) as connection:
        connection.call(creation(), CREATE_VERSION)
        advertised = connection.call(m.ApiVersionsRequest(), 0).api_keys
    tally, peer, before = Tally(), RawPeer(broker.port), broker.rss_bytes()
    for row in advertised:
        api, version = API_BY_KEY[row.api_key], row.max_version
        for size in CROWD_BYTES:
            for text in ("", SAFE_TOPICS[0]):
                for crowd in crowds(api, version, size, (text,)):
                    given = Input(CROWDS, crowd.frame, api, version, well_formed=True)
                    outcome, _ = peer.send(given)
                    tally.inputs += 1
                    tally.outcomes[f"{CROWDS} {outcome}"] += 1
                    if outcome == SILENT and api.name not in MAY_WAIT:
                        name = f"{api.name} {version} {crowd.array} of {size} bytes"
                        tally.faults.append(f"{name}: no answer in time")
    peer.close()
    growth = broker.peak_rss_bytes() - before
    bound = GROWTH_MAX * max(CROWD_BYTES) + CROWD_COST * REQUEST_MEMORY_BYTES + NOISE_BYTES
    if growth > bound:
        tally.faults.append(f"the broker took {growth} bytes at its peak")
    serve_normally(broker)
    return Result(tally, growth)


def serve_normally(broker: Broker) -> None:
    """An ordinary client writes and reads, as if nothing had been."""
    now = time.time_ns() // 1_000_000
    sent = [Sent(b"k%d" % number, b"%d" % number, now) for number in range(100)]
    client = CLIENTS["confluent-kafka"]
    client.write(broker.bootstrap, "afterwards", sent, "lz4")
    assert sorted(client.read(broker.bootstrap, "afterwards", len(sent))) == sorted(sent)


class RawPeer:
    """Sends frames over one connection for as long as it is not closed."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._socket: socket.socket | None = None

    def send(self, given: Input) -> tuple[str, bytes | None]:
        """What came of it, and the answer without its size."""
        if self._socket is None:
            self._socket = socket.create_connection(("127.0.0.1", self._port), PATIENCE_S)
        may_wait = given.well_formed and given.api is not None and given.api.name in MAY_WAIT
        try:
            self._socket.sendall(len(given.frame).to_bytes(SIZE_BYTES, "big") + given.frame)
            self._socket.settimeout(WAITS_S if may_wait else PATIENCE_S)
            size = int.from_bytes(self._exactly(SIZE_BYTES), "big")
            self._socket.settimeout(PATIENCE_S)
            return ANSWERED, self._exactly(size)
        except TimeoutError:
            self.close()
            return SILENT, None
        except (Disconnected, OSError):
            self.close()
            return CLOSED, None

    def _exactly(self, size: int) -> bytes:
        assert self._socket is not None
        parts = bytearray()
        while len(parts) < size:
            part = self._socket.recv(size - len(parts))
            if not part:
                raise Disconnected
            parts += part
        return bytes(parts)

    def close(self) -> None:
        if self._socket is not None:
            with contextlib.suppress(OSError):
                self._socket.close()
            self._socket = None
