"""What a simulated broker does for transactions: it coordinates them, takes their records, and writes their markers."""

from collections.abc import Sequence
from typing import Any, cast

from logfleet.log.names import TopicPartition as Named
from logfleet.node.transactions import verifier as verifier_of_product
from logfleet.node.transactions.enlisting import NOT_NOW, Enlisting, ProducerBatch
from logfleet.node.transactions.verifier import Client, Verifier
from logfleet.transactions.adding import Addition
from logfleet.transactions.config import TransactionConfig
from logfleet.transactions.coordinator import TransactionCoordinator
from logfleet.transactions.state import TopicPartition
from logfleet.types import ProducerEpoch
from logfleet.wire.errors import ErrorCode

from broker_image.tests.sim import naming
from broker_image.tests.sim.kernel import Future, Process
from broker_image.tests.sim.leading import Leading
from broker_image.tests.sim.messages import Produce, Produced
from broker_image.tests.sim.net import Reply
from broker_image.tests.sim.node import Node
from broker_image.tests.sim.replica import Replica
from broker_image.tests.sim.transactions.marking import MarkerAppends, MarkerSender
from broker_image.tests.sim.transactions.requests import (
    Add,
    End,
    Init,
    Refused,
    TransactionRequest,
    Write,
)
from broker_image.tests.sim.transactions.shard import Shard

PATIENCE_MS, PAUSE_MS = 100, 20
"""add.partitions.to.txn.retry.backoff.max.ms and add.partitions.to.txn.retry.backoff.ms"""
CHECK_MS = 1_000
"""transaction.abort.timed.out.transaction.cleanup.interval.ms"""


class Led:
    """A partition while it is led here, as `node.transactions.enlisting` sees it."""

    segments = ()

    def __init__(self, replica: Replica) -> None:
        self.replica = replica
        self.guards = replica.guards
        self.topic, self.index = naming.TOPIC, naming.index_of(replica.index)

    @property
    def log(self) -> "Led":
        return self

    @property
    def producers(self) -> "Led":
        return self

    @property
    def states(self) -> Any:
        return self.replica.log.producers

    def check(self, header: Any, _segments: object) -> Any:
        return self.states.check(header)

    @property
    def is_current(self) -> bool:
        """Whether it is led here, and has been since."""
        return self.replica.leading is not None and self.replica.guards is self.guards


class Transactions:
    """One broker's."""

    def __init__(self, node: Node, leading: Leading) -> None:
        self._node, self._kernel, self._leading = node, node.fleet.kernel, leading
        self._config = TransactionConfig(abort_interval_ms=CHECK_MS)
        self.shard: Shard | None = None
        self.appends = MarkerAppends(node, leading)
        self.sender = MarkerSender(node, self.appends)
        asking = SimVerifier(self)
        self.enlisting = Enlisting(cast("Verifier", asking), lambda: self._kernel.now)

    # which part it has

    def led(self, replica: Replica) -> None:
        """It begins to lead a partition, or goes on after it was suspended."""
        if naming.index_of(replica.index) == self._node.fleet.settings.coordinator:
            fleet = self._node.fleet
            coordinator = TransactionCoordinator(self._config, fleet.transactions.take_producer_id)
            self.shard = Shard(replica, coordinator, self.sender.due)

    def lost(self, replica: Replica) -> None:
        shard = self.shard
        if shard is not None and shard.replica is replica:
            self.shard = None
            shard.close()
            self.sender.drop(shard)

    def on_image(self) -> None:
        self.sender.release()

    # requests

    def serve(self, request: TransactionRequest | Produce, reply: Reply) -> None:
        if isinstance(request, Produce):
            self.produce(request, reply)
            return
        if isinstance(request, Write):
            self.appends.write(request, reply)
            return
        answer = self.ask(request)
        if answer.is_done:
            reply(answer.value)
        else:
            answer.waiter = reply

    def ask(self, request: TransactionRequest) -> Future:
        """The answer of this broker's coordinator, Refused if it has none."""
        shard, refused = self.shard, Future()
        if shard is None or not shard.is_loaded:
            refused.resolve(
                Refused(
                    ErrorCode.NOT_COORDINATOR
                    if shard is None
                    else ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
                )
            )
            return refused
        coordinator = shard.coordinator
        match request:
            case Init():
                return shard.ask(
                    lambda turn, waiter: coordinator.init(turn, request.request, 5, waiter)
                )
            case End():
                self._node.fleet.transactions.end_arrives(request)
                return shard.ask(
                    lambda turn, waiter: coordinator.end(
                        turn, request.request, request.version, waiter
                    )
                )
            case Add():
                question = coordinator.verify if request.verify_only else coordinator.add
                return shard.ask(lambda turn, waiter: question(turn, request.addition, waiter))
        raise AssertionError(request)

    # records

    def produce(self, request: Produce, reply: Reply) -> None:
        """A record of a transaction: the first one in a partition waits for the coordinator."""
        replica = self._leading.led(request.index)
        if replica is None:
            reply(Produced(ErrorCode.NOT_LEADER_OR_FOLLOWER))
            return
        client = Client(adds=request.adds, aborts=True)
        batch = ProducerBatch(cast("Any", Led(replica)), request.batch.header)
        if self.enlisting.is_needed(batch, client):
            self._kernel.spawn(
                self._node.host, "enlist", self._enlisting(batch, client, request, reply)
            )
        else:
            self._append(batch, client, None, request, reply)

    def _enlisting(
        self, batch: ProducerBatch, client: Client, request: Produce, reply: Reply
    ) -> Process:
        assert request.part is not None
        enlist = self.enlisting.enlist(request.part.transactional_id, [batch], client)
        (answer,) = yield from enlist.__await__()
        if not batch.partition.is_current:
            reply(Produced(ErrorCode.NOT_LEADER_OR_FOLLOWER))
        elif isinstance(answer, ErrorCode):
            is_busy = answer is ErrorCode.CONCURRENT_TRANSACTIONS and not client.adds
            reply(
                Produced(ErrorCode.NOT_ENOUGH_REPLICAS if is_busy or answer in NOT_NOW else answer)
            )
        else:
            self._append(batch, client, answer, request, reply)

    def _append(
        self, batch: ProducerBatch, client: Client, guard: Any, request: Produce, reply: Reply
    ) -> None:
        error = self.enlisting.refusal(batch, guard, client)
        if error is not None:
            self._kernel.sometimes(f"a record of a transaction was refused: {error.name}")
            reply(Produced(error))
            return
        led = cast("Any", batch.partition)
        self._leading.produce(request, reply)
        if led.is_current and led.states.is_open(
            batch.header.producer_id, batch.header.producer_epoch
        ):
            led.guards.appended(batch.header)


