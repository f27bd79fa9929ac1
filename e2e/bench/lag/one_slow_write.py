"""What one slow write costs afterwards: the broker's processor time per small request.

Compared are the time before the write, the second after it, and the time from then on.
"""

import selectors
import socket
import statistics
import time
from pathlib import Path
from typing import Final

import msgspec
from logfleet.records.record import Record, build_batch
from logfleet.wire.apis import api_of
from logfleet.wire.codec import decoder
from logfleet.wire.frame import SIZE_BYTES, encode_request
from logfleet.wire.messages import ProduceRequest

from e2e.bench.cpu import cpu_time
from e2e.harness.processes import Broker, Rig
from e2e.harness.topics import create_topic

TOPIC: Final = "small"
CONNECTIONS: Final = 4
"""Each writes to a partition of its own, one request at a time."""
VERSION: Final = 9
RECORD: Final = b"." * 100
ROUNDS: Final = 3
SLOW_MS: Final = 130
WARM_UP_S: Final = 3.0
BEFORE_S: Final = 4.0
HELD_UP_S: Final = 0.8
UNTIL_CALM_S: Final = 1.0
AFTER_S: Final = 4.0
PATIENCE_S: Final = 60.0


class SlowWriteCost(msgspec.Struct):
    """Processor time of the broker per request of one record, in us; ratios to what it was before.

    held_up: within HELD_UP_S after the slow write. after: of AFTER_S, from UNTIL_CALM_S later on.
    """

    before_us: float
    held_up_us: float
    after_us: float
    held_up_ratio: float
    after_ratio: float


class SmallRequests:
    """Connections that produce one record after the other, with acks=all."""

    def __init__(self, broker: Broker) -> None:
        self._pid = broker.pid
        self._selector = selectors.DefaultSelector()
        self._decode = decoder(api_of(ProduceRequest).response, VERSION)
        for index in range(CONNECTIONS):
            connection = socket.create_connection(("127.0.0.1", broker.port), PATIENCE_S)
            frame = _frame(index)
            self._selector.register(connection, selectors.EVENT_READ, frame)
            connection.sendall(frame)

    def run(self, seconds: float) -> float:
        """Go on for so long; processor time of the broker per request meanwhile, in us."""
        cpu_before, answers = cpu_time(self._pid), 0
        deadline = time.monotonic() + seconds
        while (left_s := deadline - time.monotonic()) > 0:
            for key, _ in self._selector.select(left_s):
                assert isinstance(key.fileobj, socket.socket)
                self._check(key.fileobj)
                key.fileobj.sendall(key.data)
                answers += 1
        used_ns = cpu_time(self._pid).since(cpu_before).total_ns
        return used_ns / 1000 / max(answers, 1)

    def close(self) -> None:
        for key in list(self._selector.get_map().values()):
            assert isinstance(key.fileobj, socket.socket)
            key.fileobj.close()
        self._selector.close()

    def _check(self, connection: socket.socket) -> None:
        """Take an answer, which is small. Raises AssertionError if it is an error."""
        answer = connection.recv(4096)
        assert int.from_bytes(answer[:SIZE_BYTES], "big") == len(answer) - SIZE_BYTES
        body, _ = self._decode(answer[SIZE_BYTES:], 5)  # behind correlation id and tags
        (row,) = body.responses[0].partition_responses  # type: ignore[attr-defined]
        assert row.error_code == 0, row


def _frame(partition: int) -> bytes:
    """A Produce request of one record, with acks=all."""
    now_ms = time.time_ns() // 1_000_000
    batch = memoryview(bytes(build_batch([Record(None, RECORD, now_ms)])))
    data = ProduceRequest.PartitionProduceData(index=partition, records=batch)
    rows = ProduceRequest.TopicProduceData(name=TOPIC, partition_data=[data])
    request = ProduceRequest(acks=-1, timeout_ms=30_000, topic_data=[rows])
    return b"".join(encode_request(request, VERSION, 1, "small"))  # type: ignore[arg-type]


def slow_write_cost(rig: Rig, library: Path) -> SlowWriteCost:
    """Medians of ROUNDS brokers, each with one write that takes SLOW_MS. library: of stall.c."""
    rounds = [_round(rig, library, number) for number in range(ROUNDS)]
    before_us, held_up_us, after_us = (
        statistics.median(times) for times in zip(*rounds, strict=True)
    )
    held_up_ratio = statistics.median(held_up / before for before, held_up, _ in rounds)
    after_ratio = statistics.median(after / before for before, _, after in rounds)
    return SlowWriteCost(
        round(before_us, 1),
        round(held_up_us, 1),
        round(after_us, 1),
        round(held_up_ratio, 2),
        round(after_ratio, 2),
    )


def _round(rig: Rig, library: Path, number: int) -> tuple[float, float, float]:
    """us per request before, held up, after."""
    directory = rig.directory / f"slow-{number}"
    switch = directory / "stall_writes"
    broker = rig.own(Broker(directory, name=f"slow-{number}"))
    broker.environment = {"LD_PRELOAD": str(library), "LOGFLEET_STALL_WRITES": str(switch)}
    broker.start()
    create_topic(broker.bootstrap, TOPIC, CONNECTIONS)
    requests = SmallRequests(broker)
    requests.run(WARM_UP_S)
    before_us = requests.run(BEFORE_S)
    switch.write_text(str(SLOW_MS))
    requests.run(SLOW_MS / 2 / 1000)  # it finds the file and waits; the next does not find it
    switch.unlink()
    requests.run(SLOW_MS / 1000)
    held_up_us = requests.run(HELD_UP_S)
    requests.run(UNTIL_CALM_S)
    after_us = requests.run(AFTER_S)
    requests.close()
    broker.terminate()
    assert "disk_held_up" in broker.log.read_text(), f"no write was slow:\n{broker.tail()}"
    return before_us, held_up_us, after_us
