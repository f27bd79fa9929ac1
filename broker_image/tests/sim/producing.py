"""Producers of a simulated fleet, which try again until they are answered."""

from typing import ClassVar

import msgspec
from logfleet.log.producers.states import BATCHES_REMEMBERED
from logfleet.metadata.kinds.topics import NO_LEADER
from logfleet.wire.errors import ErrorCode

from broker_image.tests.sim.clients import Client
from broker_image.tests.sim.kernel import Future, Host, Process, SimulationError
from broker_image.tests.sim.messages import Produce
from broker_image.tests.sim.node import Fleet
from broker_image.tests.sim.replica_log import NO_PRODUCER

IN_FLIGHT_MAX = BATCHES_REMEMBERED
RETRY_MS = 100
"""Before the first retry; it doubles up to eight times that (retry.backoff.ms and .max.ms)."""
REFUSALS_MAX = 8
"""After so many in a row the record before is taken for lost, and the producer begins again."""
DELIVERY_MS_MAX = 400_000
"""delivery.timeout.ms: longer than all that a simulation breaks."""


class Sent(msgspec.Struct, eq=False):
    """A record that is to be acknowledged. refusals: how often in a row it was out of order."""

    value: str
    producer: int = NO_PRODUCER
    sequence: int = -1
    refusals: int = 0


class Producer(Client):
    """Without a producer id, acks=1, and any number of records in flight, which may be lost."""

    kind: ClassVar[str] = "one"
    is_acks_all: ClassVar[bool] = False
    in_flight_max: ClassVar[float] = float("inf")

    def __init__(self, fleet: Fleet, host: Host, index: int) -> None:
        super().__init__(fleet, index)
        self.host = host
        self.acked = 0
        self._made = 0
        self._waiting: list[str] = []
        self._flying: list[Sent] = []

    @property
    def is_idle(self) -> bool:
        return not self._flying

    def produce(self) -> None:
        self._made += 1
        self._waiting.append(f"{self.kind}-{self.index}-{self._made}")
        self._send()

    def _send(self) -> None:
        while self._waiting and len(self._flying) < self.in_flight_max:
            record = self._numbered(self._waiting.pop(0))
            self._flying.append(record)
            self.fleet.kernel.spawn(self.host, "produce", self._delivering(record))

    def _numbered(self, value: str) -> Sent:
        return Sent(value)

    def _delivering(self, record: Sent) -> Process:
        kernel, began_ms, retries = self.fleet.kernel, self.fleet.kernel.now, 0
        while True:
            yield from self._turn(record)
            request = Produce(
                self.index, record.value, self.is_acks_all, record.producer, record.sequence
            )
            answer = yield from self.ask(self.host, request)
            if answer is not None and answer.error == ErrorCode.NONE:
                kernel.note("client", "%s is acknowledged at %s", record.value, answer.offset)
                self._acknowledged(record)
                return
            self._failed(record, None if answer is None else answer.error)
            if kernel.now - began_ms > DELIVERY_MS_MAX:
                raise SimulationError(f"L2: {record.value} is neither acknowledged nor refused")
            yield (RETRY_MS << min(retries, 3)) + kernel.draw("load.retry", 50)
            retries += 1

    def _turn(self, _record: Sent) -> Process:
        """Until the record may be sent."""
        yield from ()

    def _acknowledged(self, record: Sent) -> None:
        self.acked += 1
        self._flying.remove(record)
        self._send()

    def _failed(self, record: Sent, error: ErrorCode | None) -> None:
        """It will be sent again. error: None if there was no answer."""


class IdempotentProducer(Producer):
    """With a producer id, acks=all, and five records in flight.

    After a failure, and at first, only the oldest is sent until it is acknowledged, as Java's client
    does after a failure: a broker that does not know a producer takes any of its records for the
    first (KIP-360). A record that stays out of order follows one that is lost; then the producer
    begins again, with another id.
    """

    kind = "all"
    is_acks_all = True
    in_flight_max = IN_FLIGHT_MAX

    def __init__(self, fleet: Fleet, host: Host, index: int) -> None:
        super().__init__(fleet, host, index)
        self._producer = 100 * (index + 1)
        self._sequence = 0
        self._is_steady = False
        self._turns: list[Future] = []

    def _numbered(self, value: str) -> Sent:
        self._sequence += 1
        return Sent(value, self._producer, self._sequence - 1)

    def _turn(self, record: Sent) -> Process:
        while not self._is_steady and record is not self._flying[0]:
            turn = Future()
            self._turns.append(turn)
            yield turn

    def _acknowledged(self, record: Sent) -> None:
        if len(self._flying) > 1:
            self.fleet.kernel.sometimes("several records of a producer were in flight")
        self._is_steady = True
        super()._acknowledged(record)
        turns, self._turns = self._turns, []
        for turn in turns:
            turn.resolve()

    def _failed(self, record: Sent, error: ErrorCode | None) -> None:
        self._is_steady = False
        if error is not ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER:
            record.refusals = 0
            return
        record.refusals += 1
        self.leader = NO_LEADER
        if record is self._flying[0] and record.refusals >= REFUSALS_MAX:
            self._begin_again()

    def _begin_again(self) -> None:
        """What is in flight gets another producer id, by which no broker sees that it has it already."""
        self.fleet.kernel.sometimes("a producer began again")
        self._producer, self._sequence = self._producer + 1, 0
        for record in self._flying:
            self.fleet.checker.renumbered.add(record.value)
            record.producer, record.sequence = self._producer, self._sequence
            record.refusals = 0
            self._sequence += 1