class SimVerifier:
    """`node.transactions.verifier` on a simulated broker."""

    def __init__(self, room: Transactions) -> None:
        self._room = room

    def verifies(self, _client: Client) -> bool:
        return True

    async def ask_patiently(
        self,
        transactional_id: str,
        producer: tuple[int, int],
        partitions: Sequence[Named],
        client: Client,
    ) -> dict[Named, ErrorCode]:
        kernel = self._room._kernel
        give_up_ms = kernel.now + PATIENCE_MS
        while True:
            errors: dict[Named, ErrorCode] = await Awaited(
                self._asking(transactional_id, producer, partitions, client)
            )
            is_busy = client.adds and ErrorCode.CONCURRENT_TRANSACTIONS in errors.values()
            if not is_busy or kernel.now >= give_up_ms:
                return errors
            kernel.sometimes("a record waited until the last transaction was complete")
            await Awaited(_sleeping(PAUSE_MS))

    def _asking(
        self,
        transactional_id: str,
        producer: tuple[int, int],
        partitions: Sequence[Named],
        client: Client,
    ) -> Process:
        node = self._room._node
        addition = Addition(
            transactional_id,
            producer[0],
            ProducerEpoch(producer[1]),
            frozenset(TopicPartition(each.topic, each.partition) for each in partitions),
            2 if client.adds else 0,
        )
        request = Add(addition, verify_only=not client.adds)
        index = node.fleet.settings.coordinator
        known = dict(naming.numbered(node.image)).get(naming.named(node.image, index))
        if known is None or known.leader not in node.image.brokers:
            return dict.fromkeys(partitions, ErrorCode.COORDINATOR_NOT_AVAILABLE)
        if known.leader == node.id:
            answer = yield self._room.ask(request)
        else:
            answer = yield node.fleet.net.call(node.host, f"b{known.leader}", request)
        if isinstance(answer, Refused):
            answer = answer.error
        if isinstance(answer, ErrorCode):
            answer = dict.fromkeys(addition.partitions, answer)
        answered: dict[tuple[str, int], ErrorCode] = answer if isinstance(answer, dict) else {}
        missing = ErrorCode.NETWORK_EXCEPTION
        return {
            each: verifier_of_product._known_to(
                client, answered.get((each.topic, each.partition), missing)
            )
            for each in partitions
        }


class Awaited:
    """A process of the simulation, to be awaited by a coroutine that the kernel runs."""

    def __init__(self, process: Process) -> None:
        self._process = process

    def __await__(self) -> Process:
        return (yield from self._process)


def _sleeping(ms: int) -> Process:
    yield ms
