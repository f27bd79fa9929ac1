"""Clients of a simulated fleet: producers that try again until they are answered, and consumers that read what is committed."""

import math

from logfleet.metadata.keys import NO_LEADER
from logfleet.wire.errors import ErrorCode

from broker_image.tests.sim.kernel import Host, Process, SimulationError
from broker_image.tests.sim.messages import Led, Metadata, Produce, Produced, Read, ReadAnswer
from broker_image.tests.sim.node import Fleet
from broker_image.tests.sim.replica_log import NO_PRODUCER

RETRY_MS = 100
"""Before the first retry; it doubles up to eight times that (retry.backoff.ms and .max.ms)."""
ELSEWHERE = frozenset(
    {
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.UNKNOWN_LEADER_EPOCH,
    }
)
"""Errors after which a client asks anew who leads."""
READ_MS = 400
DELIVERY_MS_MAX = 400_000
"""delivery.timeout.ms: longer than all that a simulation breaks."""


class Client:
    """What producers and consumers share: who leads is asked of any broker, whatever that knows."""

    def __init__(self, fleet: Fleet, index: int) -> None:
        self.fleet = fleet
        self.index = index
        self.leader = NO_LEADER

    def ask(self, host: Host, request: Produce | Read) -> Process:
        """Resolves to the leader's answer, or None: try again."""
        kernel, net = self.fleet.kernel, self.fleet.net
        if self.leader == NO_LEADER:
            asked = 1 + kernel.draw("load.bootstrap", len(self.fleet.settings.racks))
            led = yield net.call(host, f"b{asked}", Metadata(self.index))
            if not isinstance(led, Led) or led.leader == NO_LEADER or not self.takes(led):
                return None
            self.leader = led.leader
        answer = yield net.call(host, f"b{self.leader}", request)
        is_answered = isinstance(answer, Produced | ReadAnswer)
        if not is_answered or answer.error in ELSEWHERE:
            self.leader = NO_LEADER
            return None
        return answer

    def takes(self, led: Led) -> bool:  # noqa: ARG002 (Consumer's looks at it)
        """Whether this is believed."""
        return True


class Producer(Client):
    """is_acks_all: with a producer id, acks=all and one record in flight; else without, acks=1 and any number, whose records may be lost."""

    def __init__(self, fleet: Fleet, host: Host, index: int, *, is_acks_all: bool) -> None:
        super().__init__(fleet, index)
        self.host = host
        self.is_acks_all = is_acks_all
        self.waiting: list[str] = []
        self.acked = 0
        self._made = 0
        self._sequence = 0
        self._producer = 100 * (index + 1) if is_acks_all else NO_PRODUCER
        self._busy = 0

    @property
    def is_idle(self) -> bool:
        return not self._busy

    def produce(self) -> None:
        self._made += 1
        self.waiting.append(f"{'all' if self.is_acks_all else 'one'}-{self.index}-{self._made}")
        if not self._busy or not self.is_acks_all:
            self._busy += 1
            self.fleet.kernel.spawn(self.host, "produce", self._producing())

    def _producing(self) -> Process:
        while self.waiting:
            value = self.waiting.pop(0)
            yield from self._deliver(value)
        self._busy -= 1

    def _deliver(self, value: str) -> Process:
        kernel, began_ms, retries = self.fleet.kernel, self.fleet.kernel.now, 0
        while True:
            sequence = self._sequence if self.is_acks_all else -1
            request = Produce(self.index, value, self.is_acks_all, self._producer, sequence)
            answer = yield from self.ask(self.host, request)
            if answer is not None and answer.error == ErrorCode.NONE:
                self.acked += 1
                self._sequence += 1
                kernel.note("client", "%s is acknowledged at %s", value, answer.offset)
                return
            if answer is not None and answer.error == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER:
                self.leader = NO_LEADER
                if self.fleet.checker.history(self.index).least_kept < math.inf:
                    self._producer, self._sequence = self._producer + 1, 0  # as KIP-360 begins anew
            if kernel.now - began_ms > DELIVERY_MS_MAX:
                raise SimulationError(f"L2: {value} is neither acknowledged nor refused")
            yield (RETRY_MS << min(retries, 3)) + kernel.draw("load.retry", 50)
            retries += 1


class Consumer(Client):
    """offset: where it goes on. leader_epoch: the newest that it has heard of, which it tells the leader.

    One that does not can be told that it stands behind the log's end, by a leader that was replaced and does not know it. Source: KIP-320,
    Metadata.updateLatestMetadata, which keeps a leader of a newer epoch.
    """

    def __init__(self, fleet: Fleet, index: int) -> None:
        super().__init__(fleet, index)
        self.offset = 0
        self.leader_epoch = self.read_epoch = -1

    def takes(self, led: Led) -> bool:
        if led.epoch < self.leader_epoch:
            self.fleet.kernel.sometimes("a consumer heard of a leader that was replaced")
            return False
        self.leader_epoch = led.epoch
        return True

    def consuming(self, host: Host) -> Process:
        while True:
            asked = Read(self.index, self.offset, self.leader_epoch, self.read_epoch)
            answer = yield from self.ask(host, asked)
            if answer is not None:
                if answer.error == ErrorCode.OFFSET_OUT_OF_RANGE:
                    self.offset = answer.log_start
                if answer.batches:
                    self.offset += len(answer.batches)
                    self.read_epoch = asked.leader_epoch
            yield READ_MS
