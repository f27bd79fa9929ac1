"""Clients of a simulated fleet: how they find leaders, and consumers, which read what is committed."""

from logfleet.metadata.kinds.topics import NO_LEADER
from logfleet.wire.errors import ErrorCode

from broker_image.tests.sim.kernel import Host, Process
from broker_image.tests.sim.messages import Led, Metadata, Produce, Produced, Read, ReadAnswer
from broker_image.tests.sim.node import Fleet

ELSEWHERE = frozenset(
    {
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.UNKNOWN_LEADER_EPOCH,
    }
)
"""Errors after which a client asks again who leads."""
READ_MS = 400


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


class Consumer(Client):
    """offset: where it goes on. leader_epoch: the newest that it has heard of, which it tells the leader.

    One that does not can be told that it stands behind the log's end, by a leader that was replaced and does not know it. Source: KIP-320,
    Metadata.updateLatestMetadata, which keeps a leader of a newer epoch.
    """

    def __init__(self, fleet: Fleet, index: int) -> None:
        super().__init__(fleet, index)
        self.offset = 0
        self.partition = -1
        self.leader_epoch = self.read_epoch = -1

    def takes(self, led: Led) -> bool:
        if led.partition > self.partition:  # the topic has another id, and other records
            self.partition, self.offset = led.partition, 0
            self.leader_epoch = self.read_epoch = -1
        if led.partition < self.partition or led.epoch < self.leader_epoch:
            self.fleet.kernel.sometimes("a consumer heard of a leader that was replaced")
            return False
        self.leader_epoch = led.epoch
        return True

    def consuming(self, host: Host) -> Process:
        while True:
            asked = Read(self.partition, self.offset, self.leader_epoch, self.read_epoch)
            answer = yield from self.ask(host, asked)
            is_same_topic = asked.index == self.partition
            if answer is not None and is_same_topic:
                if answer.error == ErrorCode.OFFSET_OUT_OF_RANGE:
                    self.offset = answer.log_start
                if answer.batches:
                    self.offset += len(answer.batches)
                    self.read_epoch = asked.leader_epoch
            yield READ_MS
